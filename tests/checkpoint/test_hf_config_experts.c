// SPDX-License-Identifier: Apache-2.0
/* config.json of families with experts: what their keys become, and what is refused. */
#include "hf_config_reading.h"

#define LLAMA_SIZES                                                                                \
  "\"vocab_size\": 128256, \"hidden_size\": 2048, \"intermediate_size\": 8192, "                   \
  "\"num_hidden_layers\": 16, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "           \
  "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05"

#define MIXTRAL "\"model_type\": \"mixtral\", \"num_experts_per_tok\": 2, " LLAMA_SIZES
#define DEEPSEEK                                                                                   \
  "\"vocab_size\": 96, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2, " \
  "\"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"kv_lora_rank\": 10, "            \
  "\"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 8, \"v_head_dim\": 5"

#define DEEPSEEK_EXPERTS                                                                           \
  DEEPSEEK ", \"q_lora_rank\": null, \"n_routed_experts\": 16, \"num_experts_per_tok\": 3, "       \
           "\"moe_intermediate_size\": 24, \"first_k_dense_replace\": 1, "                         \
           "\"num_key_value_heads\": 4, "                                                          \
           "\"routed_scaling_factor\": 1.5"

/* `experts`: the sizes of these. */
static const char *
deepseek_yaml(int version, int width, const char *experts, int q_lora_rank, const char *rest) {
  return sizes_of(tsr_arena_printf(
      arena,
      "transformer_config:\n  model_type: deepseek_v%d\n  vocab_size: 96\n  embedding_dim: 32\n"
      "  intermediate_dim: %d\n  num_blocks: 2\n  num_heads: 4\n%s  q_lora_rank: %d\n"
      "  kv_lora_rank: 10\n  qk_nope_head_dim: 6\n  qk_rope_head_dim: 8\n  v_head_dim: 5\n%s",
      version, width, experts, q_lora_rank, rest));
}

static const char *deepseek_experts_yaml(int version, int shared, const char *groups) {
  const char *experts = tsr_arena_printf(
      arena,
      "  num_experts: 16\n  num_experts_per_token: 3\n  num_shared_experts: %d\n"
      "  first_k_dense_replace: 1\n  dense_intermediate_dim: 64\n%s"
      "  routed_scaling_factor: 1.5\n",
      shared, groups);
  return deepseek_yaml(
      version, 24, experts, 0,
      "  max_sequence_length: 64\n  dropout_prob: 0.0\n  norm_eps: 1e-06\n  theta: 10000.0\n"
      "  weight_tying: disabled\n");
}

/* As the hub has them, and what would compute something else. */
static void test_deepseek_experts(void) {
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v3\", " DEEPSEEK_EXPERTS ", \"n_shared_experts\": 1, "
           "\"n_group\": 8, \"topk_group\": 4, \"topk_method\": \"noaux_tc\", "
           "\"scoring_func\": \"sigmoid\", \"moe_layer_freq\": 1, \"norm_topk_prob\": true}"),
      deepseek_experts_yaml(
          3, 1, "  num_expert_groups: 8\n  num_kept_groups: 4\n  norm_topk_prob: true\n"));
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v2\", " DEEPSEEK_EXPERTS ", \"n_shared_experts\": 2, "
           "\"n_group\": 8, \"topk_group\": 4, \"topk_method\": \"greedy\"}"),
      deepseek_experts_yaml(
          2, 2, "  num_expert_groups: 1\n  num_kept_groups: 1\n  norm_topk_prob: false\n"));
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v2\", " DEEPSEEK_EXPERTS ", \"n_group\": 4, "
           "\"topk_group\": 2, \"topk_method\": \"group_limited_greedy\"}"),
      deepseek_experts_yaml(
          2, 2, "  num_expert_groups: 4\n  num_kept_groups: 2\n  norm_topk_prob: false\n"));
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v2\", " DEEPSEEK_EXPERTS ", \"norm_topk_prob\": true, "
           "\"topk_method\": \"noaux_tc\", \"moe_layer_freq\": 2}"),
      "error: 'config.json': moe_layer_freq 2 is not supported\n"
      "      = supported: 1, null\n"
      "error: 'config.json': topk_method 'noaux_tc' is not supported\n"
      "      = supported: 'greedy', 'group_limited_greedy'\n"
      "error: 'config.json': norm_topk_prob true is not supported\n      = supported: false\n");
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v3\", " DEEPSEEK_EXPERTS ", \"topk_method\": \"greedy\", "
           "\"scoring_func\": \"softmax\"}"),
      "error: 'config.json': scoring_func 'softmax' is not supported\n"
      "      = supported: 'sigmoid'\n"
      "error: 'config.json': topk_method 'greedy' is not supported\n"
      "      = supported: 'noaux_tc'\n");
}

