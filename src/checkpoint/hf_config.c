// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_config_reader.h"
#include <math.h>
#include <string.h>

/* ---- what all have ---- */

/* The class that wrote the weights: the language model, or its body alone. */
static void check_architecture(reader *r, const char *model, const char *body) {
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

/* ---- GPT-2 ---- */

/* Ours has one probability for all places. */
static double read_dropout(reader *r) {
  double after = number(r, "resid_pdrop", 0.1), embedding = number(r, "embd_pdrop", 0.1);
  double attention = number(r, "attn_pdrop", 0.1);
  if (after != embedding || after != attention)
    tsr_diag_warning(
        r->diags, TSR_NOWHERE,
        "'%s': resid_pdrop %g, embd_pdrop %g and attn_pdrop %g differ: dropout_prob is %g", r->path,
        after, embedding, attention, after);
  return after;
}

static void read_gpt2(reader *r) {
  tsr_hf_config *c = r->c;
  check_architecture(r, "GPT2LMHeadModel", "GPT2Model");
  c->vocab_size = count(r, "vocab_size", -1);
  c->embedding_dim = count(r, "n_embd", -1);
  c->num_blocks = count(r, "n_layer", -1);
  c->num_heads = count(r, "n_head", -1);
  c->max_sequence_length = count(r, "n_positions", -1);
  c->intermediate_dim = count(r, "n_inner", 4 * c->embedding_dim);
  c->head_dim = c->embedding_dim / c->num_heads;
  c->norm_eps = number(r, "layer_norm_epsilon", 1e-5);
  c->tied = flag(r, "tie_word_embeddings", true);
  c->dropout_prob = read_dropout(r);
  if (!is_text(get(r->root, "activation_function"), "gelu_pytorch_tanh")) /* the same */
    fixed_text(r, "activation_function", "gelu_new");
  fixed(r, "scale_attn_weights", true);
  fixed(r, "scale_attn_by_inverse_layer_idx", false);
  fixed(r, "add_cross_attention", false);
}

/* ---- Llama and its relatives ---- */

static void read_llama3_rope(reader *r, const cJSON *rope) {
  tsr_hf_config *c = r->c;
  c->scaling_factor = positive_in(r, rope, "factor", -1);
  c->low_freq_factor = positive_in(r, rope, "low_freq_factor", -1);
  c->high_freq_factor = positive_in(r, rope, "high_freq_factor", -1);
  c->original_context_length = count_in(r, rope, "original_max_position_embeddings", -1);
  if (r->ok && c->low_freq_factor >= c->high_freq_factor)
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': low_freq_factor %g must be below high_freq_factor %g",
        r->path, c->low_freq_factor, c->high_freq_factor);
}

static void read_yarn_rope(reader *r, const cJSON *rope) {
  tsr_hf_latent *c = &r->c->latent;
  const cJSON *truncate = get(rope, "truncate");
  c->yarn_factor = positive_in(r, rope, "factor", -1);
  c->beta_fast = positive_in(r, rope, "beta_fast", 32);
  c->beta_slow = positive_in(r, rope, "beta_slow", 1);
  c->mscale = number_in(r, rope, "mscale", 0);
  c->mscale_all_dim = number_in(r, rope, "mscale_all_dim", 0);
  c->attention_factor = number_in(r, rope, "attention_factor", 0);
  c->truncate = !truncate || cJSON_IsTrue(truncate);
  r->c->original_context_length = count_in(r, rope, "original_max_position_embeddings", -1);
}

/* The scaling that a family has beside none. */
typedef enum { ROPE_PLAIN, ROPE_LLAMA3, ROPE_YARN, ROPE_PARTIAL } rope_kind;

