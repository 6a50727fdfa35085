// SPDX-License-Identifier: Apache-2.0
/* config.json of gpt-oss and GLM-4.5 to sizes: what their keys become, and what is refused. */
#include "hf_config_reading.h"

#define SIZES                                                                                      \
  "\"vocab_size\": 201088, \"hidden_size\": 2880, \"intermediate_size\": 2880, "                   \
  "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, "                                      \
  "\"max_position_embeddings\": 131072, \"num_experts_per_tok\": 4"
#define GPT_OSS "\"model_type\": \"gpt_oss\", \"num_local_experts\": 32, " SIZES
#define YARN                                                                                       \
  "  rope_scaling:\n    yarn_factor: 32.0\n    beta_fast: 32.0\n    beta_slow: 1.0\n"              \
  "    original_context_length: 4096\n    mscale: 0.0\n    mscale_all_dim: 0.0\n"                  \
  "    truncate: false\n"

static const char *yaml(int blocks, const char *scaling, const char *windows) {
  return sizes_of(tsr_arena_printf(
      arena,
      "transformer_config:\n  model_type: gpt_oss\n  vocab_size: 201088\n  embedding_dim: 2880\n"
      "  intermediate_dim: 2880\n  num_blocks: %d\n  num_heads: 64\n  num_groups: 8\n"
      "  num_experts: 32\n  num_experts_per_token: 4\n  router_aux_loss_coef: 0.9\n"
      "  swiglu_alpha: 1.702\n  swiglu_limit: 7.0\n  head_dim: 64\n"
      "  max_sequence_length: 131072\n  dropout_prob: 0.0\n  norm_eps: 1e-05\n  theta: 150000.0\n"
      "%s%s  weight_tying: disabled\n",
      blocks, scaling, windows));
}

/* As the hub has it, and with nothing but what has no default. */
static void test_gpt_oss(void) {
  CHECK_STR(
      read("{" GPT_OSS ", \"num_hidden_layers\": 4, \"attention_bias\": true, \"head_dim\": 64, "
           "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"rope_theta\": 150000, "
           "\"sliding_window\": 128, \"swiglu_limit\": 7.0, \"router_aux_loss_coef\": 0.9, "
           "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
           "\"full_attention\"], \"quantization_config\": {\"quant_method\": \"mxfp4\"}, "
           "\"rope_scaling\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0, "
           "\"original_max_position_embeddings\": 4096, \"rope_type\": \"yarn\", "
           "\"truncate\": false}}"),
      yaml(4, YARN, "  sliding_window: 128\n  full_attention_step: 2\n  attention_bias: true\n"));
  CHECK_INT(last_read.quantization.kind, TSR_HF_MXFP4);
  CHECK_STR(
      read("{" GPT_OSS ", \"num_hidden_layers\": 24, \"router_aux_loss_coef\": 0.9}"),
      yaml(24, YARN, "  sliding_window: 128\n  full_attention_step: 2\n  attention_bias: true\n"));
  CHECK_STR(
      read("{" GPT_OSS ", \"num_hidden_layers\": 24, \"router_aux_loss_coef\": 0.9, "
           "\"rope_scaling\": {}}"),
      yaml(24, YARN, "  sliding_window: 128\n  full_attention_step: 2\n  attention_bias: true\n"));
}

#define LAYERS(list)                                                                               \
  "{" GPT_OSS ", \"num_hidden_layers\": 3, \"router_aux_loss_coef\": 0.9, "                        \
  "\"rope_parameters\": {\"rope_type\": \"default\"}, \"attention_bias\": false, "                 \
  "\"layer_types\": [" list "]"
#define FULL "\"full_attention\""
#define WINDOW "\"sliding_attention\""

/* Which blocks have windows. */
static void test_windows(void) {
  CHECK_STR(
      read(LAYERS(FULL ", " FULL ", " FULL) ", \"sliding_window\": null}"),
      yaml(3, "", "  sliding_window: 0\n  full_attention_step: 1\n  attention_bias: false\n"));
  CHECK_STR(
      read(LAYERS(WINDOW ", " WINDOW ", " FULL) ", \"sliding_window\": 9}"),
      yaml(3, "", "  sliding_window: 9\n  full_attention_step: 3\n  attention_bias: false\n"));
  CHECK_STR(
      read(LAYERS(WINDOW ", " WINDOW ", " WINDOW) "}"),
      yaml(3, "", "  sliding_window: 128\n  full_attention_step: 4\n  attention_bias: false\n"));
  static const char *const irregular[] = {
      LAYERS(FULL ", " WINDOW ", " FULL) "}", LAYERS(WINDOW ", " FULL) "}", LAYERS("") "}"};
  for (int i = 0; i < 3; i++)
    CHECK_STR(
        read(irregular[i]),
        "error: 'config.json': layer_types is not supported: it must have num_hidden_layers 3 "
        "items, and full_attention in every n-th block and no other\n");
  CHECK_STR(
      read(LAYERS(WINDOW ", " FULL ", \"linear_attention\"") "}"),
      "error: 'config.json': layer_types 'linear_attention' is not supported\n"
      "      = supported: 'full_attention', 'sliding_attention'\n");
}

