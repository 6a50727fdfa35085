// SPDX-License-Identifier: Apache-2.0
/* config.json to sizes and back: what each architecture's keys become, and what is refused. */
#include "base/file_read.h"
#include "hf_config_reading.h"

#define GPT2                                                                                       \
  "\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_embd\": 768, \"n_layer\": 12, "            \
  "\"n_head\": 12, \"n_positions\": 1024"
#define LLAMA_SIZES                                                                                \
  "\"vocab_size\": 128256, \"hidden_size\": 2048, \"intermediate_size\": 8192, "                   \
  "\"num_hidden_layers\": 16, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "           \
  "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05"
#define LLAMA "\"model_type\": \"llama\", " LLAMA_SIZES

static void test_gpt2(void) {
  static const char sizes[] = "  vocab_size: 50257\n  embedding_dim: 768\n"
                              "  intermediate_dim: 3072\n  num_blocks: 12\n  num_heads: 12\n"
                              "  head_dim: 64\n  max_sequence_length: 1024\n";
  static const char head[] = "transformer_config:\n  model_type: gpt2\n";
  CHECK_STR(
      read("{" GPT2 ", \"n_ctx\": 1024, \"n_inner\": null, \"task_specific_params\": {}}"),
      sizes_of(tsr_arena_printf(
          arena, "%s%s  dropout_prob: 0.1\n  norm_eps: 1e-05\n  weight_tying: enabled\n", head,
          sizes)));
  CHECK_STR(
      read("{" GPT2
           ", \"tie_word_embeddings\": false, \"layer_norm_epsilon\": 0.000001234567890123,"
           "\"resid_pdrop\": 0, \"embd_pdrop\": 0.0, \"attn_pdrop\": 0}"),
      sizes_of(tsr_arena_printf(
          arena,
          "%s%s  dropout_prob: 0.0\n  norm_eps: 1.234567890123e-06\n  weight_tying: disabled\n",
          head, sizes)));
  CHECK_STR(
      read("{" GPT2 ", \"resid_pdrop\": 0.2}"),
      sizes_of(tsr_arena_printf(
          arena,
          "warning: 'config.json': resid_pdrop 0.2, embd_pdrop 0.1 and attn_pdrop 0.1 differ: "
          "dropout_prob is 0.2\n"
          "%s%s  dropout_prob: 0.2\n  norm_eps: 1e-05\n  weight_tying: enabled\n",
          head, sizes)));
  CHECK_STR(
      read("{" GPT2 ", \"activation_function\": \"gelu\", \"scale_attn_weights\": false,"
           "\"scale_attn_by_inverse_layer_idx\": true, \"add_cross_attention\": true}"),
      "error: 'config.json': activation_function 'gelu' is not supported\n"
      "      = supported: 'gelu_new', 'gelu_pytorch_tanh'\n"
      "error: 'config.json': scale_attn_weights false is not supported\n"
      "      = supported: true\n"
      "error: 'config.json': scale_attn_by_inverse_layer_idx true is not supported\n"
      "      = supported: false\n"
      "error: 'config.json': add_cross_attention true is not supported\n"
      "      = supported: false\n");
}

static const char *llama_yaml(const char *type, int head_dim, const char *rest) {
  return sizes_of(tsr_arena_printf(
      arena,
      "transformer_config:\n  model_type: %s\n  vocab_size: 128256\n  embedding_dim: 2048\n"
      "  intermediate_dim: 8192\n  num_blocks: 16\n  num_heads: 32\n  num_groups: 8\n"
      "  head_dim: %d\n%s",
      type, head_dim, rest));
}