/* Newer files hold all of it in rope_parameters, older ones the scaling in rope_scaling. */
static void read_rope(reader *r, rope_kind kind) {
  static const char *const supported[] = {
      "'default'", "'default', 'llama3'", "'default', 'yarn'", "'default'"};
  const char *key = get(r->root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  const cJSON *rope = get(r->root, key), *older = get(r->root, "rope_scaling");
  if (older && older != rope && !cJSON_Compare(older, rope, true)) {
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': rope_scaling and rope_parameters differ", r->path);
    return;
  }
  if (rope && !cJSON_IsObject(rope)) return unsupported(r, key, describe(r, rope), "an object");
  const cJSON *type = get(rope, "rope_type") ? get(rope, "rope_type") : get(rope, "type");
  r->c->theta = positive_in(r, r->root, "rope_theta", 10000);
  if (get(rope, "rope_theta")) r->c->theta = positive_in(r, rope, "rope_theta", -1);
  double partial = number(r, "partial_rotary_factor", kind == ROPE_PARTIAL ? 0.5 : 1);
  if (get(rope, "partial_rotary_factor")) partial = number_in(r, rope, "partial_rotary_factor", 1);
  r->c->partial_rotary_factor = partial;
  if (partial != 1 && kind != ROPE_PARTIAL)
    unsupported(r, "partial_rotary_factor", tsr_arena_printf(r->arena, "%g", partial), "1");
  fixed(r, "rope_interleaved", false);
  const char *name = !type ? "default" : cJSON_IsString(type) ? type->valuestring : "";
  if (kind == ROPE_LLAMA3 && !strcmp(name, "llama3")) read_llama3_rope(r, rope);
  else if (kind == ROPE_YARN && !strcmp(name, "yarn")) read_yarn_rope(r, rope);
  else if (strcmp(name, "default"))
    unsupported(
        r, tsr_arena_printf(r->arena, "%s.rope_type", key), describe(r, type), supported[kind]);
}

static void read_sizes(reader *r) {
  tsr_hf_config *c = r->c;
  c->vocab_size = count(r, "vocab_size", -1);
  c->embedding_dim = count(r, "hidden_size", -1);
  c->intermediate_dim = count(r, "intermediate_size", -1);
  c->num_blocks = count(r, "num_hidden_layers", -1);
  c->num_heads = count(r, "num_attention_heads", -1);
  c->num_groups = count(r, "num_key_value_heads", c->num_heads);
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

static void read_common(reader *r) {
  read_sizes(r);
  check_layers(r);
}

static void read_llama(reader *r) {
  check_architecture(r, "LlamaForCausalLM", "LlamaModel");
  read_common(r);
  r->c->head_dim = count(r, "head_dim", r->c->embedding_dim / r->c->num_heads);
  r->c->attention_bias = flag(r, "attention_bias", false);
  r->c->mlp_bias = flag(r, "mlp_bias", false);
  read_rope(r, ROPE_LLAMA3);
}

static void read_mistral(reader *r) {
  check_architecture(r, "MistralForCausalLM", "MistralModel");
  read_common(r);
  r->c->head_dim = count(r, "head_dim", r->c->embedding_dim / r->c->num_heads);
  read_rope(r, ROPE_LLAMA3);
  /* a file without the key has 4096, one with null has no window */
  bool none = cJSON_IsNull(tsr_json_get(r->root, "sliding_window"));
  if (!none) r->c->sliding_window = count(r, "sliding_window", 4096);
}

static void read_qwen3(reader *r) {
  check_architecture(r, "Qwen3ForCausalLM", "Qwen3Model");
  read_common(r);
  r->c->head_dim = count(r, "head_dim", 128);
  r->c->attention_bias = flag(r, "attention_bias", false);
  fixed(r, "use_sliding_window", false);
  read_rope(r, ROPE_PLAIN);
}

/* ---- mixtures of experts ---- */

/* transformers 5 writes num_local_experts where older files have num_experts. */
static void read_experts(reader *r, double coefficient) {
  tsr_hf_experts *e = &r->c->experts;
  const cJSON *local = get(r->root, "num_local_experts"), *all = get(r->root, "num_experts");
  if (local && all && !cJSON_Compare(local, all, true))
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': num_local_experts and num_experts differ", r->path);
  e->num_experts = count(r, local ? "num_local_experts" : "num_experts", -1);
  e->num_experts_per_token = count(r, "num_experts_per_tok", -1);
  e->norm_topk_prob = flag(r, "norm_topk_prob", false);
  e->router_aux_loss_coef = number(r, "router_aux_loss_coef", coefficient);
  e->adds_aux_loss = flag(r, "output_router_logits", false);
}

/* Which blocks of Qwen's have experts. */
static void read_sparse_blocks(reader *r) {
  tsr_hf_experts *e = &r->c->experts;
  const cJSON *list = get(r->root, "mlp_only_layers"), *item;
  e->dense_intermediate_dim = r->c->intermediate_dim;
  r->c->intermediate_dim = count(r, "moe_intermediate_size", -1);
  e->decoder_sparse_step = count(r, "decoder_sparse_step", 1);
  if (list && !cJSON_IsArray(list))
    return unsupported(r, "mlp_only_layers", describe(r, list), "a list");
  int64_t *layers = tsr_arena_array(r->arena, int64_t, cJSON_GetArraySize(list) + 1);
  cJSON_ArrayForEach(item, list) {
    bool whole = cJSON_IsNumber(item) && item->valuedouble == floor(item->valuedouble);
    if (!whole || item->valuedouble < 0 || item->valuedouble > 1e9)
      return unsupported(r, "mlp_only_layers", describe(r, item), "numbers of blocks");
    layers[e->mlp_only_layers_count++] = (int64_t)item->valuedouble;
  }
  e->mlp_only_layers = layers;
}

static void read_mixtral(reader *r) {
  tsr_hf_config *c = r->c;
  check_architecture(r, "MixtralForCausalLM", "MixtralModel");
  read_common(r);
  c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  c->head_dim = count(r, "head_dim", c->embedding_dim / c->num_heads);
  if (get(r->root, "sliding_window")) c->sliding_window = count(r, "sliding_window", -1);
  read_rope(r, ROPE_PLAIN);
  if (!get(r->root, "rope_theta") && !get(get(r->root, "rope_parameters"), "rope_theta"))
    c->theta = 1e6;
  read_experts(r, 0.001);
  double noise = number(r, "router_jitter_noise", 0);
  if (noise > 0)
    unsupported(r, "router_jitter_noise", tsr_arena_printf(r->arena, "%g", noise), "0");
}

static void read_qwen3_moe(reader *r) {
  check_architecture(r, "Qwen3MoeForCausalLM", "Qwen3MoeModel");
  read_common(r);
  r->c->head_dim = count(r, "head_dim", r->c->embedding_dim / r->c->num_heads);
  r->c->attention_bias = flag(r, "attention_bias", false);
  fixed(r, "use_sliding_window", false);
  read_rope(r, ROPE_PLAIN);
  read_experts(r, 0.001);
  read_sparse_blocks(r);
}

static void read_qwen2_moe(reader *r) {
  check_architecture(r, "Qwen2MoeForCausalLM", "Qwen2MoeModel");
  read_common(r);
  r->c->head_dim = count(r, "head_dim", r->c->embedding_dim / r->c->num_heads);
  r->c->attention_bias = flag(r, "qkv_bias", true);
  fixed(r, "use_sliding_window", false);
  read_rope(r, ROPE_PLAIN);
  read_experts(r, 0.001);
  read_sparse_blocks(r);
  r->c->experts.shared_intermediate_dim = count(r, "shared_expert_intermediate_size", 5632);
}

static void read_olmoe(reader *r) {
  check_architecture(r, "OlmoeForCausalLM", "OlmoeModel");
  read_common(r);
  r->c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  r->c->head_dim = r->c->embedding_dim / r->c->num_heads;
  r->c->attention_bias = flag(r, "attention_bias", false);
  const cJSON *clip = get(r->root, "clip_qkv");
  if (clip) unsupported(r, "clip_qkv", describe(r, clip), "null");
  read_rope(r, ROPE_PLAIN);
  read_experts(r, 0.01);
}

/* ---- DeepSeek ---- */

/* n_group is one group, too, where the choice is of all experts (greedy). */
static void read_expert_groups(reader *r, bool greedy) {
  tsr_hf_experts *e = &r->c->experts;
  e->num_expert_groups = greedy ? 1 : count(r, "n_group", 1);
  e->num_kept_groups = greedy ? 1 : count(r, "topk_group", e->num_expert_groups);
}

/* Blocks behind the dense ones are mixtures of experts. `dense`, `shared`: so many by default. */
static void read_deepseek_experts(reader *r, int64_t dense, int64_t shared) {
  tsr_hf_experts *e = &r->c->experts;
  if (get(r->root, "first_k_dense_replace") &&
      !tsr_json_int(r->root, "first_k_dense_replace", r->path, &dense, r->diags))
    r->ok = false;
  if (dense >= r->c->num_blocks) return;
  const cJSON *every = get(r->root, "moe_layer_freq");
  if (every && !(cJSON_IsNumber(every) && every->valuedouble == 1))
    unsupported(r, "moe_layer_freq", describe(r, every), "1");
  const char *key = get(r->root, "num_local_experts") ? "num_local_experts" : "n_routed_experts";
  e->num_experts = count(r, key, -1);
  e->num_experts_per_token = count(r, "num_experts_per_tok", -1);
  e->num_shared_experts = count(r, "n_shared_experts", shared);
  e->first_k_dense_replace = dense < 0 ? 0 : dense;
  e->routed_scaling_factor = number(r, "routed_scaling_factor", -1);
  e->dense_intermediate_dim = r->c->intermediate_dim;
  r->c->intermediate_dim = count(r, "moe_intermediate_size", -1);
}

static void read_deepseek(reader *r) {
  tsr_hf_config *c = r->c;
  tsr_hf_latent *latent = &c->latent;
  read_common(r);
  if (c->num_groups != c->num_heads)
    unsupported(
        r, "num_key_value_heads", tsr_arena_printf(r->arena, "%" PRId64, c->num_groups),
        "as many as num_attention_heads");
  bool one_layer = cJSON_IsNull(tsr_json_get(r->root, "q_lora_rank"));
  latent->q_lora_rank = one_layer ? 0 : count(r, "q_lora_rank", 1536);
  latent->kv_lora_rank = count(r, "kv_lora_rank", 512);
  latent->qk_nope_head_dim = count(r, "qk_nope_head_dim", 128);
  latent->qk_rope_head_dim = count(r, "qk_rope_head_dim", 64);
  latent->v_head_dim = count(r, "v_head_dim", 128);
  latent->rope_interleave = true;
  c->attention_bias = flag(r, "attention_bias", false);
  read_rope(r, ROPE_YARN);
}

static void read_mtp_layers(reader *r) {
  const cJSON *mtp = get(r->root, "num_nextn_predict_layers");
  if (!cJSON_IsNumber(mtp) || mtp->valuedouble > 0)
    r->c->mtp_layers = count(r, "num_nextn_predict_layers", 1);
}

static void read_deepseek_v3(reader *r) {
  check_architecture(r, "DeepseekV3ForCausalLM", "DeepseekV3Model");
  read_deepseek(r);
  r->c->latent.rope_interleave = flag(r, "rope_interleave", true);
  read_mtp_layers(r);
  read_deepseek_experts(r, 3, 1);
  if (!r->c->experts.num_experts) return;
  fixed_text(r, "scoring_func", "sigmoid");
  fixed_text(r, "topk_method", "noaux_tc");
  r->c->experts.norm_topk_prob = flag(r, "norm_topk_prob", true);
  read_expert_groups(r, false);
}

static void read_deepseek_v2(reader *r) {
  check_architecture(r, "DeepseekV2ForCausalLM", "DeepseekV2Model");
  fixed(r, "mlp_bias", false);
  read_deepseek(r);
  read_deepseek_experts(r, 0, 2);
  if (!r->c->experts.num_experts) return;
  const cJSON *method = get(r->root, "topk_method");
  bool groups = is_text(method, "group_limited_greedy");
  if (method && !groups && !is_text(method, "greedy"))
    unsupported(r, "topk_method", describe(r, method), "'greedy', 'group_limited_greedy'");
  fixed_text(r, "scoring_func", "softmax");
  fixed(r, "norm_topk_prob", false);
  read_expert_groups(r, !groups);
}

/* ---- GLM-4.5 and gpt-oss ---- */

static void read_glm4_moe(reader *r) {
  tsr_hf_config *c = r->c;
  check_architecture(r, "Glm4MoeForCausalLM", "Glm4MoeModel");
  read_common(r);
  c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  c->head_dim = count(r, "head_dim", c->embedding_dim / c->num_heads);
  c->attention_bias = flag(r, "attention_bias", false);
  c->use_qk_norm = flag(r, "use_qk_norm", false);
  read_rope(r, ROPE_PARTIAL);
  read_mtp_layers(r);
  read_deepseek_experts(r, 1, 1);
  c->experts.norm_topk_prob = flag(r, "norm_topk_prob", true);
  read_expert_groups(r, false);
  if (r->ok && !c->experts.num_experts)
    unsupported(
        r, "first_k_dense_replace", tsr_arena_printf(r->arena, "%" PRId64, c->num_blocks),
        "less than num_hidden_layers");
}

/* Every so manyth block has full attention, the others have windows; by default every second. */
static void read_windows(reader *r) {
  const cJSON *list = get(r->root, "layer_types"), *item;
  int64_t blocks = r->c->num_blocks, block = 0, step = list ? blocks + 1 : 2;
  bool regular = !list || cJSON_GetArraySize(list) == blocks;
  cJSON_ArrayForEach(item, list) {
    bool full = is_text(item, "full_attention");
    if (full && step > blocks) step = block + 1;
    regular &= full == (++block % step == 0) && (full || is_text(item, "sliding_attention"));
  }
  if (!regular)
    unsupported(
        r, "layer_types", describe(r, list),
        "'sliding_attention' in all blocks but every n-th, which has 'full_attention'");
  r->c->full_attention_step = step;
  r->c->sliding_window = 0;
  if (!cJSON_IsNull(tsr_json_get(r->root, "sliding_window")))
    r->c->sliding_window = count(r, "sliding_window", 128);
}

/* Without a word about rotary positions they have YaRN's scaling, as in GptOssConfig. */
static void read_gpt_oss_rope(reader *r) {
  read_rope(r, ROPE_YARN);
  if (get(r->root, "rope_parameters") || get(r->root, "rope_scaling")) return;
  r->c->latent = (tsr_hf_latent){.yarn_factor = 32, .beta_fast = 32, .beta_slow = 1};
  r->c->original_context_length = 4096;
}

static void read_gpt_oss(reader *r) {
  tsr_hf_config *c = r->c;
  check_architecture(r, "GptOssForCausalLM", "GptOssModel");
  read_sizes(r);
  c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  c->head_dim = count(r, "head_dim", 64);
  c->attention_bias = flag(r, "attention_bias", true);
  read_windows(r);
  read_gpt_oss_rope(r);
  if (!get(r->root, "rope_theta") && !get(get(r->root, "rope_parameters"), "rope_theta"))
    c->theta = 150000;
  read_experts(r, 0.001);
  c->experts.swiglu_alpha = positive_in(r, r->root, "swiglu_alpha", 1.702);
  c->experts.swiglu_limit = positive_in(r, r->root, "swiglu_limit", 7);
}

static const struct {
  const char *name, *ours;
  void (*read)(reader *r);
} types[] = {
    {"gpt2", "gpt2", read_gpt2},
    {"llama", "llama", read_llama},
    {"mistral", "llama", read_mistral},
    {"qwen3", "qwen3", read_qwen3},
    {"mixtral", "mixtral", read_mixtral},
    {"qwen2_moe", "qwen2_moe", read_qwen2_moe},
    {"qwen3_moe", "qwen3_moe", read_qwen3_moe},
    {"olmoe", "olmoe", read_olmoe},
    {"deepseek_v3", "deepseek_v3", read_deepseek_v3},
    {"deepseek_v2", "deepseek_v2", read_deepseek_v2},
    {"glm4_moe", "glm4_moe", read_glm4_moe},
    {"gpt_oss", "gpt_oss", read_gpt_oss},
};

bool tsr_hf_config_read(
    tsr_arena *arena, const char *path, const char *text, size_t length, tsr_hf_config *ret_config,
    const cJSON **ret_json, tsr_diags *diags) {
  cJSON *root;
  const char *type;
  *ret_config = (tsr_hf_config){0};
  if (!tsr_json_parse(arena, path, text, length, &root, diags)) return false;
  *ret_json = root;
  if (!cJSON_IsObject(root))
    return tsr_diag_error(diags, TSR_NOWHERE, "'%s' should be an object", path);
  if (!tsr_json_text(root, "model_type", path, &type, diags)) return false;
  reader r = {arena, path, root, ret_config, diags, true};
  for (size_t i = 0; i < sizeof types / sizeof *types && !ret_config->model_type; i++)
    if (!strcmp(type, types[i].name)) {
      ret_config->model_type = types[i].ours;
      r.ok = tsr_hf_quantization_read(
          arena, path, get(root, "quantization_config"), &ret_config->quantization, diags);
      types[i].read(&r);
    }
  if (!ret_config->model_type)
    unsupported(
        &r, "model_type", describe(&r, tsr_json_get(root, "model_type")),
        "'gpt2', 'llama', 'mistral', 'qwen3', 'mixtral', 'qwen2_moe', 'qwen3_moe', 'olmoe', "
        "'deepseek_v3', 'deepseek_v2', 'glm4_moe', 'gpt_oss'");
  return r.ok;
}
