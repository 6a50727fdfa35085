// SPDX-License-Identifier: Apache-2.0
/* Folders in fp8 and in MXFP4 (scripts/make_hf_models), imported: the tensors and logits that PyTorch makes of
 * them; exported in bf16. And folders whose scales are not as they should be. */
#include "base/file_read.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_quantized.h"
#include "checkpoint/mxfp4.h"
#include "tests/check.h"
#include "tests/checkpoint/hf_session.h"
#include "tests/data/scratch.h"
#include "tests/reference/reference_file.h"
#include <math.h>

#define DATA TSR_SOURCE_ROOT "/tests/checkpoint/data/"
static const char graphs[] = TSR_SOURCE_ROOT "/configs/graphs";
static const char fp8[] = DATA "hf_deepseek_v3_fp8", mxfp4[] = DATA "hf_gpt_oss_mxfp4";
static tsr_arena *arena;
static tsr_diags *diags;

static bool import(const char *folder, const char *out) {
  tsr_hf_import_options options = {.graphs_folder = graphs, .version = "test"};
  return tsr_hf_import(arena, folder, out, &options, diags);
}

/* ---- numbers ---- */

/* All 256 of fp8, in whole blocks and at the ends, from any element on. */
static void test_blocks(void) {
  tsr_safetensors file;
  bool ok = tsr_safetensors_open(arena, DATA "fp8_blocks.safetensors", TSR_NOWHERE, &file, diags);
  CHECK_AT(ok, "%s", scratch_diags(diags));
  if (!ok) return;
  int at = tsr_safetensors_find(&file, "x.weight"),
      scales_at = tsr_safetensors_find(&file, "x.weight_scale_inv"),
      want_at = tsr_safetensors_find(&file, "expected");
  tsr_hf_tensor scales = {.tensor = &file.tensors[scales_at], .file = &file};
  tsr_hf_tensor weight = {.tensor = &file.tensors[at], .file = &file, .scales = &scales};
  tsr_hf_quantization q = {TSR_HF_FP8, {128, 128}};
  static const int64_t parts[][2] = {{0, 129 * 130}, {127, 3}, {16510, 260}, {16769, 1}};
  const float *want = (const float *)(const void *)(file.map + file.tensors[want_at].offset);
  CHECK(tsr_hf_is_quantized(&q, &weight));
  for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
    int64_t first = parts[p][0], n = parts[p][1], wrong = 0;
    float *got = tsr_arena_array(arena, float, n);
    tsr_hf_dequantize(&q, &weight, first, n, got);
    for (int64_t i = 0; i < n; i++) {
      bool nan = isnan(want[first + i]);
      wrong += nan ? !isnan(got[i]) : memcmp(&got[i], &want[first + i], sizeof *got) != 0;
    }
    CHECK_AT(
        wrong == 0, "%lld of %lld elements from %lld on", (long long)wrong, (long long)n,
        (long long)first);
  }
  tsr_safetensors_close(&file);
}

/* Every number of 4 bits; a half of a byte is the lower one first. Scales are powers of 2 from 2^-127
 * on, and NaN. */
static void test_mxfp4(void) {
  static const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  static const uint8_t scales[] = {0, 126, 127, 130, 253, 255};
  uint8_t blocks[6 * TSR_MXFP4_BLOCK_BYTES];
  float got[6 * TSR_MXFP4_BLOCK];
  for (int i = 0; i < 6 * TSR_MXFP4_BLOCK_BYTES; i++) blocks[i] = (uint8_t)(i * 34 + 16);
  tsr_mxfp4_decode(blocks, scales, 6, got);
  for (int i = 0; i < 6 * TSR_MXFP4_BLOCK; i++) {
    int bits = blocks[i / 2] >> (i % 2 ? 4 : 0) & 15, scale = scales[i / TSR_MXFP4_BLOCK];
    double want = (bits & 8 ? -1 : 1) * (double)numbers[bits & 7] * pow(2, scale - 127);
    CHECK_AT(scale == 255 ? isnan(got[i]) : got[i] == (float)want, "number %d: %g", i, got[i]);
  }
}

