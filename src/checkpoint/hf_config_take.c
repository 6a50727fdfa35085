// SPDX-License-Identifier: Apache-2.0
#include "base/file_read.h"
#include "checkpoint/hf_config_family.h"
#include "model/build.h"

static double size_number(const tsr_scope *scope, const char *name) {
  const tsr_name *n = tsr_scope_find(scope, name);
  return n && n->value.kind == TSR_EVAL_NUMBER ? n->value.number : 0;
}

static void take_sizes(const tsr_scope *scope, tsr_hf_config *c) {
  const tsr_name *tying = tsr_scope_find(scope, "weight_tying");
  c->vocab_size = tsr_sizes_get(scope, "vocab_size");
  const tsr_name *pad = tsr_scope_find(scope, "pad_token");
  c->pad_token = pad ? (int64_t)size_number(scope, "pad_token") : -1;
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
  c->full_attention_step = tsr_sizes_get(scope, "full_attention_step");
  c->partial_rotary_factor = size_number(scope, "partial_rotary_factor");
  c->use_qk_norm = size_number(scope, "use_qk_norm") != 0;
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
  const tsr_name *loss = tsr_scope_find(scope, "balance.loss");
  e->adds_aux_loss =
      loss && loss->value.kind == TSR_EVAL_WORD && !strcmp(loss->value.word, "forward");
  e->router_aux_loss_coef =
      size_number(scope, e->adds_aux_loss ? "balance.coefficient" : "router_aux_loss_coef");
  e->num_shared_experts = tsr_sizes_get(scope, "num_shared_experts");
  e->first_k_dense_replace = tsr_sizes_get(scope, "first_k_dense_replace");
  e->num_expert_groups = tsr_sizes_get(scope, "num_expert_groups");
  e->num_kept_groups = tsr_sizes_get(scope, "num_kept_groups");
  e->routed_scaling_factor = size_number(scope, "routed_scaling_factor");
  e->swiglu_alpha = size_number(scope, "swiglu_alpha");
  e->swiglu_limit = size_number(scope, "swiglu_limit");
  if (!layers || layers->value.kind != TSR_EVAL_LIST) return;
  int64_t *list = tsr_arena_array(scope->arena, int64_t, layers->value.count + 1);
  for (int i = 0; i < layers->value.count; i++) list[i] = (int64_t)layers->value.list[i];
  e->mlp_only_layers = list;
  e->mlp_only_layers_count = layers->value.count;
}

static bool check_class(const tsr_config_model *m, tsr_hf_config *c, tsr_diags *diags) {
  for (int i = 0; i < tsr_hf_families_count; i++)
    if (m->map && !m->graph_file && m->model_type &&
        !strcmp(m->model_type, tsr_hf_families[i].name))
      c->model_type = tsr_hf_families[i].name;
  if (c->model_type) return true;
  tsr_diag_error(
      diags, m->location, "transformers has no class for %s",
      m->graph_file   ? "a graph file of one's own"
      : m->model_type ? m->model_type
                      : "this model");
  tsr_diag_hint(
      diags, "gpt2, llama, qwen3, mixtral, olmoe, qwen2_moe, qwen3_moe, deepseek_v2, "
             "deepseek_v3, glm4_moe and gpt_oss can be exported");
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
  if (is(ret, "glm4_moe") && ret->experts.num_expert_groups > 1 &&
      tsr_sizes_get(&scope, "group_top") != 2)
    return tsr_diag_error(
        diags, m->location, "transformers has no glm4_moe whose group_top is not 2");
  if (!is(ret, "gpt_oss") && ret->sliding_window && (ret->attention_bias || ret->mlp_bias))
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