/* Without windows the class still needs one, which no block has. */
static void test_no_windows(void) {
  static const struct {
    int64_t window, step;
    const char *want;
  } cases[] = {
      {0, 2, "\"sliding_window\": 128,\n  \"layer_types\": [" FULL ", " FULL ", " FULL "],"},
      {0, 1, "\"sliding_window\": 128,\n  \"layer_types\": [" FULL ", " FULL ", " FULL "],"},
      {9, 1, "\"sliding_window\": 9,\n  \"layer_types\": [" FULL ", " FULL ", " FULL "],"},
      {9, 2, "\"sliding_window\": 9,\n  \"layer_types\": [" WINDOW ", " FULL ", " WINDOW "],"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *section = tsr_arena_printf(
        arena,
        "transformer_config: {model_type: gpt_oss, vocab_size: 9, num_blocks: 3, "
        "sliding_window: %d, full_attention_step: %d}\n",
        (int)cases[i].window, (int)cases[i].step);
    const char *json = json_of(section, "float32", "{}");
    CHECK_AT(strstr(json, cases[i].want) != NULL, "%s", json);
  }
}

#define GLM                                                                                        \
  "\"model_type\": \"glm4_moe\", \"num_hidden_layers\": 46, \"n_routed_experts\": 128, "           \
  "\"moe_intermediate_size\": 1408, \"routed_scaling_factor\": 1.0, \"head_dim\": 128, " SIZES

static const char *glm_yaml(const char *scaling_factor, const char *attention) {
  return sizes_of(tsr_arena_printf(
      arena,
      "transformer_config:\n  model_type: glm4_moe\n  vocab_size: 201088\n  embedding_dim: 2880\n"
      "  intermediate_dim: 1408\n  num_blocks: 46\n  num_heads: 64\n  num_groups: 8\n"
      "  num_experts: 128\n  num_experts_per_token: 4\n  num_shared_experts: 1\n"
      "  first_k_dense_replace: 1\n  dense_intermediate_dim: 2880\n  num_expert_groups: 1\n"
      "  num_kept_groups: 1\n  norm_topk_prob: true\n  routed_scaling_factor: 1.0\n"
      "  head_dim: 128\n  max_sequence_length: 131072\n  dropout_prob: 0.0\n  norm_eps: 1e-05\n"
      "  theta: 10000.0\n  partial_rotary_factor: %s\n%s  weight_tying: disabled\n",
      scaling_factor, attention));
}

/* The same with another line of num_expert_groups. */
static const char *with_groups(const char *text, const char *line) {
  static const char before[] = "num_expert_groups: 1\n";
  const char *at = strstr(text, before);
  return tsr_arena_printf(arena, "%.*s%s%s", (int)(at - text), text, line, at + strlen(before));
}

static void test_glm4_moe(void) {
  CHECK_STR(
      read("{" GLM ", \"attention_bias\": true, \"num_nextn_predict_layers\": 1}"),
      glm_yaml("0.5", "  use_qk_norm: false\n  attention_bias: true\n"));
  CHECK_INT(last_read.prediction_blocks, 1);
  CHECK_STR(
      read("{" GLM ", \"use_qk_norm\": true, \"num_nextn_predict_layers\": 0, "
           "\"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}, "
           "\"n_group\": 1}"),
      glm_yaml("0.25", "  use_qk_norm: true\n"));
  CHECK_INT(last_read.prediction_blocks, 0);
  CHECK_STR(
      read("{" GLM ", \"partial_rotary_factor\": null}"),
      glm_yaml("1.0", "  use_qk_norm: false\n"));
  /* without topk_group one group is kept */
  CHECK_STR(
      read("{" GLM ", \"n_group\": 4}"),
      with_groups(glm_yaml("0.5", "  use_qk_norm: false\n"), "num_expert_groups: 4\n"));
  CHECK_STR(
      read("{" GLM ", \"first_k_dense_replace\": 46}"),
      "error: 'config.json': first_k_dense_replace 46 is not supported: it must be less "
      "than num_hidden_layers 46\n");
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  test_gpt_oss();
  test_windows();
  test_no_windows();
  test_glm4_moe();
  tsr_arena_free(arena);
  return check_done("hf_config_gpt_oss");
}
