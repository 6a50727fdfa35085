// SPDX-License-Identifier: Apache-2.0
/* config.json of the families with experts. */
#include "checkpoint/hf_config_parts.h"
#include <math.h>

/* What the graph file would refuse with its own names. `top`: a group's score is the sum of so many
 * of its experts'. */
static void check_choice(reader *r, int64_t top) {
  const tsr_hf_experts *e = &r->c->experts;
  int64_t experts = e->num_experts, k = e->num_experts_per_token;
  int64_t groups = e->num_expert_groups ? e->num_expert_groups : 1;
  int64_t kept = groups > 1 ? e->num_kept_groups : 1;
  const char *wrong = NULL;
  if (experts % groups)
    wrong = tsr_arena_printf(
        r->arena, "n_group %" PRId64 " does not divide the %" PRId64 " experts", groups, experts);
  else if (e->num_kept_groups > groups)
    wrong = tsr_arena_printf(
        r->arena, "topk_group %" PRId64 " is more than n_group %" PRId64, e->num_kept_groups,
        groups);
  else if (groups > 1 && experts / groups < top)
    wrong = tsr_arena_printf(
        r->arena, "n_group %" PRId64 " leaves %" PRId64 " experts to a group, fewer than %" PRId64,
        groups, experts / groups, top);
  else if (k > experts / groups * kept)
    wrong = tsr_arena_printf(
        r->arena, "num_experts_per_tok %" PRId64 " is more than the %" PRId64 " experts%s", k,
        experts / groups * kept, groups > 1 ? " of topk_group groups" : "");
  if (r->ok && wrong) r->ok = tsr_diag_error(r->diags, TSR_NOWHERE, "'%s': %s", r->path, wrong);
}