/* ---- a folder ---- */

static void shell(const char *command) {
  int status = system(command);
  CHECK_AT(status == 0, "%s", command);
}

static void check_logits(tsr_reference *ref) {
  int ndim;
  int64_t shape[TSR_REFERENCE_DIMS_MAX], vocab = 0;
  const float *want = tsr_reference_f32(ref, "logits", &ndim, shape);
  const int32_t *tokens = tsr_reference_i32(ref, "tokens", NULL, NULL);
  const float *got =
      hf_session_logits(arena, "in", tokens, (int)shape[0], (int)shape[1], &vocab, diags);
  CHECK_AT(got && vocab == shape[2], "%s", scratch_diags(diags));
  float largest = 0, error = 0;
  for (int64_t i = 0; got && i < shape[0] * shape[1] * shape[2]; i++) {
    largest = fmaxf(largest, fabsf(want[i]));
    error = fmaxf(error, fabsf(got[i] - want[i]));
  }
  CHECK_AT(error <= 1e-5f * largest, "%g of %g", (double)error, (double)largest);
}

/* What is exported are PyTorch's tensors, byte by byte. */
static void check_export(const char *dequantized) {
  tsr_safetensors want;
  tsr_hf_folder got;
  tsr_hf_export_options options = {graphs, NULL, 0};
  bool ok = tsr_hf_export(arena, "in", "out", &options, diags) &&
            tsr_safetensors_open(arena, dequantized, TSR_NOWHERE, &want, diags) &&
            tsr_hf_folder_open(arena, "out", &got, diags);
  CHECK_AT(ok, "%s", scratch_diags(diags));
  if (!ok) return;
  CHECK_INT(got.tensors_count, want.tensors_count);
  for (int i = 0; i < got.tensors_count; i++) {
    const tsr_safetensor *t = got.tensors[i].tensor;
    int at = tsr_safetensors_find(&want, t->name);
    CHECK_AT(at >= 0, "%s", t->name);
    if (at < 0) continue;
    const tsr_safetensor *u = &want.tensors[at];
    CHECK_STR(t->dtype, u->dtype);
    CHECK_AT(
        t->bytes == u->bytes &&
            !memcmp(got.tensors[i].file->map + t->offset, want.map + u->offset, (size_t)t->bytes),
        "%s differs", t->name);
  }
  tsr_hf_folder_close(&got);
  tsr_safetensors_close(&want);
}

static void test_folder(const char *source, const char *tensors) {
  bool ok = import(source, "in");
  const char *said = scratch_diags(diags);
  CHECK_STR(said, tsr_arena_printf(arena, "note: '%s': %s are taken in bf16\n", source, tensors));
  if (!ok) return;
  tsr_reference *ref = tsr_reference_open(tsr_arena_printf(arena, "%s.safetensors", source));
  check_logits(ref);
  tsr_reference_close(ref);
  check_export(tsr_arena_printf(arena, "%s_dequantized.safetensors", source));
  shell("rm -r in out");
}

/* ---- what is refused ---- */

/* The folder "bad" with another piece of text of the same length in the header of its weights. */
static void make_bad_of(const char *folder, const char *from, const char *to) {
  shell("rm -rf bad && mkdir bad");
  shell(tsr_arena_printf(arena, "cp %s/config.json %s/model.safetensors bad/", folder, folder));
  shell(tsr_arena_printf(arena, "LC_ALL=C sed -i 's/%s/%s/' bad/model.safetensors", from, to));
}

static void make_bad(const char *from, const char *to) { make_bad_of(fp8, from, to); }

static void check_refused(const char *want) {
  CHECK(!import("bad", "none"));
  CHECK_STR(scratch_diags(diags), want);
  CHECK(access("none", F_OK) && access("none.partial", F_OK));
}