/* A missing key is the class's default, and a choice that cannot be is refused with the file's
 * names. */
static void test_groups(void) {
#define V3 "{\"model_type\": \"deepseek_v3\", " DEEPSEEK_EXPERTS
  CHECK_STR(
      read(V3 ", \"topk_group\": 3}"),
      deepseek_experts_yaml(
          3, 1, "  num_expert_groups: 8\n  num_kept_groups: 3\n  norm_topk_prob: true\n"));
  CHECK_STR(
      read(V3 "}"),
      deepseek_experts_yaml(
          3, 1, "  num_expert_groups: 8\n  num_kept_groups: 4\n  norm_topk_prob: true\n"));
  CHECK_STR(
      read(V3 ", \"n_shared_experts\": 0}"),
      deepseek_experts_yaml(
          3, 0, "  num_expert_groups: 8\n  num_kept_groups: 4\n  norm_topk_prob: true\n"));
  CHECK_STR(
      read(V3 ", \"n_shared_experts\": -1}"),
      "error: 'config.json': key 'n_shared_experts' should be at least 0, not -1\n");
  CHECK_STR(
      read(V3 ", \"n_group\": 2}"), "error: 'config.json': topk_group 4 is more than n_group 2\n");
  CHECK_STR(
      read(V3 ", \"n_group\": 3}"),
      "error: 'config.json': n_group 3 does not divide the 16 experts\n"
      "error: 'config.json': topk_group 4 is more than n_group 3\n");
  CHECK_STR(
      read(V3 ", \"n_group\": 16}"),
      "error: 'config.json': n_group 16 leaves fewer than 2 of the 16 experts to a group\n");
  CHECK_STR(
      read(V3 ", \"topk_group\": 1}"),
      "error: 'config.json': num_experts_per_tok 3 is more than the experts of topk_group 1 of "
      "n_group 8 groups\n");
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v2\", " DEEPSEEK_EXPERTS
           ", \"topk_method\": \"group_limited_greedy\"}"),
      "error: 'config.json': key 'n_group' is missing\n"
      "error: 'config.json': key 'topk_group' is missing\n");
  CHECK_STR(
      read("{" MIXTRAL ", \"num_local_experts\": 1}"),
      "error: 'config.json': num_experts_per_tok 2 is more than the 1 experts\n");
}

static void test_yarn(void) {
#define V3_YARN(words) V3 ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, " words "}"
  CHECK_STR(
      read(V3_YARN("\"attention_factor\": 0.0, \"original_max_position_embeddings\": 16") "}"),
      "error: 'config.json': key 'rope_scaling.attention_factor' should be above 0, not 0\n");
  const char *other = ", \"original_max_position_embeddings\": 16}";
  CHECK_STR(
      read(tsr_arena_printf(
          arena, "%s%s", V3_YARN("\"original_max_position_embeddings\": 99"), other)),
      read(V3_YARN("\"original_max_position_embeddings\": 16") "}"));
}

/* Null is false or nothing to a class whose default is another. */
static void test_null(void) {
  CHECK_STR(
      read(V3 ", \"norm_topk_prob\": null, \"rope_interleave\": null}"),
      "error: 'config.json': key 'rope_interleave' should be true or false, not null\n"
      "error: 'config.json': key 'norm_topk_prob' should be true or false, not null\n");
  CHECK_STR(
      read(V3 ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": null, "
              "\"original_max_position_embeddings\": 16}}"),
      "error: 'config.json': key 'rope_scaling.truncate' should be true or false, not null\n");
}

