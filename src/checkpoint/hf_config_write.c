// SPDX-License-Identifier: Apache-2.0
/* From sizes to our YAML and to config.json. */
#include "checkpoint/hf_config_family.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that are this number again; never those of a whole number, because readers
 * may tell 1 from 1.0. */
static const char *real(char buffer[40], double value) {
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(buffer, 38, "%.*g", digits, value);
    if (strtod(buffer, NULL) == value) break;
  }
  if (!strpbrk(buffer, ".en")) strcat(buffer, ".0");
  return buffer;
}

const tsr_hf_family tsr_hf_families[] = {
    {"gpt2", "GPT2LMHeadModel"},
    {"llama", "LlamaForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"mixtral", "MixtralForCausalLM"},
    {"olmoe", "OlmoeForCausalLM"},
    {"qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
    {"deepseek_v2", "DeepseekV2ForCausalLM"},
    {"deepseek", "DeepseekV3ForCausalLM"},
    {"glm4_moe", "Glm4MoeForCausalLM"},
    {"gpt_oss", "GptOssForCausalLM"}};
const int tsr_hf_families_count = sizeof tsr_hf_families / sizeof *tsr_hf_families;

static bool is_mistral(const tsr_hf_config *c) { return is(c, "llama") && c->sliding_window; }

/* The name that transformers has for it. */
static const char *type_of(const tsr_hf_config *c) {
  return is_mistral(c) ? "mistral" : c->model_type;
}

static const char *class_of(const tsr_hf_config *c) {
  for (int i = 0; i < tsr_hf_families_count; i++)
    if (is(c, tsr_hf_families[i].name) && !is_mistral(c)) return tsr_hf_families[i].class;
  return "MistralForCausalLM";
}

/* Of these classes the weights of a token's experts always have the sum 1. */
static bool has_norm_topk_prob(const tsr_hf_config *c) {
  return !is(c, "mixtral") && !is(c, "gpt_oss");
}

static void add_layers(const tsr_hf_experts *e, tsr_text *text) {
  for (int i = 0; i < e->mlp_only_layers_count; i++)
    tsr_text_add(text, "%s%" PRId64, i ? ", " : "", e->mlp_only_layers[i]);
}

static void add_expert_sizes(const tsr_hf_config *c, tsr_text *text) {
  const tsr_hf_experts *e = &c->experts;
  char buffer[40];
  tsr_text_add(text, "  num_experts: %" PRId64 "\n", e->num_experts);
  tsr_text_add(text, "  num_experts_per_token: %" PRId64 "\n", e->num_experts_per_token);
  if (e->dense_intermediate_dim) {
    tsr_text_add(text, "  dense_intermediate_dim: %" PRId64 "\n", e->dense_intermediate_dim);
    tsr_text_add(text, "  decoder_sparse_step: %" PRId64 "\n", e->decoder_sparse_step);
    tsr_text_add(text, "  mlp_only_layers: [");
    add_layers(e, text);
    tsr_text_add(text, "]\n");
  }
  if (e->shared_intermediate_dim)
    tsr_text_add(text, "  shared_intermediate_dim: %" PRId64 "\n", e->shared_intermediate_dim);
  if (has_norm_topk_prob(c))
    tsr_text_add(text, "  norm_topk_prob: %s\n", e->norm_topk_prob ? "true" : "false");
  tsr_text_add(text, "  router_aux_loss_coef: %s\n", real(buffer, e->router_aux_loss_coef));
  if (e->adds_aux_loss) tsr_text_add(text, "  balance: {loss: forward}\n");
  if (!is(c, "gpt_oss")) return;
  tsr_text_add(text, "  swiglu_alpha: %s\n", real(buffer, e->swiglu_alpha));
  tsr_text_add(text, "  swiglu_limit: %s\n", real(buffer, e->swiglu_limit));
}

static void add_deepseek_expert_sizes(const tsr_hf_experts *e, tsr_text *text) {
  char buffer[40];
  tsr_text_add(text, "  num_experts: %" PRId64 "\n", e->num_experts);
  tsr_text_add(text, "  num_experts_per_token: %" PRId64 "\n", e->num_experts_per_token);
  tsr_text_add(text, "  num_shared_experts: %" PRId64 "\n", e->num_shared_experts);
  tsr_text_add(text, "  first_k_dense_replace: %" PRId64 "\n", e->first_k_dense_replace);
  tsr_text_add(text, "  dense_intermediate_dim: %" PRId64 "\n", e->dense_intermediate_dim);
  tsr_text_add(text, "  num_expert_groups: %" PRId64 "\n", e->num_expert_groups);
  tsr_text_add(text, "  num_kept_groups: %" PRId64 "\n", e->num_kept_groups);
  tsr_text_add(text, "  norm_topk_prob: %s\n", e->norm_topk_prob ? "true" : "false");
  tsr_text_add(text, "  routed_scaling_factor: %s\n", real(buffer, e->routed_scaling_factor));
}

static void add_latent_sizes(const tsr_hf_latent *l, tsr_text *text) {
  tsr_text_add(text, "  q_lora_rank: %" PRId64 "\n", l->q_lora_rank);
  tsr_text_add(text, "  kv_lora_rank: %" PRId64 "\n", l->kv_lora_rank);
  tsr_text_add(text, "  qk_nope_head_dim: %" PRId64 "\n", l->qk_nope_head_dim);
  tsr_text_add(text, "  qk_rope_head_dim: %" PRId64 "\n", l->qk_rope_head_dim);
  tsr_text_add(text, "  v_head_dim: %" PRId64 "\n", l->v_head_dim);
  if (!l->rope_interleave) tsr_text_add(text, "  rope_interleave: false\n");
}

static void add_yarn_sizes(const tsr_hf_config *c, tsr_text *text) {
  const tsr_hf_latent *l = &c->latent;
  char buffer[40];
  tsr_text_add(text, "  rope_scaling:\n    yarn_factor: %s\n", real(buffer, l->yarn_factor));
  tsr_text_add(text, "    beta_fast: %s\n", real(buffer, l->beta_fast));
  tsr_text_add(text, "    beta_slow: %s\n", real(buffer, l->beta_slow));
  tsr_text_add(text, "    original_context_length: %" PRId64 "\n", c->original_context_length);
  tsr_text_add(text, "    mscale: %s\n", real(buffer, l->mscale));
  tsr_text_add(text, "    mscale_all_dim: %s\n", real(buffer, l->mscale_all_dim));
  if (l->attention_factor > 0)
    tsr_text_add(text, "    attention_factor: %s\n", real(buffer, l->attention_factor));
  if (!l->truncate) tsr_text_add(text, "    truncate: false\n");
}

void tsr_hf_config_yaml(const tsr_hf_config *c, tsr_text *text) {
  char buffer[40];
  tsr_text_add(text, "transformer_config:\n  model_type: %s\n", c->model_type);
  tsr_text_add(text, "  vocab_size: %" PRId64 "\n", c->vocab_size);
  if (!is_gpt2(c) && c->pad_token >= 0)
    tsr_text_add(text, "  pad_token: %" PRId64 "\n", c->pad_token);
  tsr_text_add(text, "  embedding_dim: %" PRId64 "\n", c->embedding_dim);
  tsr_text_add(text, "  intermediate_dim: %" PRId64 "\n", c->intermediate_dim);
  tsr_text_add(text, "  num_blocks: %" PRId64 "\n", c->num_blocks);
  tsr_text_add(text, "  num_heads: %" PRId64 "\n", c->num_heads);
  if (!is_gpt2(c) && !is_latent(c))
    tsr_text_add(text, "  num_groups: %" PRId64 "\n", c->num_groups);
  if (has_deepseek_experts(c)) add_deepseek_expert_sizes(&c->experts, text);
  else if (c->experts.num_experts) add_expert_sizes(c, text);
  if (is_latent(c)) add_latent_sizes(&c->latent, text);
  else tsr_text_add(text, "  head_dim: %" PRId64 "\n", c->head_dim);
  tsr_text_add(text, "  max_sequence_length: %" PRId64 "\n", c->max_sequence_length);
  tsr_text_add(text, "  dropout_prob: %s\n", real(buffer, c->dropout_prob));
  tsr_text_add(text, "  norm_eps: %s\n", real(buffer, c->norm_eps));
  if (!is_gpt2(c)) tsr_text_add(text, "  theta: %s\n", real(buffer, c->theta));
  if (c->scaling_factor > 0) {
    tsr_text_add(
        text, "  rope_scaling:\n    scaling_factor: %s\n", real(buffer, c->scaling_factor));
    tsr_text_add(text, "    low_freq_factor: %s\n", real(buffer, c->low_freq_factor));
    tsr_text_add(text, "    high_freq_factor: %s\n", real(buffer, c->high_freq_factor));
    tsr_text_add(text, "    original_context_length: %" PRId64 "\n", c->original_context_length);
  }
  if (c->latent.yarn_factor > 0) add_yarn_sizes(c, text);
  if (is(c, "glm4_moe")) {
    tsr_text_add(text, "  partial_rotary_factor: %s\n", real(buffer, c->partial_rotary_factor));
    tsr_text_add(text, "  use_qk_norm: %s\n", c->use_qk_norm ? "true" : "false");
  }
  bool windows = is(c, "gpt_oss");
  if (c->sliding_window || windows)
    tsr_text_add(text, "  sliding_window: %" PRId64 "\n", c->sliding_window);
  if (windows) tsr_text_add(text, "  full_attention_step: %" PRId64 "\n", c->full_attention_step);
  if (c->attention_bias) tsr_text_add(text, "  attention_bias: true\n");
  else if (is(c, "qwen2_moe") || windows) tsr_text_add(text, "  attention_bias: false\n");
  if (c->mlp_bias) tsr_text_add(text, "  mlp_bias: true\n");
  tsr_text_add(text, "  weight_tying: %s\n", c->tied ? "enabled" : "disabled");
}

/* ---- config.json ---- */

static void add_id(const cJSON *ids, const char *key, tsr_text *text) {
  const cJSON *item = tsr_json_get(ids, key), *one;
  tsr_text_add(text, ",\n  \"%s\": ", key);
  if (cJSON_IsNumber(item)) tsr_text_add(text, "%.0f", item->valuedouble);
  else if (cJSON_IsArray(item)) {
    const char *comma = "";
    tsr_text_add(text, "[");
    cJSON_ArrayForEach(one, item) {
      if (cJSON_IsNumber(one)) tsr_text_add(text, "%s%.0f", comma, one->valuedouble);
      comma = ", ";
    }
    tsr_text_add(text, "]");
  } else tsr_text_add(text, "null");
}

static void add_gpt2(const tsr_hf_config *c, tsr_text *text) {
  char buffer[40];
  tsr_text_add(text, ",\n  \"n_embd\": %" PRId64, c->embedding_dim);
  tsr_text_add(text, ",\n  \"n_layer\": %" PRId64, c->num_blocks);
  tsr_text_add(text, ",\n  \"n_head\": %" PRId64, c->num_heads);
  tsr_text_add(text, ",\n  \"n_positions\": %" PRId64, c->max_sequence_length);
  tsr_text_add(text, ",\n  \"n_inner\": %" PRId64, c->intermediate_dim);
  tsr_text_add(text, ",\n  \"layer_norm_epsilon\": %s", real(buffer, c->norm_eps));
  tsr_text_add(text, ",\n  \"activation_function\": \"gelu_new\"");
  real(buffer, c->dropout_prob);
  tsr_text_add(
      text, ",\n  \"resid_pdrop\": %s,\n  \"embd_pdrop\": %s,\n  \"attn_pdrop\": %s", buffer,
      buffer, buffer);
}

static void add_yarn(const tsr_hf_config *c, tsr_text *text) {
  const tsr_hf_latent *l = &c->latent;
  char buffer[40];
  tsr_text_add(text, ",\n  \"rope_scaling\": {\n    \"rope_type\": \"yarn\"");
  tsr_text_add(text, ",\n    \"factor\": %s", real(buffer, l->yarn_factor));
  tsr_text_add(text, ",\n    \"beta_fast\": %s", real(buffer, l->beta_fast));
  tsr_text_add(text, ",\n    \"beta_slow\": %s", real(buffer, l->beta_slow));
  tsr_text_add(text, ",\n    \"mscale\": %s", real(buffer, l->mscale));
  tsr_text_add(text, ",\n    \"mscale_all_dim\": %s", real(buffer, l->mscale_all_dim));
  if (l->attention_factor > 0)
    tsr_text_add(text, ",\n    \"attention_factor\": %s", real(buffer, l->attention_factor));
  if (!l->truncate) tsr_text_add(text, ",\n    \"truncate\": false");
  tsr_text_add(
      text, ",\n    \"original_max_position_embeddings\": %" PRId64 "\n  }",
      c->original_context_length);
}

static void add_experts(const tsr_hf_config *c, tsr_text *text) {
  const tsr_hf_experts *e = &c->experts;
  char buffer[40];
  const char *key = has_norm_topk_prob(c) ? "num_experts" : "num_local_experts";
  tsr_text_add(text, ",\n  \"%s\": %" PRId64, key, e->num_experts);
  tsr_text_add(text, ",\n  \"num_experts_per_tok\": %" PRId64, e->num_experts_per_token);
  if (e->dense_intermediate_dim) {
    tsr_text_add(text, ",\n  \"moe_intermediate_size\": %" PRId64, c->intermediate_dim);
    tsr_text_add(text, ",\n  \"decoder_sparse_step\": %" PRId64, e->decoder_sparse_step);
    tsr_text_add(text, ",\n  \"mlp_only_layers\": [");
    add_layers(e, text);
    tsr_text_add(text, "],\n  \"use_sliding_window\": false");
  }
  if (e->shared_intermediate_dim)
    tsr_text_add(
        text, ",\n  \"shared_expert_intermediate_size\": %" PRId64, e->shared_intermediate_dim);
  if (has_norm_topk_prob(c))
    tsr_text_add(text, ",\n  \"norm_topk_prob\": %s", e->norm_topk_prob ? "true" : "false");
  tsr_text_add(text, ",\n  \"output_router_logits\": %s", e->adds_aux_loss ? "true" : "false");
  tsr_text_add(text, ",\n  \"router_aux_loss_coef\": %s", real(buffer, e->router_aux_loss_coef));
  if (!is(c, "gpt_oss")) return;
  tsr_text_add(text, ",\n  \"swiglu_alpha\": %s", real(buffer, e->swiglu_alpha));
  tsr_text_add(text, ",\n  \"swiglu_limit\": %s", real(buffer, e->swiglu_limit));
}

/* gpt-oss's, whose class has windows in every second block by default, and needs one even where no
 * block has it. */
static void add_windows(const tsr_hf_config *c, tsr_text *text) {
  int64_t window = c->sliding_window ? c->sliding_window : 128;
  tsr_text_add(text, ",\n  \"sliding_window\": %" PRId64 ",\n  \"layer_types\": [", window);
  for (int64_t block = 0; block < c->num_blocks; block++) {
    bool full = !c->sliding_window || (block + 1) % c->full_attention_step == 0;
    tsr_text_add(
        text, "%s\"%s\"", block ? ", " : "", full ? "full_attention" : "sliding_attention");
  }
  tsr_text_add(text, "],\n  \"attention_bias\": %s", c->attention_bias ? "true" : "false");
}

/* The class's name for biases, and a window where it may have one. */
static void add_attention(const tsr_hf_config *c, tsr_text *text) {
  if (is(c, "gpt_oss")) return add_windows(c, text);
  const char *key = is(c, "qwen2_moe") ? "qkv_bias" : "attention_bias";
  if (c->sliding_window) tsr_text_add(text, ",\n  \"sliding_window\": %" PRId64, c->sliding_window);
  else if (is(c, "mixtral")) tsr_text_add(text, ",\n  \"sliding_window\": null");
  else tsr_text_add(text, ",\n  \"%s\": %s", key, c->attention_bias ? "true" : "false");
}

static void add_deepseek_experts(const tsr_hf_config *c, tsr_text *text) {
  const tsr_hf_experts *e = &c->experts;
  bool v2 = is(c, "deepseek_v2");
  char buffer[40];
  tsr_text_add(text, ",\n  \"moe_intermediate_size\": %" PRId64, c->intermediate_dim);
  tsr_text_add(text, ",\n  \"n_routed_experts\": %" PRId64, e->num_experts);
  tsr_text_add(text, ",\n  \"num_experts_per_tok\": %" PRId64, e->num_experts_per_token);
  tsr_text_add(text, ",\n  \"n_shared_experts\": %" PRId64, e->num_shared_experts);
  tsr_text_add(text, ",\n  \"n_group\": %" PRId64, e->num_expert_groups);
  tsr_text_add(text, ",\n  \"topk_group\": %" PRId64, e->num_kept_groups);
  tsr_text_add(text, ",\n  \"norm_topk_prob\": %s", e->norm_topk_prob ? "true" : "false");
  tsr_text_add(text, ",\n  \"routed_scaling_factor\": %s", real(buffer, e->routed_scaling_factor));
  if (!is_latent(c)) return;
  tsr_text_add(
      text, ",\n  \"topk_method\": \"%s\"",
      !v2                        ? "noaux_tc"
      : e->num_expert_groups > 1 ? "group_limited_greedy"
                                 : "greedy");
  tsr_text_add(text, ",\n  \"scoring_func\": \"%s\"", v2 ? "softmax" : "sigmoid");
}

static void add_glm4_moe(const tsr_hf_config *c, tsr_text *text) {
  char buffer[40];
  tsr_text_add(text, ",\n  \"first_k_dense_replace\": %" PRId64, c->experts.first_k_dense_replace);
  tsr_text_add(text, ",\n  \"partial_rotary_factor\": %s", real(buffer, c->partial_rotary_factor));
  tsr_text_add(text, ",\n  \"use_qk_norm\": %s", c->use_qk_norm ? "true" : "false");
  tsr_text_add(text, ",\n  \"num_nextn_predict_layers\": 0");
}

static void add_latent(const tsr_hf_config *c, tsr_text *text) {
  const tsr_hf_latent *l = &c->latent;
  if (l->q_lora_rank) tsr_text_add(text, ",\n  \"q_lora_rank\": %" PRId64, l->q_lora_rank);
  else tsr_text_add(text, ",\n  \"q_lora_rank\": null");
  tsr_text_add(text, ",\n  \"kv_lora_rank\": %" PRId64, l->kv_lora_rank);
  tsr_text_add(text, ",\n  \"qk_nope_head_dim\": %" PRId64, l->qk_nope_head_dim);
  tsr_text_add(text, ",\n  \"qk_rope_head_dim\": %" PRId64, l->qk_rope_head_dim);
  tsr_text_add(text, ",\n  \"v_head_dim\": %" PRId64, l->v_head_dim);
  int64_t dense = c->experts.num_experts ? c->experts.first_k_dense_replace : c->num_blocks;
  tsr_text_add(text, ",\n  \"first_k_dense_replace\": %" PRId64, dense);
  if (is(c, "deepseek_v2")) return;
  tsr_text_add(text, ",\n  \"rope_interleave\": %s", l->rope_interleave ? "true" : "false");
  tsr_text_add(text, ",\n  \"num_nextn_predict_layers\": 0");
}

static void add_scaling(const tsr_hf_config *c, tsr_text *text) {
  char buffer[40];
  if (c->latent.yarn_factor > 0) {
    add_yarn(c, text);
    return;
  }
  if (c->scaling_factor == 0) { /* null is YaRN's scaling for gpt-oss's class */
    const char *none = is(c, "gpt_oss") ? "{\"rope_type\": \"default\"}" : "null";
    tsr_text_add(text, ",\n  \"rope_scaling\": %s", none);
    return;
  }
  tsr_text_add(text, ",\n  \"rope_scaling\": {\n    \"rope_type\": \"llama3\"");
  tsr_text_add(text, ",\n    \"factor\": %s", real(buffer, c->scaling_factor));
  tsr_text_add(text, ",\n    \"low_freq_factor\": %s", real(buffer, c->low_freq_factor));
  tsr_text_add(text, ",\n    \"high_freq_factor\": %s", real(buffer, c->high_freq_factor));
  tsr_text_add(
      text, ",\n    \"original_max_position_embeddings\": %" PRId64 "\n  }",
      c->original_context_length);
}

static void add_llama(const tsr_hf_config *c, tsr_text *text) {
  char buffer[40];
  tsr_text_add(text, ",\n  \"hidden_size\": %" PRId64, c->embedding_dim);
  int64_t dense = c->experts.num_experts ? c->experts.dense_intermediate_dim : 0;
  tsr_text_add(text, ",\n  \"intermediate_size\": %" PRId64, dense ? dense : c->intermediate_dim);
  tsr_text_add(text, ",\n  \"num_hidden_layers\": %" PRId64, c->num_blocks);
  tsr_text_add(text, ",\n  \"num_attention_heads\": %" PRId64, c->num_heads);
  tsr_text_add(text, ",\n  \"num_key_value_heads\": %" PRId64, c->num_groups);
  if (has_deepseek_experts(c)) add_deepseek_experts(c, text);
  else if (c->experts.num_experts) add_experts(c, text);
  if (is(c, "glm4_moe")) add_glm4_moe(c, text);
  if (is_latent(c)) add_latent(c, text);
  else if (!is(c, "olmoe")) tsr_text_add(text, ",\n  \"head_dim\": %" PRId64, c->head_dim);
  tsr_text_add(text, ",\n  \"max_position_embeddings\": %" PRId64, c->max_sequence_length);
  tsr_text_add(text, ",\n  \"rms_norm_eps\": %s", real(buffer, c->norm_eps));
  tsr_text_add(text, ",\n  \"hidden_act\": \"silu\"");
  tsr_text_add(text, ",\n  \"attention_dropout\": %s", real(buffer, c->dropout_prob));
  add_attention(c, text);
  if (!strcmp(type_of(c), "llama"))
    tsr_text_add(text, ",\n  \"mlp_bias\": %s", c->mlp_bias ? "true" : "false");
  tsr_text_add(text, ",\n  \"rope_theta\": %s", real(buffer, c->theta));
  add_scaling(c, text);
}

void tsr_hf_config_json(
    const tsr_hf_config *c, const char *dtype, const cJSON *ids, tsr_text *text) {
  tsr_text_add(text, "{\n  \"architectures\": [\"%s\"]", class_of(c));
  tsr_text_add(text, ",\n  \"model_type\": \"%s\"", type_of(c));
  tsr_text_add(text, ",\n  \"torch_dtype\": \"%s\"", dtype);
  tsr_text_add(text, ",\n  \"vocab_size\": %" PRId64, c->vocab_size);
  if (is_gpt2(c)) add_gpt2(c, text);
  else add_llama(c, text);
  tsr_text_add(text, ",\n  \"tie_word_embeddings\": %s", c->tied ? "true" : "false");
  add_id(ids, "bos_token_id", text);
  add_id(ids, "eos_token_id", text);
  if (is_gpt2(c)) add_id(ids, "pad_token_id", text); /* of no meaning to its embedding */
  else if (c->pad_token >= 0) tsr_text_add(text, ",\n  \"pad_token_id\": %" PRId64, c->pad_token);
  else tsr_text_add(text, ",\n  \"pad_token_id\": null");
  tsr_text_add(text, "\n}\n");
}