/* transformers 5 writes num_local_experts where older files have num_experts. */
static void read_experts(reader *r, double coefficient) {
  tsr_hf_experts *e = &r->c->experts;
  const cJSON *local = get(r->root, "num_local_experts"), *all = get(r->root, "num_experts");
  if (local && all && !cJSON_Compare(local, all, true))
    r->ok = tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': num_local_experts and num_experts differ", r->path);
  e->num_experts = count(r, local ? "num_local_experts" : "num_experts", -1);
  e->num_experts_per_token = count(r, "num_experts_per_tok", -1);
  e->router_aux_loss_coef = number(r, "router_aux_loss_coef", coefficient);
  e->adds_aux_loss = flag(r, "output_router_logits", false);
  check_choice(r, 1);
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

void tsr_hf_read_mixtral(reader *r) {
  tsr_hf_config *c = r->c;
  tsr_hf_read_architecture(r, "MixtralForCausalLM", "MixtralModel");
  tsr_hf_read_common(r, 8);
  c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  int64_t even = c->embedding_dim / c->num_heads;
  c->head_dim = count_or_null(r, "head_dim", even, even);
  c->sliding_window = count_or_null(r, "sliding_window", 0, 0);
  tsr_hf_read_rope(r, ROPE_PLAIN, 1e6);
  read_experts(r, 0.001);
  double noise = number(r, "router_jitter_noise", 0);
  if (noise > 0)
    unsupported(r, "router_jitter_noise", tsr_arena_printf(r->arena, "%g", noise), "0");
}

void tsr_hf_read_qwen3_moe(reader *r) {
  tsr_hf_read_architecture(r, "Qwen3MoeForCausalLM", "Qwen3MoeModel");
  tsr_hf_read_common(r, 4);
  r->c->head_dim = count(r, "head_dim", r->c->embedding_dim / r->c->num_heads);
  r->c->attention_bias = flag(r, "attention_bias", false);
  fixed(r, "use_sliding_window", false);
  tsr_hf_read_rope(r, ROPE_PLAIN, 10000);
  read_experts(r, 0.001);
  r->c->experts.norm_topk_prob = flag(r, "norm_topk_prob", false);
  read_sparse_blocks(r);
}

void tsr_hf_read_qwen2_moe(reader *r) {
  tsr_hf_read_architecture(r, "Qwen2MoeForCausalLM", "Qwen2MoeModel");
  tsr_hf_read_common(r, 16);
  r->c->head_dim = count(r, "head_dim", r->c->embedding_dim / r->c->num_heads);
  r->c->attention_bias = flag(r, "qkv_bias", true);
  fixed(r, "use_sliding_window", false);
  tsr_hf_read_rope(r, ROPE_PLAIN, 10000);
  read_experts(r, 0.001);
  r->c->experts.norm_topk_prob = flag(r, "norm_topk_prob", false);
  read_sparse_blocks(r);
  r->c->experts.shared_intermediate_dim = count(r, "shared_expert_intermediate_size", 5632);
}

void tsr_hf_read_olmoe(reader *r) {
  tsr_hf_read_architecture(r, "OlmoeForCausalLM", "OlmoeModel");
  tsr_hf_read_common(r, 0);
  r->c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  r->c->head_dim = r->c->embedding_dim / r->c->num_heads;
  r->c->attention_bias = flag(r, "attention_bias", false);
  const cJSON *clip = get(r->root, "clip_qkv");
  if (clip) unsupported(r, "clip_qkv", describe(r, clip), "null");
  tsr_hf_read_rope(r, ROPE_PLAIN, 10000);
  read_experts(r, 0.01);
  r->c->experts.norm_topk_prob = flag(r, "norm_topk_prob", false);
}

/* ---- DeepSeek ---- */

/* `groups`, `kept`: of the class where the keys are missing; -1: they must be there. `top`: as
 * check_choice has it. */
static void read_expert_groups(reader *r, int64_t groups, int64_t kept, int64_t top) {
  tsr_hf_experts *e = &r->c->experts;
  e->num_expert_groups = count(r, "n_group", groups);
  e->num_kept_groups = count(r, "topk_group", kept);
  check_choice(r, top);
}

/* Blocks behind the dense ones are mixtures of experts. `dense`, `shared`: so many by default. */
static void read_deepseek_experts(reader *r, int64_t dense, int64_t shared) {
  tsr_hf_experts *e = &r->c->experts;
  if (tsr_json_get(r->root, "first_k_dense_replace") &&
      !tsr_json_int(r->root, "first_k_dense_replace", r->path, &dense, r->diags))
    r->ok = false;
  if (dense >= r->c->num_blocks) return;
  const cJSON *every = get(r->root, "moe_layer_freq");
  if (every && !(cJSON_IsNumber(every) && every->valuedouble == 1))
    unsupported(r, "moe_layer_freq", describe(r, every), "1");
  const char *key = get(r->root, "num_local_experts") ? "num_local_experts" : "n_routed_experts";
  e->num_experts = count(r, key, -1);
  e->num_experts_per_token = count(r, "num_experts_per_tok", -1);
  e->num_shared_experts = whole_in(r, r->root, "n_shared_experts", shared, 0);
  e->first_k_dense_replace = dense < 0 ? 0 : dense;
  e->routed_scaling_factor = number(r, "routed_scaling_factor", -1);
  e->dense_intermediate_dim = r->c->intermediate_dim;
  r->c->intermediate_dim = count(r, "moe_intermediate_size", -1);
}

/* `groups`: as tsr_hf_read_sizes has it. */
static void read_deepseek(reader *r, int64_t groups) {
  tsr_hf_config *c = r->c;
  tsr_hf_latent *latent = &c->latent;
  tsr_hf_read_common(r, groups);
  if (c->num_groups != c->num_heads)
    unsupported(
        r, "num_key_value_heads", tsr_arena_printf(r->arena, "%" PRId64, c->num_groups),
        "as many as num_attention_heads");
  latent->q_lora_rank = count_or_null(r, "q_lora_rank", 1536, 0);
  latent->kv_lora_rank = count(r, "kv_lora_rank", 512);
  latent->qk_nope_head_dim = count(r, "qk_nope_head_dim", 128);
  latent->qk_rope_head_dim = count(r, "qk_rope_head_dim", 64);
  latent->v_head_dim = count(r, "v_head_dim", 128);
  latent->rope_interleave = true;
  c->attention_bias = flag(r, "attention_bias", false);
  tsr_hf_read_rope(r, ROPE_YARN, 10000);
}

static void read_mtp_layers(reader *r) {
  const cJSON *mtp = tsr_json_get(r->root, "num_nextn_predict_layers");
  if (!cJSON_IsNumber(mtp) || mtp->valuedouble > 0)
    r->c->mtp_layers = count(r, "num_nextn_predict_layers", 1);
}

void tsr_hf_read_deepseek_v3(reader *r) {
  tsr_hf_read_architecture(r, "DeepseekV3ForCausalLM", "DeepseekV3Model");
  read_deepseek(r, 128);
  r->c->latent.rope_interleave = flag(r, "rope_interleave", true);
  read_mtp_layers(r);
  read_deepseek_experts(r, 3, 1);
  if (!r->c->experts.num_experts) return;
  fixed_text(r, "scoring_func", "sigmoid");
  fixed_text(r, "topk_method", "noaux_tc");
  r->c->experts.norm_topk_prob = flag(r, "norm_topk_prob", true);
  read_expert_groups(r, 8, 4, 2);
}

void tsr_hf_read_deepseek_v2(reader *r) {
  tsr_hf_read_architecture(r, "DeepseekV2ForCausalLM", "DeepseekV2Model");
  fixed(r, "mlp_bias", false);
  read_deepseek(r, 0);
  read_deepseek_experts(r, 0, 2);
  if (!r->c->experts.num_experts) return;
  const cJSON *method = tsr_json_get(r->root, "topk_method");
  bool groups = is_text(method, "group_limited_greedy");
  if (method && !groups && !is_text(method, "greedy"))
    unsupported(r, "topk_method", describe(r, method), "'greedy', 'group_limited_greedy'");
  fixed_text(r, "scoring_func", "softmax");
  fixed(r, "norm_topk_prob", false);
  r->c->experts.num_expert_groups = r->c->experts.num_kept_groups = 1;
  if (groups) read_expert_groups(r, -1, -1, 1);
  else check_choice(r, 1);
}

/* ---- GLM-4.5 and gpt-oss ---- */

void tsr_hf_read_glm4_moe(reader *r) {
  tsr_hf_config *c = r->c;
  tsr_hf_read_architecture(r, "Glm4MoeForCausalLM", "Glm4MoeModel");
  tsr_hf_read_common(r, 8);
  c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  c->head_dim = count(r, "head_dim", c->embedding_dim / c->num_heads);
  c->attention_bias = flag(r, "attention_bias", false);
  c->use_qk_norm = flag(r, "use_qk_norm", false);
  tsr_hf_read_rope(r, ROPE_PARTIAL, 10000);
  read_mtp_layers(r);
  read_deepseek_experts(r, 1, 1);
  if (r->ok && !c->experts.num_experts)
    return unsupported(
        r, "first_k_dense_replace", tsr_arena_printf(r->arena, "%" PRId64, c->num_blocks),
        "less than num_hidden_layers");
  c->experts.norm_topk_prob = flag(r, "norm_topk_prob", true);
  read_expert_groups(r, 1, 1, 2);
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
  r->c->sliding_window = count_or_null(r, "sliding_window", 128, 0);
}

/* Without a word about rotary positions they have YaRN's scaling, as in GptOssConfig. */
static void read_gpt_oss_rope(reader *r) {
  tsr_hf_read_rope(r, ROPE_YARN, 150000);
  if (tsr_hf_rope(r)) return;
  r->c->latent = (tsr_hf_latent){.yarn_factor = 32, .beta_fast = 32, .beta_slow = 1};
  r->c->original_context_length = 4096;
}

void tsr_hf_read_gpt_oss(reader *r) {
  tsr_hf_config *c = r->c;
  tsr_hf_read_architecture(r, "GptOssForCausalLM", "GptOssModel");
  tsr_hf_read_sizes(r, 8);
  c->norm_eps = number(r, "rms_norm_eps", 1e-5);
  c->head_dim = count(r, "head_dim", 64);
  c->attention_bias = flag(r, "attention_bias", true);
  read_windows(r);
  read_gpt_oss_rope(r);
  read_experts(r, 0.001);
  c->experts.swiglu_alpha = positive_in(r, r->root, "swiglu_alpha", 1.702);
  c->experts.swiglu_limit = positive_in(r, r->root, "swiglu_limit", 7);
}
