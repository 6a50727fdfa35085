// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_config_parts.h"

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
  tsr_hf_read_architecture(r, "GPT2LMHeadModel", "GPT2Model");
  c->vocab_size = count(r, "vocab_size", -1);
  c->embedding_dim = count(r, "n_embd", -1);
  c->num_blocks = count(r, "n_layer", -1);
  c->num_heads = count(r, "n_head", -1);
  c->max_sequence_length = count(r, "n_positions", -1);
  c->intermediate_dim = count_or_null(r, "n_inner", 4 * c->embedding_dim, 4 * c->embedding_dim);
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

static void read_llama(reader *r) {
  tsr_hf_read_architecture(r, "LlamaForCausalLM", "LlamaModel");
  tsr_hf_read_common(r, 0);
  int64_t even = r->c->embedding_dim / r->c->num_heads;
  r->c->head_dim = count_or_null(r, "head_dim", even, even);
  r->c->attention_bias = flag(r, "attention_bias", false);
  r->c->mlp_bias = flag(r, "mlp_bias", false);
  tsr_hf_read_rope(r, ROPE_LLAMA3, 10000);
}

static void read_mistral(reader *r) {
  tsr_hf_read_architecture(r, "MistralForCausalLM", "MistralModel");
  tsr_hf_read_common(r, 8);
  int64_t even = r->c->embedding_dim / r->c->num_heads;
  r->c->head_dim = count_or_null(r, "head_dim", even, even);
  tsr_hf_read_rope(r, ROPE_LLAMA3, 10000);
  /* a file without the key has 4096, one with null has no window */
  r->c->sliding_window = count_or_null(r, "sliding_window", 4096, 0);
  bool full = cJSON_GetArraySize(get(r->root, "layer_types")) > 0; /* all of them, as was checked */
  if (full) r->c->sliding_window = 0;
}

static void read_qwen3(reader *r) {
  tsr_hf_read_architecture(r, "Qwen3ForCausalLM", "Qwen3Model");
  tsr_hf_read_common(r, 32);
  r->c->head_dim = count(r, "head_dim", 128);
  r->c->attention_bias = flag(r, "attention_bias", false);
  fixed(r, "use_sliding_window", false);
  tsr_hf_read_rope(r, ROPE_PLAIN, 10000);
}

/* ---- all ---- */

/* What transformers reads of every class. */
static void read_switches(reader *r) {
  const cJSON *file = get(r->root, "transformers_weights");
  const cJSON *layers = get(r->root, "per_layer_config");
  fixed(r, "is_causal", true);
  if (file && !is_text(file, "model.safetensors"))
    unsupported(r, "transformers_weights", describe(r, file), "'model.safetensors'");
  if (layers && (!cJSON_IsObject(layers) || layers->child))
    unsupported(r, "per_layer_config", describe(r, layers), "null");
}

/* nn.Embedding's padding_idx. */
static void read_pad_token(reader *r, int64_t missing) {
  const cJSON *item = tsr_json_get(r->root, "pad_token_id");
  int64_t token = item ? -1 : missing, vocab = r->c->vocab_size;
  if (item && !cJSON_IsNull(item))
    r->ok &= tsr_json_int(r->root, "pad_token_id", r->path, &token, r->diags);
  bool given = item ? !cJSON_IsNull(item) : missing >= 0;
  if (given && token < 0) token += vocab; /* as nn.Embedding counts */
  if (r->ok && given && (token < 0 || token >= vocab))
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': pad_token_id %" PRId64 " is none of the %" PRId64 " tokens",
        r->path, token < 0 ? token - vocab : token, vocab);
  r->c->pad_token = given ? token : -1;
}

static const struct {
  const char *name, *ours;
  void (*read)(reader *r);
  int64_t pad_token; /* where pad_token_id is missing; -1: none */
} types[] = {
    {"gpt2", "gpt2", read_gpt2, -1},
    {"llama", "llama", read_llama, -1},
    {"mistral", "llama", read_mistral, -1},
    {"qwen3", "qwen3", read_qwen3, -1},
    {"mixtral", "mixtral", tsr_hf_read_mixtral, -1},
    {"qwen2_moe", "qwen2_moe", tsr_hf_read_qwen2_moe, -1},
    {"qwen3_moe", "qwen3_moe", tsr_hf_read_qwen3_moe, -1},
    {"olmoe", "olmoe", tsr_hf_read_olmoe, 1},
    {"deepseek_v3", "deepseek_v3", tsr_hf_read_deepseek_v3, -1},
    {"deepseek_v2", "deepseek_v2", tsr_hf_read_deepseek_v2, -1},
    {"glm4_moe", "glm4_moe", tsr_hf_read_glm4_moe, -1},
    {"gpt_oss", "gpt_oss", tsr_hf_read_gpt_oss, -1},
};

bool tsr_hf_config_read(
    tsr_arena *arena, const char *path, const char *text, size_t length, tsr_hf_config *ret_config,
    const cJSON **ret_json, tsr_diags *diags) {
  cJSON *root;
  const char *type;
  *ret_config = (tsr_hf_config){.pad_token = -1};
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
      read_switches(&r);
      if (types[i].read != read_gpt2) read_pad_token(&r, types[i].pad_token);
    }
  if (!ret_config->model_type)
    unsupported(
        &r, "model_type", describe(&r, tsr_json_get(root, "model_type")),
        "'gpt2', 'llama', 'mistral', 'qwen3', 'mixtral', 'qwen2_moe', 'qwen3_moe', 'olmoe', "
        "'deepseek_v3', 'deepseek_v2', 'glm4_moe', 'gpt_oss'");
  return r.ok;
}