static void test_llama(void) {
  static const char scaled[] =
      "  max_sequence_length: 131072\n  dropout_prob: 0.0\n  norm_eps: 1e-05\n"
      "  theta: 500000.0\n  rope_scaling:\n    scaling_factor: 32.0\n    low_freq_factor: 1.0\n"
      "    high_freq_factor: 4.0\n    original_context_length: 8192\n  weight_tying: enabled\n";
  static const char scaled_from_77[] =
      "  max_sequence_length: 131072\n  dropout_prob: 0.0\n  norm_eps: 1e-05\n"
      "  theta: 500000.0\n  rope_scaling:\n    scaling_factor: 32.0\n    low_freq_factor: 1.0\n"
      "    high_freq_factor: 4.0\n    original_context_length: 77\n  weight_tying: enabled\n";
  static const char plain[] = "  max_sequence_length: 131072\n  dropout_prob: 0.0\n"
                              "  norm_eps: 1e-05\n  theta: 10000.0\n  weight_tying: disabled\n";
#define SCALING                                                                                    \
  "\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, "                        \
  "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192"
  /* Llama 3.2 1B as files of 2024 have it, and as newer ones do. */
  CHECK_STR(
      read("{" LLAMA ", \"architectures\": [\"LlamaForCausalLM\"], \"head_dim\": 64,"
           "\"attention_bias\": false, \"mlp_bias\": false, \"rope_theta\": 500000.0,"
           "\"rope_scaling\": {" SCALING "}, \"tie_word_embeddings\": true, \"torch_dtype\": "
           "\"bfloat16\", \"eos_token_id\": [128001, 128008]}"),
      llama_yaml("llama", 64, scaled));
  CHECK_STR(
      read("{" LLAMA ", \"tie_word_embeddings\": true, \"rope_parameters\": {" SCALING
           ", \"rope_theta\": 500000.0}}"),
      llama_yaml("llama", 64, scaled));
  CHECK_STR(read("{" LLAMA "}"), llama_yaml("llama", 64, plain));
  CHECK_STR(
      read("{" LLAMA ", \"head_dim\": 128, \"rope_scaling\": {\"type\": \"default\"}}"),
      llama_yaml("llama", 128, plain));
  CHECK_STR(
      read("{" LLAMA ", \"attention_dropout\": 0.1}"),
      tsr_arena_printf(
          arena,
          "warning: 'config.json': attention_dropout 0.1 is not taken: dropout_prob is 0\n%s",
          llama_yaml("llama", 64, plain)));
  CHECK_STR(
      read("{" LLAMA ", \"attention_bias\": true, \"mlp_bias\": true, \"hidden_act\": \"gelu\","
           "\"partial_rotary_factor\": 0.5, \"rope_interleaved\": true,"
           "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}}"),
      "error: 'config.json': hidden_act 'gelu' is not supported\n"
      "      = supported: 'silu'\n"
      "error: 'config.json': partial_rotary_factor 0.5 is not supported\n"
      "      = supported: 1\n"
      "error: 'config.json': rope_interleaved true is not supported\n"
      "      = supported: false\n"
      "error: 'config.json': rope_scaling.rope_type 'dynamic' is not supported\n"
      "      = supported: 'default', 'llama3', 'linear', 'yarn'\n");
  /* outside the scaling it is the one that counts */
  CHECK_STR(
      read("{" LLAMA ", \"tie_word_embeddings\": true, \"original_max_position_embeddings\": 77, "
           "\"rope_parameters\": {" SCALING ", \"rope_theta\": 500000.0}}"),
      llama_yaml("llama", 64, scaled_from_77));
  CHECK_STR(
      read("{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}"),
      "error: 'config.json': key 'rope_scaling.low_freq_factor' is missing\n"
      "error: 'config.json': key 'rope_scaling.high_freq_factor' is missing\n"
      "error: 'config.json': key 'rope_scaling.original_max_position_embeddings' is missing\n");
}

static void test_llama_rope_scaling(void) {
  CHECK_STR(
      read("{" LLAMA
           ", \"rope_scaling\": {\"type\": \"default\", \"partial_rotary_factor\": null}}"),
      "error: 'config.json': key 'rope_scaling.partial_rotary_factor' should be a number, not "
      "null\n");
  CHECK_STR(
      read("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2.0}}"),
      "error: 'config.json': key 'rope_parameters.original_max_position_embeddings' is missing\n");
  const char *yarn = read("{" LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2.0, "
                          "\"original_max_position_embeddings\": 77, \"beta_fast\": 16}}");
  CHECK_AT(
      strstr(yarn, "\nrope_scaling.yarn_factor: 2\n") &&
          strstr(yarn, "\nrope_scaling.original_context_length: 77\n") &&
          strstr(yarn, "\nrope_scaling.beta_fast: 16\n") &&
          strstr(yarn, "\nrope_scaling.linear_factor: 0\n"),
      "%s", yarn);
  const char *linear =
      read("{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}");
  CHECK_AT(
      strstr(linear, "\nrope_scaling.linear_factor: 2.5\n") &&
          strstr(linear, "\nrope_scaling.scaling_factor: 0\n"),
      "%s", linear);
}