static void test_refused(void) {
  make_bad("layers.0.mlp.up_proj.weight_scale_inv", "layers.0.mlp.up_proj.weight_scale_new");
  check_refused(
      "error: 'bad/model.safetensors': tensor 'model.layers.0.mlp.up_proj.weight' is quantized, "
      "but there is no 'model.layers.0.mlp.up_proj.weight_scale_inv'\n"
      "error: 'bad/model.safetensors': tensor 'model.layers.0.mlp.up_proj.weight_scale_new' of "
      "shape (4, 2) has no place in the model\n");
  make_bad(
      "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":\\[16\\]",
      "\"model.norm.weight\":{\"dtype\":\"I16\", \"shape\":[16]");
  check_refused(
      "error: 'bad/model.safetensors': tensor 'model.norm.weight' has the dtype I16; F32, "
      "BF16 and F16 are taken\n");
  make_bad("norm", "norm");
  shell("sed -i 's/\"fmt\": \"e4m3\"/\"fmt\": \"e5m2\"/' bad/config.json");
  check_refused("error: 'bad/config.json': quantization_config 'fp8' is not supported\n"
                "      = supported: weights in float32, bfloat16 or float16, 'fp8' of e4m3 with a "
                "weight_block_size, and 'mxfp4'\n");
  make_bad("norm", "norm");
  shell("tr -d '\\n' <bad/config.json | sed 's/\\[ *6, *10 *\\]/[6, 12]/' >bad/c && "
        "mv bad/c bad/config.json");
  CHECK(!import("bad", "none"));
  CHECK(scratch_diags_start(
      diags,
      "error: 'bad/model.safetensors': tensor "
      "'model.layers.0.self_attn.q_b_proj.weight_scale_inv' has the shape (7, 2), not (7, 1) "
      "as the blocks of 'model.layers.0.self_attn.q_b_proj.weight' need\n"));
  make_bad("norm", "norm");
  shell("sed -i 's/quantization_config/quantized_otherwise/' bad/config.json");
  CHECK(!import("bad", "none"));
  CHECK(scratch_diags_start(
      diags,
      "error: 'bad/model.safetensors': tensor 'model.layers.0.self_attn.q_a_proj.weight' has "
      "the dtype F8_E4M3; F32, BF16 and F16 are taken\n"));
}

static void test_mxfp4_refused(void) {
  make_bad_of(mxfp4, "experts.down_proj_scales", "experts.down_proj_scaled");
  check_refused(
      "error: 'bad/model.safetensors': tensor 'model.layers.0.mlp.experts.down_proj_blocks' is "
      "quantized, but there is no 'model.layers.0.mlp.experts.down_proj_scales'\n"
      "error: 'bad/model.safetensors': tensor 'model.layers.0.mlp.experts.down_proj_scaled' of "
      "shape (2, 64, 1) has no place in the model\n");
  make_bad_of(mxfp4, "\\[2,64,1,16\\]", "[2,32,2,16]");
  check_refused(
      "error: 'bad/model.safetensors': tensor 'model.layers.0.mlp.experts.down_proj_blocks' is U8 "
      "of shape (2, 32, 2, 16), not U8 of shape (2, 64, 1, 16)\n");
  make_bad_of(mxfp4, "norm", "norm");
  shell("sed -i 's/\"intermediate_size\": 32/\"intermediate_size\": 16/' bad/config.json");
  CHECK(!import("bad", "none"));
  CHECK(strstr(
      scratch_diags(diags),
      "tensor 'model.layers.0.mlp.experts.down_proj_blocks' is in MXFP4, whose blocks of 32 do "
      "not fit the shape (2, 16, 64) of its values\n"));
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  test_blocks();
  test_mxfp4();
  test_folder(fp8, "40 tensors of fp8 (e4m3, blocks of 6 x 10)");
  test_folder(mxfp4, "2 tensors of MXFP4");
  test_refused();
  test_mxfp4_refused();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("hf_quantized");
}