static void test_deepseek(void) {
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v2\", " DEEPSEEK ", \"first_k_dense_replace\": 2, "
           "\"q_lora_rank\": null}"),
      deepseek_yaml(
          2, 64, "", 0,
          "  max_sequence_length: 64\n  dropout_prob: 0.0\n  norm_eps: 1e-06\n"
          "  theta: 10000.0\n  weight_tying: disabled\n"));
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v3\", " DEEPSEEK ", \"q_lora_rank\": 12, "
           "\"num_key_value_heads\": 4, "
           "\"rope_interleave\": false, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
           "\"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 1.0, \"mscale_all_dim\": 0.5, "
           "\"original_max_position_embeddings\": 16}}"),
      deepseek_yaml(
          3, 64, "", 12,
          "  rope_interleave: false\n  max_sequence_length: 64\n  dropout_prob: 0.0\n"
          "  norm_eps: 1e-06\n  theta: 10000.0\n  rope_scaling:\n    yarn_factor: 40.0\n"
          "    beta_fast: 32.0\n    beta_slow: 1.0\n    original_context_length: 16\n"
          "    mscale: 1.0\n    mscale_all_dim: 0.5\n  weight_tying: disabled\n"));
  CHECK_STR(
      read("{\"model_type\": \"deepseek_v3\", " DEEPSEEK ", \"num_key_value_heads\": 2, "
           "\"first_k_dense_replace\": 1}"),
      "error: 'config.json': key 'n_routed_experts' is missing\n"
      "error: 'config.json': key 'num_experts_per_tok' is missing\n"
      "error: 'config.json': key 'routed_scaling_factor' is missing\n"
      "error: 'config.json': key 'moe_intermediate_size' is missing\n"
      "error: 'config.json': num_key_value_heads 2 is not supported: it must be "
      "num_attention_heads 4\n");
  test_deepseek_experts();
}

/* Our sizes of a mixture of experts, from those behind the heads on. */
static const char *experts_yaml(const char *type, int width, const char *experts, const char *end) {
  return sizes_of(tsr_arena_printf(
      arena,
      "transformer_config:\n  model_type: %s\n  vocab_size: 128256\n  embedding_dim: 2048\n"
      "  intermediate_dim: %d\n  num_blocks: 16\n  num_heads: 32\n  num_groups: 8\n%s"
      "  head_dim: 64\n  max_sequence_length: 131072\n  dropout_prob: 0.0\n  norm_eps: 1e-05\n"
      "%s  weight_tying: disabled\n",
      type, width, experts, end));
}

static void test_mixtral(void) {
  static const char experts[] =
      "  num_experts: 8\n  num_experts_per_token: 2\n  router_aux_loss_coef: 0.02\n";
  const char *balanced = tsr_arena_printf(arena, "%s  balance: {loss: forward}\n", experts);
  CHECK_STR(
      read("{" MIXTRAL ", \"num_local_experts\": 8, \"router_aux_loss_coef\": 0.02, "
           "\"sliding_window\": null, \"head_dim\": null}"),
      experts_yaml("mixtral", 8192, experts, "  theta: 1000000.0\n"));
  CHECK_STR(
      read("{" MIXTRAL ", \"num_experts\": 8, \"num_local_experts\": 8, \"rope_theta\": 10000, "
           "\"router_aux_loss_coef\": 0.02, \"sliding_window\": 7, "
           "\"output_router_logits\": true}"),
      experts_yaml("mixtral", 8192, balanced, "  theta: 10000.0\n  sliding_window: 7\n"));
  CHECK_STR(
      read("{" MIXTRAL ", \"num_local_experts\": 8, \"num_experts\": 4, "
           "\"router_jitter_noise\": 0.1, \"rope_parameters\": {\"rope_type\": \"yarn\"}}"),
      "error: 'config.json': rope_parameters.rope_type 'yarn' is not supported\n"
      "      = supported: 'default'\n"
      "error: 'config.json': num_local_experts and num_experts differ\n"
      "error: 'config.json': router_jitter_noise 0.1 is not supported\n"
      "      = supported: 0\n");
}