static void test_mistral(void) {
#define MISTRAL "\"model_type\": \"mistral\", " LLAMA_SIZES
  static const struct {
    const char *json, *yaml;
  } windows[] = {
      {", \"sliding_window\": null", ""},
      {", \"sliding_window\": 512", "  sliding_window: 512\n"},
      {"", "  sliding_window: 4096\n"}};
  for (int i = 0; i < 3; i++) {
    const char *rest = tsr_arena_printf(
        arena,
        "  max_sequence_length: 131072\n  dropout_prob: 0.0\n  norm_eps: 1e-05\n"
        "  theta: 10000.0\n%s  weight_tying: disabled\n",
        windows[i].yaml);
    const char *json = tsr_arena_printf(arena, "{" MISTRAL "%s}", windows[i].json);
    CHECK_STR(read(json), llama_yaml("llama", 64, rest));
  }
  /* layer_types of full attention have no window beside sliding_window */
  CHECK_STR(
      read("{" MISTRAL ", \"sliding_window\": 512, \"layer_types\": [\"full_attention\"]}"),
      read("{" MISTRAL ", \"sliding_window\": null}"));
  CHECK_STR(
      read("{" MISTRAL ", \"sliding_window\": 0}"),
      "error: 'config.json': key 'sliding_window' should be at least 1, not 0\n");
}

static void test_qwen3(void) {
#define QWEN3 "\"model_type\": \"qwen3\", " LLAMA_SIZES
  static const char rest[] = "  max_sequence_length: 131072\n  dropout_prob: 0.0\n"
                             "  norm_eps: 1e-05\n  theta: 1000000.0\n";
  CHECK_STR(
      read("{" QWEN3 ", \"rope_theta\": 1000000, \"use_sliding_window\": false,"
           "\"sliding_window\": 4096, \"tie_word_embeddings\": true,"
           "\"layer_types\": [\"full_attention\"]}"),
      llama_yaml("qwen3", 128, tsr_arena_printf(arena, "%s  weight_tying: enabled\n", rest)));
  CHECK_STR(
      read("{" QWEN3 ", \"rope_theta\": 1000000, \"head_dim\": 80, \"attention_bias\": true}"),
      llama_yaml(
          "qwen3", 80,
          tsr_arena_printf(arena, "%s  attention_bias: true\n  weight_tying: disabled\n", rest)));
  CHECK_STR(
      read("{" QWEN3
           ", \"use_sliding_window\": true, \"rope_scaling\": {\"rope_type\": \"llama3\"},"
           "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\"]}"),
      "error: 'config.json': layer_types 'sliding_attention' is not supported\n"
      "      = supported: 'full_attention'\n"
      "error: 'config.json': use_sliding_window true is not supported\n"
      "      = supported: false\n"
      "error: 'config.json': rope_scaling.rope_type 'llama3' is not supported\n"
      "      = supported: 'default'\n");
}

/* What transformers reads of every class. */
static void test_switches(void) {
  static const char *const families[] = {GPT2, LLAMA, MISTRAL, QWEN3};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    const char *plain = read(tsr_arena_printf(arena, "{%s}", families[i]));
    CHECK_STR(
        read(tsr_arena_printf(
            arena,
            "{%s, \"is_causal\": true, \"transformers_weights\": \"model.safetensors\", "
            "\"per_layer_config\": {}}",
            families[i])),
        plain);
    CHECK_STR(
        read(tsr_arena_printf(
            arena,
            "{%s, \"is_causal\": false, \"transformers_weights\": \"other.safetensors\", "
            "\"per_layer_config\": {\"1\": {\"rms_norm_eps\": 0.5}}}",
            families[i])),
        "error: 'config.json': is_causal false is not supported\n"
        "      = supported: true\n"
        "error: 'config.json': transformers_weights 'other.safetensors' is not supported\n"
        "      = supported: 'model.safetensors'\n"
        "error: 'config.json': per_layer_config an object is not supported\n"
        "      = supported: null\n");
  }
  CHECK_STR(
      read("{" LLAMA ", \"is_causal\": null}"),
      "error: 'config.json': key 'is_causal' should be true or false, not null\n");
}

