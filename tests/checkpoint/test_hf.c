// SPDX-License-Identifier: Apache-2.0
/* Models that transformers wrote (scripts/make_hf_models), imported: the same logits; and exported:
 * the same bytes, in one file or in shards, or rounded to another dtype. */
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/reader.h"
#include "tests/check.h"
#include "tests/checkpoint/hf_session.h"
#include "tests/data/scratch.h"
#include "tests/reference/reference_file.h"

static const char graphs[] = TSR_SOURCE_ROOT "/configs/graphs";
static const tsr_hf_import_options import_options = {.graphs_folder = graphs, .version = "test"};
static tsr_arena *arena;
static tsr_diags *diags;

static bool import(const char *folder, const char *out) {
  bool ok = tsr_hf_import(arena, folder, out, &import_options, diags);
  const char *said = scratch_diags(diags);
  CHECK_AT(ok, "%s: %s", folder, said);
  return ok;
}

static bool export(const char *folder, const char *out, const char *dtype, int64_t shard_bytes) {
  tsr_hf_export_options options = {graphs, dtype, shard_bytes};
  bool ok = tsr_hf_export(arena, folder, out, &options, diags);
  CHECK_AT(ok, "%s: %s", folder, scratch_diags(diags));
  return ok;
}

static void check_logits(const char *checkpoint, const char *reference) {
  tsr_reference *ref = tsr_reference_open(reference);
  int ndim;
  int64_t shape[TSR_REFERENCE_DIMS_MAX], vocab = 0;
  const float *want = tsr_reference_f32(ref, "logits", &ndim, shape);
  const int32_t *ends = ndim == 2 ? tsr_reference_i32(ref, "ends", NULL, NULL) : NULL;
  const int32_t *tokens = tsr_reference_i32(ref, "tokens", &ndim, shape);
  int64_t sequence = shape[1];
  const float *got =
      hf_session_logits(arena, checkpoint, tokens, (int)shape[0], (int)sequence, &vocab, diags);
  want = tsr_reference_f32(ref, "logits", &ndim, shape);
  CHECK_AT(got && vocab == shape[ndim - 1], "%s: %s", checkpoint, scratch_diags(diags));
  float largest = 0, error = 0;
  int64_t rows = ndim == 2 ? shape[0] : shape[0] * sequence;
  for (int64_t i = 0; got && i < rows * vocab; i++) {
    int64_t row = i / vocab;
    if (ndim == 2) row = row * sequence + ends[row] - 1; /* classes: of the last real token */
    largest = fmaxf(largest, fabsf(want[i]));
    error = fmaxf(error, fabsf(got[row * vocab + i % vocab] - want[i]));
  }
  CHECK_AT(error <= 1e-5f * largest, "%s: %g of %g", checkpoint, (double)error, (double)largest);
  tsr_reference_close(ref);
}

/* The text that transformers makes greedily of the first tokens. */
static void check_generated(const char *checkpoint, const char *reference) {
  enum { PROMPT = 10, MOST = 64 };
  tsr_reference *ref = tsr_reference_open(reference);
  int ndim;
  int64_t shape[TSR_REFERENCE_DIMS_MAX];
  const int32_t *tokens = tsr_reference_i32(ref, "tokens", NULL, NULL);
  const int32_t *want = tsr_reference_i32(ref, "generated", &ndim, shape);
  int count = (int)shape[0];
  CHECK(ndim == 1 && count > 0 && count < MOST);
  const int32_t *got = hf_session_generate(arena, checkpoint, tokens, PROMPT, count, diags);
  CHECK_AT(got != NULL, "%s: %s", checkpoint, scratch_diags(diags));
  for (int i = 0; got && i < count; i++)
    CHECK_AT(got[i] == want[i], "%s: token %d is %d, not %d", checkpoint, i, got[i], want[i]);
  tsr_reference_close(ref);
}

