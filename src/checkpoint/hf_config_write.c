// SPDX-License-Identifier: Apache-2.0
/* From sizes to our YAML and to config.json, and out of our configuration. */
#include "checkpoint/hf_config.h"
#include "base/file_read.h"
#include "model/build.h"
#include <inttypes.h>
#include <math.h>
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

/* Our graph files that transformers has classes for. A llama with a window is another one. */
static const struct {
  const char *name, *class;
} families[] = {
    {"gpt2", "GPT2LMHeadModel"},
    {"llama", "LlamaForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"mixtral", "MixtralForCausalLM"},
    {"olmoe", "OlmoeForCausalLM"},
    {"qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
    {"deepseek_v2", "DeepseekV2ForCausalLM"}};
enum { FAMILIES = sizeof families / sizeof *families };

static bool is(const tsr_hf_config *c, const char *type) { return !strcmp(c->model_type, type); }

static bool is_gpt2(const tsr_hf_config *c) { return is(c, "gpt2"); }

static bool is_latent(const tsr_hf_config *c) {
  return is(c, "deepseek_v3") || is(c, "deepseek_v2");
}

static bool is_mistral(const tsr_hf_config *c) { return is(c, "llama") && c->sliding_window; }

/* The name that transformers has for it. */
static const char *type_of(const tsr_hf_config *c) {
  return is_mistral(c) ? "mistral" : c->model_type;
}

static const char *class_of(const tsr_hf_config *c) {
  for (int i = 0; i < FAMILIES; i++)
    if (is(c, families[i].name) && !is_mistral(c)) return families[i].class;
  return "MistralForCausalLM";
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
  if (!is(c, "mixtral"))
    tsr_text_add(text, "  norm_topk_prob: %s\n", e->norm_topk_prob ? "true" : "false");
  tsr_text_add(text, "  router_aux_loss_coef: %s\n", real(buffer, e->router_aux_loss_coef));
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
  tsr_text_add(text, "  embedding_dim: %" PRId64 "\n", c->embedding_dim);
  tsr_text_add(text, "  intermediate_dim: %" PRId64 "\n", c->intermediate_dim);
  tsr_text_add(text, "  num_blocks: %" PRId64 "\n", c->num_blocks);
  tsr_text_add(text, "  num_heads: %" PRId64 "\n", c->num_heads);
  if (!is_gpt2(c) && !is_latent(c))
    tsr_text_add(text, "  num_groups: %" PRId64 "\n", c->num_groups);
  if (c->experts.num_experts && is_latent(c)) add_deepseek_expert_sizes(&c->experts, text);
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
  if (c->sliding_window) tsr_text_add(text, "  sliding_window: %" PRId64 "\n", c->sliding_window);
  if (c->attention_bias) tsr_text_add(text, "  attention_bias: true\n");
  else if (is(c, "qwen2_moe")) tsr_text_add(text, "  attention_bias: false\n");
  if (c->mlp_bias) tsr_text_add(text, "  mlp_bias: true\n");
  tsr_text_add(text, "  weight_tying: %s\n", c->tied ? "enabled" : "disabled");
}

/* ---- out of a configuration of ours ---- */

static double size_number(const tsr_scope *scope, const char *name) {
  const tsr_name *n = tsr_scope_find(scope, name);
  return n && n->value.kind == TSR_EVAL_NUMBER ? n->value.number : 0;
}

static void take_sizes(const tsr_scope *scope, tsr_hf_config *c) {
  const tsr_name *tying = tsr_scope_find(scope, "weight_tying");
  c->vocab_size = tsr_sizes_get(scope, "vocab_size");
  c->embedding_dim = tsr_sizes_get(scope, "embedding_dim");
  c->intermediate_dim = tsr_sizes_get(scope, "intermediate_dim");
  c->num_blocks = tsr_sizes_get(scope, "num_blocks");
  c->num_heads = tsr_sizes_get(scope, "num_heads");
  c->num_groups = tsr_sizes_get(scope, "num_groups");
  c->head_dim = tsr_sizes_get(scope, "head_dim");
  c->max_sequence_length = tsr_sizes_get(scope, "max_sequence_length");
  c->norm_eps = size_number(scope, "norm_eps");
  c->dropout_prob = size_number(scope, "dropout_prob");
  c->theta = size_number(scope, "theta");
  c->sliding_window = (int64_t)size_number(scope, "sliding_window");
  c->attention_bias = size_number(scope, "attention_bias") != 0;
  c->mlp_bias = size_number(scope, "mlp_bias") != 0;
  c->original_context_length = tsr_sizes_get(scope, "rope_scaling.original_context_length");
  c->low_freq_factor = size_number(scope, "rope_scaling.low_freq_factor");
  c->high_freq_factor = size_number(scope, "rope_scaling.high_freq_factor");
  c->scaling_factor = size_number(scope, "rope_scaling.scaling_factor");
  if (c->original_context_length == 0) c->scaling_factor = 0; /* as the graph has it */
  c->tied = tying && tying->value.kind == TSR_EVAL_WORD && !strcmp(tying->value.word, "enabled");
}

static void take_latent(const tsr_scope *scope, tsr_hf_latent *l) {
  l->q_lora_rank = tsr_sizes_get(scope, "q_lora_rank");
  l->kv_lora_rank = tsr_sizes_get(scope, "kv_lora_rank");
  l->qk_nope_head_dim = tsr_sizes_get(scope, "qk_nope_head_dim");
  l->qk_rope_head_dim = tsr_sizes_get(scope, "qk_rope_head_dim");
  l->v_head_dim = tsr_sizes_get(scope, "v_head_dim");
  l->rope_interleave = size_number(scope, "rope_interleave") != 0;
  l->yarn_factor = size_number(scope, "rope_scaling.yarn_factor");
  l->beta_fast = size_number(scope, "rope_scaling.beta_fast");
  l->beta_slow = size_number(scope, "rope_scaling.beta_slow");
  l->mscale = size_number(scope, "rope_scaling.mscale");
  l->mscale_all_dim = size_number(scope, "rope_scaling.mscale_all_dim");
  l->attention_factor = size_number(scope, "rope_scaling.attention_factor");
  l->truncate = size_number(scope, "rope_scaling.truncate") != 0;
}

static void take_experts(const tsr_scope *scope, tsr_hf_experts *e) {
  const tsr_name *layers = tsr_scope_find(scope, "mlp_only_layers");
  e->num_experts = tsr_sizes_get(scope, "num_experts");
  e->num_experts_per_token = tsr_sizes_get(scope, "num_experts_per_token");
  e->dense_intermediate_dim = tsr_sizes_get(scope, "dense_intermediate_dim");
  e->shared_intermediate_dim = tsr_sizes_get(scope, "shared_intermediate_dim");
  e->decoder_sparse_step = tsr_sizes_get(scope, "decoder_sparse_step");
  e->norm_topk_prob = size_number(scope, "norm_topk_prob") != 0;
  e->router_aux_loss_coef = size_number(scope, "router_aux_loss_coef");
  e->num_shared_experts = tsr_sizes_get(scope, "num_shared_experts");
  e->first_k_dense_replace = tsr_sizes_get(scope, "first_k_dense_replace");
  e->num_expert_groups = tsr_sizes_get(scope, "num_expert_groups");
  e->num_kept_groups = tsr_sizes_get(scope, "num_kept_groups");
  e->routed_scaling_factor = size_number(scope, "routed_scaling_factor");
  if (!layers || layers->value.kind != TSR_EVAL_LIST) return;
  int64_t *list = tsr_arena_array(scope->arena, int64_t, layers->value.count + 1);
  for (int i = 0; i < layers->value.count; i++) list[i] = (int64_t)layers->value.list[i];
  e->mlp_only_layers = list;
  e->mlp_only_layers_count = layers->value.count;
}

static bool check_class(const tsr_config_model *m, tsr_hf_config *c, tsr_diags *diags) {
  for (int i = 0; i < FAMILIES; i++)
    if (m->map && !m->graph_file && m->model_type && !strcmp(m->model_type, families[i].name))
      c->model_type = families[i].name;
  if (c->model_type) return true;
  tsr_diag_error(
      diags, m->location, "transformers has no class for %s",
      m->graph_file   ? "a graph file of one's own"
      : m->model_type ? m->model_type
                      : "this model");
  tsr_diag_hint(
      diags, "gpt2, llama, qwen3, mixtral, olmoe, qwen2_moe, qwen3_moe, deepseek_v2 and "
             "deepseek_v3 can be exported");
  return false;
}

/* A DeepSeek is the class that scores experts as it does; what that class has no size for must be
 * what it computes. */
static bool
take_deepseek(const tsr_scope *scope, tsr_location location, tsr_hf_config *c, tsr_diags *diags) {
  const tsr_hf_experts *e = &c->experts;
  const tsr_name *score = tsr_scope_find(scope, "score_func");
  bool v2 = score && score->value.kind == TSR_EVAL_WORD && !strcmp(score->value.word, "softmax");
  const char *class = v2 ? "DeepSeek V2" : "DeepSeek V3", *wrong = NULL;
  c->model_type = v2 ? "deepseek_v2" : "deepseek_v3";
  c->num_groups = c->num_heads;
  int64_t top = tsr_sizes_get(scope, "group_top");
  if (size_number(scope, "latent_norm_eps") != 1e-6) wrong = "latent_norm_eps other than 1e-6";
  else if (v2 && !c->latent.rope_interleave) wrong = "rope_interleave: false";
  else if (!e->num_experts) wrong = NULL;
  else if (!e->num_shared_experts) wrong = "num_shared_experts: 0";
  else if (e->num_expert_groups > 1 && top != (v2 ? 1 : 2)) wrong = "this group_top";
  else if (v2 && e->norm_topk_prob) wrong = "norm_topk_prob: true";
  else if (v2 && size_number(scope, "balance.bias.rate") > 0) wrong = "a bias of the choice";
  return !wrong || tsr_diag_error(diags, location, "transformers has no %s with %s", class, wrong);
}

bool tsr_hf_config_of(
    tsr_arena *arena, const tsr_config *config, int64_t vocab_stored, const char *graphs_folder,
    tsr_hf_config *ret, tsr_diags *diags) {
  const tsr_config_model *m = &config->model;
  *ret = (tsr_hf_config){0};
  if (!check_class(m, ret, diags)) return false;
  tsr_model_source source = {m->model_type, m->map, m->map_name, m->location, NULL};
  tsr_model_options options = {
      .batch = 1, .sequence = 1, .vocab_detected = vocab_stored, .units = {1, 1, 1}};
  const char *file_name = tsr_arena_printf(arena, "%s.yaml", ret->model_type);
  const char *path = tsr_path_join(arena, graphs_folder, file_name);
  tsr_yaml *root;
  tsr_graph_file *file;
  tsr_scope scope = {.arena = arena};
  if (!tsr_graph_file_load(arena, path, m->location, &root, diags) ||
      !tsr_graph_file_read(arena, root, &file, diags) ||
      !tsr_sizes_read(&scope, file, &source, &options, diags))
    return false;
  take_sizes(&scope, ret);
  take_latent(&scope, &ret->latent);
  take_experts(&scope, &ret->experts);
  if (is_latent(ret) && !take_deepseek(&scope, m->location, ret, diags)) return false;
  if (ret->sliding_window && (ret->attention_bias || ret->mlp_bias))
    return tsr_diag_error(
        diags, m->location, "transformers has no class for a sliding_window with biases");
  if (is(ret, "olmoe") && ret->head_dim * ret->num_heads != ret->embedding_dim)
    return tsr_diag_error(
        diags, m->location,
        "transformers has no olmoe whose head_dim is not embedding_dim / "
        "num_heads");
  if (!is_gpt2(ret) || tsr_sizes_get(&scope, "bias")) return true;
  return tsr_diag_error(
      diags, m->location, "transformers has no gpt2 without biases, as 'bias: false' asks for");
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
  const char *key = is(c, "mixtral") ? "num_local_experts" : "num_experts";
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
  if (!is(c, "mixtral"))
    tsr_text_add(text, ",\n  \"norm_topk_prob\": %s", e->norm_topk_prob ? "true" : "false");
  tsr_text_add(text, ",\n  \"router_aux_loss_coef\": %s", real(buffer, e->router_aux_loss_coef));
}

/* The class's name for biases, and a window where it may have one. */
static void add_attention(const tsr_hf_config *c, tsr_text *text) {
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
  tsr_text_add(
      text, ",\n  \"topk_method\": \"%s\"",
      !v2                        ? "noaux_tc"
      : e->num_expert_groups > 1 ? "group_limited_greedy"
                                 : "greedy");
  tsr_text_add(text, ",\n  \"scoring_func\": \"%s\"", v2 ? "softmax" : "sigmoid");
  tsr_text_add(text, ",\n  \"norm_topk_prob\": %s", e->norm_topk_prob ? "true" : "false");
  tsr_text_add(text, ",\n  \"routed_scaling_factor\": %s", real(buffer, e->routed_scaling_factor));
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
  if (c->scaling_factor == 0) {
    tsr_text_add(text, ",\n  \"rope_scaling\": null");
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
  if (c->experts.num_experts && is_latent(c)) add_deepseek_experts(c, text);
  else if (c->experts.num_experts) add_experts(c, text);
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
  add_id(ids, "pad_token_id", text);
  tsr_text_add(text, "\n}\n");
}