/* nn.Embedding's padding_idx, which GPT-2's class does not give it. */
static void test_pad_token(void) {
  static const struct {
    const char *json, *want;
  } cases[] = {
      {"{" LLAMA ", \"pad_token_id\": 7}", "  pad_token: 7\n"},
      {"{" LLAMA ", \"pad_token_id\": -1}", "  pad_token: 128255\n"},
      {"{" LLAMA ", \"pad_token_id\": null}", NULL},
      {"{" LLAMA "}", NULL},
      {"{\"model_type\": \"olmoe\", \"num_experts\": 8, \"num_experts_per_tok\": 2, " LLAMA_SIZES
       "}",
       "  pad_token: 1\n"},
      {"{\"model_type\": \"olmoe\", \"num_experts\": 8, \"num_experts_per_tok\": 2, "
       "\"pad_token_id\": null, " LLAMA_SIZES "}",
       NULL},
      {"{" GPT2 ", \"pad_token_id\": 7}", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *got = read_text(cases[i].json), *at = strstr(got, "  pad_token: ");
    CHECK(strstr(got, "transformer_config:\n") == got);
    if (cases[i].want) CHECK_AT(strstr(got, cases[i].want) != NULL, "%s", got);
    else CHECK_AT(!at, "%s", got);
  }
  CHECK_STR(
      read("{" LLAMA ", \"pad_token_id\": 128256}"),
      "error: 'config.json': pad_token_id 128256 is none of the 128256 tokens\n");
}

static void test_refused(void) {
  CHECK_STR(
      read("{\"model_type\": \"gpt_neo\"}"),
      "error: 'config.json': model_type 'gpt_neo' is not supported\n"
      "      = supported: 'deepseek_v3', 'deepseek_v2', 'gemma2', 'gemma3_text', 'glm4_moe', "
      "'gpt2', "
      "'gpt_neox', 'gpt_oss', 'granite', 'llama', 'mistral', 'mixtral', 'olmo2', 'olmoe', 'phi3', "
      "'qwen2', 'qwen2_moe', 'qwen3', 'qwen3_moe', 'smollm3', 'starcoder2'\n");
  static const char *const lacking[][2] = {
      {"qwen3_next", "gated delta nets"},
      {"qwen3_5", "gated delta nets"},
      {"mamba", "state space layers"},
      {"falcon", "ALiBi or shared layer norms"},
      {"gemma3", "a vision tower (its text model is of the model_type gemma3_text)"}};
  for (int i = 0; i < 5; i++) {
    const char *type = lacking[i][0];
    const char *said = read(tsr_arena_printf(arena, "{\"model_type\": \"%s\"}", type));
    CHECK_AT(
        strstr(said, tsr_arena_printf(arena, "model_type '%s' is not supported", type)) &&
            strstr(said, tsr_arena_printf(arena, "%s has %s,", type, lacking[i][1])),
        "%s", said);
  }
  CHECK_STR(read("[]"), "error: 'config.json' should be an object\n");
  CHECK_STR(read("{}"), "error: 'config.json': key 'model_type' is missing\n");
  CHECK_STR(
      read("{\"model_type\": \"gpt2\",\n}"),
      "config.json:2:1: error: expected a key in double quotes, not '}'\n"
      "    2 | }\n"
      "      | ^\n");
  CHECK_STR(
      read("{" LLAMA ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}"),
      "error: 'config.json': quantization_config 'gptq' is not supported\n"
      "      = supported: weights in float32, bfloat16 or float16, 'fp8' of e4m3 with a "
      "weight_block_size, and 'mxfp4'\n");
  CHECK_STR(
      read("{" LLAMA ", \"architectures\": [\"LlamaForTokenClassification\"]}"),
      "error: 'config.json': architectures 'LlamaForTokenClassification' is not supported\n"
      "      = supported: LlamaForCausalLM, LlamaModel, LlamaForSequenceClassification\n");
  CHECK_STR(
      read("{\"model_type\": \"gpt2\", \"vocab_size\": \"50\", \"n_embd\": 0, \"n_layer\": 1.5,"
           "\"n_head\": null, \"layer_norm_epsilon\": -1, \"tie_word_embeddings\": 1}"),
      "error: 'config.json': key 'vocab_size' should be a whole number, not a string\n"
      "error: 'config.json': key 'n_embd' should be at least 1, not 0\n"
      "error: 'config.json': key 'n_layer' should be a whole number, not 1.5\n"
      "error: 'config.json': key 'n_head' should be a whole number, not null\n"
      "error: 'config.json': key 'n_positions' is missing\n"
      "error: 'config.json': key 'layer_norm_epsilon' should be at least 0, not -1\n"
      "error: 'config.json': key 'tie_word_embeddings' should be true or false, not 1\n");
}

/* Without how experts are balanced in training, which config.json does not say. */
static const char *without_balance(const char *sizes) {
  char *copy = tsr_arena_strdup(arena, sizes);
  for (char *at; (at = strstr(copy, "\nbalance."));)
    memmove(at, strchr(at + 1, '\n'), strlen(strchr(at + 1, '\n')) + 1);
  return copy;
}

/* A model of configs/models: out of it a config.json, and out of that the same sizes. */
static void test_round_trip(const char *name) {
  const char *path = tsr_arena_printf(arena, TSR_SOURCE_ROOT "/configs/models/%s.yaml", name);
  tsr_config *config;
  tsr_hf_export_config written;
  const cJSON *ids = NULL;
  char *text;
  size_t length;
  tsr_text json = {0};
  bool ok = tsr_config_load(arena, path, NULL, 0, &config, diags) &&
            tsr_hf_config_of(arena, config, 0, -1, graphs, &written, diags) &&
            tsr_file_read_regular(arena, path, 1 << 20, TSR_NOWHERE, &text, &length, diags);
  CHECK_AT(ok, "%s: %s", name, printed_diags(arena, diags));
  if (ok) {
    tsr_hf_config_json(&written, "float32", ids, &json);
    const char *given = strstr(text, "transformer_config:\n");
    CHECK_STR(without_balance(read(json.data)), without_balance(sizes_of(given)));
  }
  tsr_text_free(&json);
}

static void test_json(void) {
  static const char llama[] =
      "transformer_config:\n  model_type: llama\n  vocab_size: 50\n  pad_token: 3\n"
      "  embedding_dim: 32\n  num_heads: 4\n  num_groups: 2\n  num_blocks: 2\n"
      "  max_sequence_length: 64\n  intermediate_dim: 48\n  theta: 500000.0\n"
      "  rope_scaling:\n    scaling_factor: 8.0\n    high_freq_factor: 4.0\n"
      "    low_freq_factor: 1.0\n    original_context_length: 16\n  norm_eps: 1e-05\n"
      "  weight_tying: enabled\n  head_dim: 8\n";
  const char *json =
      json_of(llama, "bfloat16", "{\"eos_token_id\": [1, 2], \"bos_token_id\": 0, \"x\": 1}");
  CHECK_STR(
      json,
      "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
      "  \"torch_dtype\": \"bfloat16\",\n  \"bos_token_id\": 0,\n  \"eos_token_id\": [1, 2],\n  "
      "\"vocab_size\": 50,\n  \"hidden_size\": 32,\n"
      "  \"intermediate_size\": 48,\n  \"num_hidden_layers\": 2,\n  \"num_attention_heads\": 4,\n"
      "  \"num_key_value_heads\": 2,\n  \"head_dim\": 8,\n  \"max_position_embeddings\": 64,\n"
      "  \"rms_norm_eps\": 1e-05,\n  \"hidden_act\": \"silu\",\n  \"attention_dropout\": 0.0,\n"
      "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n  \"rope_theta\": 500000.0,\n"
      "  \"rope_scaling\": {\n    \"rope_type\": \"llama3\",\n    \"factor\": 8.0,\n"
      "    \"low_freq_factor\": 1.0,\n    \"high_freq_factor\": 4.0,\n"
      "    \"original_max_position_embeddings\": 16\n  },\n  \"tie_word_embeddings\": true,\n"
      "  \"pad_token_id\": 3\n}\n");
  CHECK_STR(read_text(json), llama);
}

int main(void) {
  static const char *const models[] = {
      "gpt2-124m",      "llama-3.2-1b",     "llama-3.1-405b", "smollm2-135m",  "qwen3-0.6b",
      "qwen3-32b",      "mixtral-8x7b",     "qwen3-30b-a3b",  "olmoe-1b-7b",   "qwen1.5-moe-a2.7b",
      "tinyllama-1.1b", "deepseek-v2-lite", "deepseek-v3",    "gpt-oss-20b",   "glm-4.5-air",
      "qwen2.5-0.5b",   "gemma-2-2b",       "gemma-3-1b",     "phi-3-mini-4k", "phi-4",
      "olmo-2-7b",      "smollm3-3b",       "granite-3.1-2b", "starcoder2-3b", "pythia-160m"};
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  test_gpt2();
  test_llama();
  test_llama_rope_scaling();
  test_mistral();
  test_qwen3();
  test_refused();
  test_pad_token();
  test_switches();
  test_json();
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) test_round_trip(models[i]);
  tsr_arena_free(arena);
  return check_done("hf_config");
}