/* Two folders have the same tensors, byte by byte. */
static void check_same(const char *left, const char *right, int files) {
  tsr_hf_folder a, b;
  bool ok =
      tsr_hf_folder_open(arena, left, &a, diags) && tsr_hf_folder_open(arena, right, &b, diags);
  CHECK_AT(ok, "%s", scratch_diags(diags));
  if (!ok) return;
  CHECK_INT(b.tensors_count, a.tensors_count);
  CHECK_AT(files < 0 ? b.files_count > 2 : b.files_count == files, "%d files", b.files_count);
  for (int i = 0; i < a.tensors_count && i < b.tensors_count; i++) {
    const tsr_safetensor *t = a.tensors[i].tensor, *u = b.tensors[i].tensor;
    CHECK_STR(u->name, t->name);
    CHECK_STR(u->dtype, t->dtype);
    CHECK(t->ndim == u->ndim && !memcmp(t->shape, u->shape, sizeof t->shape));
    const char *x = a.tensors[i].file->map + t->offset, *y = b.tensors[i].file->map + u->offset;
    CHECK_AT(t->bytes == u->bytes && !memcmp(x, y, (size_t)t->bytes), "%s differs", t->name);
  }
  tsr_hf_folder_close(&a);
  tsr_hf_folder_close(&b);
}

static void check_same_file(const char *left, const char *right) {
  char *a = NULL, *b = NULL;
  size_t n = 0, m = 1;
  CHECK(
      tsr_file_read(arena, left, 1 << 24, TSR_NOWHERE, &a, &n, diags) &&
      tsr_file_read(arena, right, 1 << 24, TSR_NOWHERE, &b, &m, diags));
  CHECK_AT(n == m && !memcmp(a, b, n), "%s and %s differ", left, right);
}

static void check_manifest(const char *folder, const char *dtype) {
  tsr_manifest m;
  tsr_checkpoint_reader *input;
  bool ok = tsr_manifest_read(arena, folder, TSR_NOWHERE, &m, diags) &&
            tsr_checkpoint_reader_open(arena, &m, true, &input, diags);
  CHECK_AT(ok, "%s", scratch_diags(diags));
  if (!ok) return;
  CHECK_AT(tsr_checkpoint_reader_verify(input, diags), "%s", scratch_diags(diags));
  CHECK(!m.has_state && m.state.step == 0 && isnan(m.state.loss));
  CHECK_STR(m.config, "config.yaml");
  CHECK_STR(m.version, "test");
  for (int i = 0; i < m.tensors_count; i++) {
    bool chooses = strstr(m.tensors[i].name, "moe.bias") != NULL; /* f32 in every model */
    CHECK_STR(tsr_dtype_name(m.tensors[i].dtype), chooses ? "f32" : dtype);
  }
  tsr_checkpoint_reader_close(input);
}

static void test_model(const char *name, const char *dtype) {
  const char *data = TSR_SOURCE_ROOT "/tests/checkpoint/data";
  const char *source = tsr_arena_printf(arena, "%s/hf_%s", data, name);
  bool ok = tsr_hf_import(arena, source, name, &import_options, diags);
  CHECK_STR(scratch_diags(diags), "");
  CHECK_AT(ok, "%s is not imported", name);
  if (!ok) return;
  check_manifest(name, dtype);
  check_logits(name, tsr_arena_printf(arena, "%s/hf_%s.safetensors", data, name));

  const char *out = tsr_arena_printf(arena, "%s-out", name);
  const char *shards = tsr_arena_printf(arena, "%s-shards", name);
  if (!export(name, out, NULL, 0) || !export(name, shards, NULL, 4000)) return;
  check_same(source, out, 1);
  check_same(source, shards, -1);
  const char *ids = tsr_arena_printf(arena, "%s/generation_config.json", source);
  if (tsr_file_exists(ids))
    check_same_file(ids, tsr_arena_printf(arena, "%s/generation_config.json", out));

  /* What was exported is imported as it was before. */
  const char *again = tsr_arena_printf(arena, "%s-again", name);
  if (!import(shards, again)) return;
  check_same_file(
      tsr_arena_printf(arena, "%s/rank-00000.safetensors", name),
      tsr_arena_printf(arena, "%s/rank-00000.safetensors", again));
  check_same_file(
      tsr_arena_printf(arena, "%s/config.yaml", name),
      tsr_arena_printf(arena, "%s/config.yaml", again));
}

