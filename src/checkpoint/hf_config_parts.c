// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_config_parts.h"

void tsr_hf_read_architecture(reader *r, const char *model, const char *body) {
  const cJSON *list = get(r->root, "architectures"), *item;
  if (!list) return;
  if (!cJSON_IsArray(list)) unsupported(r, "architectures", describe(r, list), "a list");
  cJSON_ArrayForEach(item, list) {
    bool known = cJSON_IsString(item) &&
                 (!strcmp(item->valuestring, model) || !strcmp(item->valuestring, body));
    if (!known) unsupported(r, "architectures", describe(r, item), model);
  }
}

/* No block has a window. */
static void check_layers(reader *r) {
  const cJSON *item;
  cJSON_ArrayForEach(item, get(r->root, "layer_types")) {
    if (cJSON_IsString(item) && !strcmp(item->valuestring, "full_attention")) continue;
    unsupported(r, "layer_types", describe(r, item), "'full_attention'");
    return;
  }
}

void tsr_hf_read_sizes(reader *r, int64_t groups) {
  tsr_hf_config *c = r->c;
  c->vocab_size = count(r, "vocab_size", -1);
  c->embedding_dim = count(r, "hidden_size", -1);
  c->intermediate_dim = count(r, "intermediate_size", -1);
  c->num_blocks = count(r, "num_hidden_layers", -1);
  c->num_heads = count(r, "num_attention_heads", -1);
  c->num_groups =
      count_or_null(r, "num_key_value_heads", groups ? groups : c->num_heads, c->num_heads);
  if (r->ok && c->num_heads % c->num_groups)
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE,
        "'%s': num_key_value_heads %" PRId64 " does not divide num_attention_heads %" PRId64,
        r->path, c->num_groups, c->num_heads);
  c->max_sequence_length = count(r, "max_position_embeddings", -1);
  c->norm_eps = number(r, "rms_norm_eps", 1e-6);
  c->tied = flag(r, "tie_word_embeddings", false);
  double dropout = number(r, "attention_dropout", 0);
  if (dropout > 0)
    tsr_diag_warning(
        r->diags, TSR_NOWHERE, "'%s': attention_dropout %g is not taken: dropout_prob is 0",
        r->path, dropout);
  fixed_text(r, "hidden_act", "silu");
}

void tsr_hf_read_common(reader *r, int64_t groups) {
  tsr_hf_read_sizes(r, groups);
  check_layers(r);
}

/* ---- rotary positions ---- */

/* The classes take it from outside the scaling, where it is there. */
static int64_t read_original_length(reader *r, const cJSON *rope) {
  static const char key[] = "original_max_position_embeddings";
  return count_in(r, tsr_json_get(r->root, key) ? r->root : rope, key, -1);
}

static void read_llama3_rope(reader *r, const cJSON *rope) {
  tsr_hf_config *c = r->c;
  c->scaling_factor = positive_in(r, rope, "factor", -1);
  c->low_freq_factor = positive_in(r, rope, "low_freq_factor", -1);
  c->high_freq_factor = positive_in(r, rope, "high_freq_factor", -1);
  c->original_context_length = read_original_length(r, rope);
  if (r->ok && c->low_freq_factor >= c->high_freq_factor)
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': low_freq_factor %g must be below high_freq_factor %g",
        r->path, c->low_freq_factor, c->high_freq_factor);
}

static void read_yarn_rope(reader *r, const cJSON *rope) {
  tsr_hf_latent *c = &r->c->latent;
  c->yarn_factor = positive_in(r, rope, "factor", -1);
  c->beta_fast = positive_in(r, rope, "beta_fast", 32);
  c->beta_slow = positive_in(r, rope, "beta_slow", 1);
  c->mscale = number_in(r, rope, "mscale", 0);
  c->mscale_all_dim = number_in(r, rope, "mscale_all_dim", 0);
  if (get(rope, "attention_factor"))
    c->attention_factor = positive_in(r, rope, "attention_factor", -1);
  c->truncate = flag_in(r, rope, "truncate", true);
  r->c->original_context_length = read_original_length(r, rope);
}

/* To the classes an empty object is none. */
static const cJSON *older_rope(const reader *r) {
  const cJSON *rope = get(r->root, "rope_scaling");
  return cJSON_IsObject(rope) && !rope->child ? NULL : rope;
}

/* Newer files hold all of it in rope_parameters, older ones the scaling in rope_scaling. */
const cJSON *tsr_hf_rope(const reader *r) {
  const cJSON *newer = get(r->root, "rope_parameters");
  return newer ? newer : older_rope(r);
}

void tsr_hf_read_rope(reader *r, rope_kind kind, double theta) {
  static const char *const supported[] = {
      "'default'", "'default', 'llama3'", "'default', 'yarn'", "'default'"};
  const char *key = get(r->root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  const cJSON *rope = tsr_hf_rope(r), *older = older_rope(r);
  if (older && older != rope && !cJSON_Compare(older, rope, true)) {
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': rope_scaling and rope_parameters differ", r->path);
    return;
  }
  if (rope && !cJSON_IsObject(rope)) return unsupported(r, key, describe(r, rope), "an object");
  const cJSON *type = tsr_json_get(rope, "rope_type");
  if (!type) type = tsr_json_get(rope, "type");
  r->c->theta = positive_in(r, r->root, "rope_theta", theta);
  r->c->theta = positive_in(r, rope, "rope_theta", r->c->theta);
  bool ok = r->ok, none = cJSON_IsNull(tsr_json_get(r->root, "partial_rotary_factor"));
  double partial = none ? 1 : number(r, "partial_rotary_factor", kind == ROPE_PARTIAL ? 0.5 : 1);
  partial = number_in(r, rope, "partial_rotary_factor", partial);
  r->c->partial_rotary_factor = partial;
  if (partial != 1 && kind != ROPE_PARTIAL && ok == r->ok)
    unsupported(r, "partial_rotary_factor", tsr_arena_printf(r->arena, "%g", partial), "1");
  fixed(r, "rope_interleaved", false);
  const char *name = !type ? "default" : cJSON_IsString(type) ? type->valuestring : "";
  if (kind == ROPE_LLAMA3 && !strcmp(name, "llama3")) read_llama3_rope(r, rope);
  else if (kind == ROPE_YARN && !strcmp(name, "yarn")) read_yarn_rope(r, rope);
  else if (strcmp(name, "default"))
    unsupported(
        r, tsr_arena_printf(r->arena, "%s.rope_type", key), describe(r, type), supported[kind]);
}