/* num_experts in older files, num_local_experts in those of transformers 5. */
static void test_qwen_moe(void) {
#define QWEN_MOE "\"moe_intermediate_size\": 768, \"num_experts_per_tok\": 4, " LLAMA_SIZES
#define SPARSE(step, layers)                                                                       \
  "  num_experts: 60\n  num_experts_per_token: 4\n  dense_intermediate_dim: 8192\n"                \
  "  decoder_sparse_step: " step "\n  mlp_only_layers: [" layers "]\n"
  static const char *const keys[] = {"num_experts", "num_local_experts"};
  for (int i = 0; i < 2; i++)
    CHECK_STR(
        read(tsr_arena_printf(
            arena,
            "{\"model_type\": \"qwen3_moe\", \"%s\": 60, \"mlp_only_layers\": [0, 3], "
            "\"norm_topk_prob\": true, " QWEN_MOE "}",
            keys[i])),
        experts_yaml(
            "qwen3_moe", 768,
            SPARSE("1", "0, 3") "  norm_topk_prob: true\n  router_aux_loss_coef: 0.001\n",
            "  theta: 10000.0\n"));
  CHECK_STR(
      read("{\"model_type\": \"qwen2_moe\", \"num_experts\": 60, \"decoder_sparse_step\": 2, "
           "\"shared_expert_intermediate_size\": 96, \"qkv_bias\": false, " QWEN_MOE "}"),
      experts_yaml(
          "qwen2_moe", 768,
          SPARSE("2", "") "  shared_intermediate_dim: 96\n  norm_topk_prob: false\n"
                          "  router_aux_loss_coef: 0.001\n",
          "  theta: 10000.0\n  attention_bias: false\n"));
  CHECK_STR(
      read("{\"model_type\": \"qwen3_moe\", \"num_experts\": 60, \"use_sliding_window\": true, "
           "\"mlp_only_layers\": [1.5], " QWEN_MOE "}"),
      "error: 'config.json': use_sliding_window true is not supported\n"
      "      = supported: false\n"
      "error: 'config.json': key 'mlp_only_layers' should be a list of whole numbers, not "
      "1.5\n");
  CHECK_STR(
      read("{\"model_type\": \"olmoe\", \"clip_qkv\": 8.0, " LLAMA_SIZES "}"),
      "error: 'config.json': clip_qkv 8 is not supported\n"
      "      = supported: null\n"
      "error: 'config.json': key 'num_experts' is missing\n"
      "error: 'config.json': key 'num_experts_per_tok' is missing\n");
}

/* Sizes of a DeepSeek as a class of transformers, or why there is none. */
static const char *class_of_deepseek(const char *type, const char *sizes) {
  const char *text = tsr_arena_printf(
      arena,
      "transformer_config: {model_type: %s, vocab_size: 96, num_experts: 8, num_blocks: 3, "
      "num_experts_per_token: 2, %s}\n",
      type, sizes);
  tsr_config *config;
  tsr_hf_export_config ret;
  bool ok =
      tsr_config_parse(arena, "run.yaml", text, strlen(text), NULL, 0, true, &config, diags) &&
      tsr_hf_config_of(arena, config, 0, -1, TSR_SOURCE_ROOT "/configs/graphs", &ret, diags);
  const char *said = printed_diags(arena, diags);
  diags = tsr_diags_new(arena);
  if (ok) return ret.model_type;
  const char *begin = strstr(said, "error: "), *end = begin ? strchr(begin, '\n') : NULL;
  return end ? tsr_arena_strndup(arena, begin, (size_t)(end - begin)) : said;
}

static void test_deepseek_classes(void) {
  static const struct {
    const char *type, *sizes, *want;
  } cases[] = {
      {"deepseek_v3", "weight_tying: disabled", "deepseek_v3"},
      {"deepseek_v2", "num_expert_groups: 4", "deepseek_v2"},
      {"deepseek_v3", "score_func: softmax, norm_topk_prob: false", "deepseek_v2"},
      {"deepseek", "latent_norm_eps: 1.0e-6", "deepseek_v3"},
      {"deepseek", "n_shared_experts: 1",
       "error: transformers has no DeepSeek V3 with latent_norm_eps other than 1e-6"},
      {"deepseek_v3", "num_shared_experts: 0", "deepseek_v3"},
      {"deepseek_v3", "num_expert_groups: 4, group_top: 1",
       "error: transformers has no DeepSeek V3 with this group_top"},
      {"deepseek_v2", "norm_topk_prob: true",
       "error: transformers has no DeepSeek V2 with norm_topk_prob: true"},
      {"deepseek_v2", "rope_interleave: false",
       "error: transformers has no DeepSeek V2 with rope_interleave: false"},
      {"deepseek_v2", "balance: {bias: {rate: 0.1}}",
       "error: transformers has no DeepSeek V2 with a bias of the choice"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK_STR(class_of_deepseek(cases[i].type, cases[i].sizes), cases[i].want);
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  test_deepseek();
  test_groups();
  test_null();
  test_yarn();
  test_mixtral();
  test_qwen_moe();
  test_deepseek_classes();
  tsr_arena_free(arena);
  return check_done("hf_config_experts");
}