/* One whose file has a text, too. */
static void test_family(const char *name, const char *dtype) {
  test_model(name, dtype);
  check_generated(
      name,
      tsr_arena_printf(arena, TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_%s.safetensors", name));
}

static uint16_t round_to_bf16(uint32_t bits) { /* to the nearest, ties to even */
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The transposed tensors of GPT-2 and the others, rounded to bf16; and bf16 widened to f32. */
static void test_dtypes(void) {
  tsr_hf_folder a, b;
  if (!export("gpt2", "gpt2-bf16", "bf16", 0) || !import("gpt2-bf16", "gpt2-bf16-in") ||
      !export("gpt2-bf16-in", "gpt2-f32", "f32", 0))
    return;
  CHECK(tsr_hf_folder_open(arena, "gpt2-out", &a, diags));
  for (int wide = 0; wide < 2; wide++) {
    CHECK(tsr_hf_folder_open(arena, wide ? "gpt2-f32" : "gpt2-bf16", &b, diags));
    CHECK_INT(a.tensors_count, b.tensors_count);
    for (int i = 0; i < a.tensors_count; i++) {
      const tsr_safetensor *t = a.tensors[i].tensor, *u = b.tensors[i].tensor;
      const char *x = a.tensors[i].file->map + t->offset, *y = b.tensors[i].file->map + u->offset;
      CHECK_STR(u->dtype, wide ? "F32" : "BF16");
      bool same = u->bytes == (wide ? t->bytes : t->bytes / 2);
      for (int64_t k = 0; same && k < t->bytes / 4; k++) {
        uint32_t bits, got = 0;
        memcpy(&bits, x + 4 * k, 4);
        memcpy(&got, y + (wide ? 4 : 2) * k, wide ? 4 : 2);
        same = got == (wide ? (uint32_t)round_to_bf16(bits) << 16 : round_to_bf16(bits));
      }
      CHECK_AT(same, "%s is not %s", t->name, wide ? "widened" : "rounded");
    }
    tsr_hf_folder_close(&b);
  }
  tsr_hf_folder_close(&a);
}

/* Experts in every dtype: what is exported comes back byte by byte. */
static void test_expert_dtypes(const char *model) {
  static const char *const dtypes[] = {"f32", "bf16", "f16"};
  for (int i = 0; i < 3; i++) {
    const char *out = tsr_arena_printf(arena, "%s-%s", model, dtypes[i]);
    const char *in = tsr_arena_printf(arena, "%s-in", out);
    const char *again = tsr_arena_printf(arena, "%s-again", out);
    if (!export(model, out, dtypes[i], 4000) || !import(out, in) || !export(in, again, NULL, 0))
      return;
    check_manifest(in, dtypes[i]);
    check_same(out, again, 1);
  }
}

static bool has_line(const char *path, const char *line) {
  char *text = "";
  size_t length;
  return tsr_file_read(arena, path, 1 << 20, TSR_NOWHERE, &text, &length, diags) &&
         strstr(text, line);
}

/* Tokenizer files go along both ways; the ids of special tokens come from config.json where there
 * is no generation_config.json. */
static void test_side_files(void) {
  int status = system("cp -r " TSR_SOURCE_ROOT
                      "/tests/checkpoint/data/hf_smollm2 s && rm s/generation_config.json"
                      " && cp " TSR_SOURCE_ROOT "/tests/data/bpe/gpt2.json s/tokenizer.json"
                      " && echo '{}' >s/special_tokens_map.json"
                      " && echo '{{ messages }}' >s/chat_template.jinja");
  CHECK_INT(status, 0);
  if (!import("s", "s-in/") || !export("s-in/", "s-out//", NULL, 0)) return;
  check_same("s", "s-out", 1);
  check_same_file("s/tokenizer.json", "s-out/tokenizer.json");
  check_same_file("s/special_tokens_map.json", "s-out/special_tokens_map.json");
  CHECK(has_line("s-out/tokenizer_config.json", "\"PreTrainedTokenizerFast\""));
  CHECK(has_line("s-out/config.json", "\"eos_token_id\": 2,"));
  /* of more tokens than the model has; test_import_sides.sh has one that can be used */
  CHECK(!has_line("s-in/config.yaml", "tokenizer_type"));
  tsr_manifest m;
  CHECK(tsr_manifest_read(arena, "s-in", TSR_NOWHERE, &m, diags));
  CHECK(!m.tokenizer);
}

/* A tokenizer that cannot be used is kept, and said; texts then are none of the model's. Ids that
 * config.json alone has go beside those of generation_config.json. */
static void test_strange_side_files(void) {
  int status =
      system("cp -r " TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_smollm2 t"
             " && echo '{\"model\": {\"type\": \"Unigram\"}}' >t/tokenizer.json"
             " && echo '{\"eos_token_id\": [7, 8], \"top_k\": 5}' >t/generation_config.json");
  CHECK_INT(status, 0);
  CHECK(tsr_hf_import(arena, "t", "t-in", &import_options, diags));
  const char *said = scratch_diags(diags);
  CHECK_AT(
      strstr(
          said, "warning: 't/tokenizer.json' cannot be used, so the model reads token numbers") ==
          said,
      "%s", said);
  if (!export("t-in", "t-out", NULL, 0)) return;
  check_same_file("t/tokenizer.json", "t-out/tokenizer.json");
  CHECK(!has_line("t-in/config.yaml", "tokenizer_type"));
  tsr_manifest m;
  CHECK(tsr_manifest_read(arena, "t-in", TSR_NOWHERE, &m, diags));
  CHECK(!m.tokenizer);
  CHECK(has_line("t-out/generation_config.json", "\"top_k\":\t5"));
  CHECK(has_line("t-out/config.json", "\"eos_token_id\": [7, 8],"));
  CHECK(has_line("t-out/config.json", "\"bos_token_id\": 1,"));
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  test_model("gpt2", "f32");
  test_model("llama_classes", "f32");
  test_model("gpt2_classes", "f32");
  test_model("llama", "bf16");
  test_model("qwen3", "f16");
  test_model("mistral", "f32");
  CHECK(has_line("mistral/config.yaml", "  sliding_window: 5"));
  CHECK(has_line("mistral-out/config.json", "\"architectures\": [\"MistralForCausalLM\"],"));
  CHECK(has_line("mistral-out/config.json", "\"sliding_window\": 5,"));
  test_model("smollm2", "bf16");
  test_model("llama_bias", "f32");
  test_model("gpt2_tanh", "f32");
  test_model("deepseek_v3", "bf16");
  CHECK(has_line("deepseek_v3-out/config.json", "\"architectures\": [\"DeepseekV3ForCausalLM\"],"));
  test_model("deepseek_v3_moe", "bf16");
  CHECK(has_line("deepseek_v3_moe-out/config.json", "\"topk_method\": \"noaux_tc\","));
  test_model("deepseek_v2_moe", "f16");
  CHECK(has_line("deepseek_v2_moe-out/config.json", "\"model_type\": \"deepseek_v2\","));
  CHECK(has_line("deepseek_v2_moe-out/config.json", "\"topk_method\": \"group_limited_greedy\","));
  test_model("mixtral", "f32");
  CHECK(has_line("mixtral-out/config.json", "\"num_local_experts\": 4,"));
  CHECK(has_line("mixtral-out/config.json", "\"sliding_window\": 5,"));
  test_model("qwen3_moe", "f16");
  CHECK(has_line("qwen3_moe-out/config.json", "\"mlp_only_layers\": [0],"));
  test_model("olmoe", "bf16");
  CHECK(has_line("olmoe-out/config.json", "\"output_router_logits\": true,"));
  test_model("qwen2_moe", "bf16");
  CHECK(has_line("qwen2_moe-out/config.json", "\"decoder_sparse_step\": 2,"));
  CHECK(has_line("qwen2_moe-out/config.json", "\"qkv_bias\": true,"));
  test_dtypes();
  test_expert_dtypes("mixtral");
  test_model("glm4_moe", "bf16");
  CHECK(has_line("glm4_moe-out/config.json", "\"use_qk_norm\": true,"));
  test_model("gpt_oss", "bf16");
  CHECK(has_line(
      "gpt_oss-out/config.json", "\"layer_types\": [\"sliding_attention\", \"full_attention\"],"));
  test_model("gpt_oss_f32", "f32");
  CHECK(has_line("gpt_oss_f32-out/config.json", "\"rope_scaling\": {\"rope_type\": \"default\"},"));
  test_family("qwen2", "bf16");
  test_family("smollm3", "f32");
  test_family("olmo2", "bf16");
  test_family("granite", "f16");
  test_family("starcoder2", "bf16");
  test_family("gpt_neox", "f16");
  test_family("phi3", "bf16");
  test_family("gemma2", "bf16");
  test_family("gemma3", "f32");
  test_expert_dtypes("deepseek_v3_moe");
  test_expert_dtypes("glm4_moe");
  test_expert_dtypes("gpt_oss");
  test_expert_dtypes("deepseek_v2_moe");
  check_same(TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_mixtral", "mixtral-f32-again", 1);
  test_side_files();
  test_strange_side_files();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("hf");
}
