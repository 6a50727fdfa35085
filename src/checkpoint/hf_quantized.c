// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_quantized.h"
#include "checkpoint/mxfp4.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- config.json ---- */

static bool refuse(tsr_arena *arena, const char *path, const cJSON *item, tsr_diags *diags) {
  const cJSON *method = tsr_json_get(item, "quant_method");
  const char *name =
      cJSON_IsString(method) ? tsr_arena_printf(arena, " '%s'", method->valuestring) : "";
  tsr_diag_error(diags, TSR_NOWHERE, "'%s': quantization_config%s is not supported", path, name);
  tsr_diag_hint(
      diags, "supported: weights in float32, bfloat16 or float16, 'fp8' of e4m3 with a "
             "weight_block_size, and 'mxfp4'");
  return false;
}

static bool is_text(const cJSON *item, const char *key, const char *value, bool otherwise) {
  const cJSON *text = tsr_json_get(item, key);
  if (!text || cJSON_IsNull(text)) return otherwise;
  return cJSON_IsString(text) && !strcmp(text->valuestring, value);
}

bool tsr_hf_quantization_read(
    tsr_arena *arena, const char *path, const cJSON *item, tsr_hf_quantization *ret,
    tsr_diags *diags) {
  *ret = (tsr_hf_quantization){0};
  if (!item || cJSON_IsNull(item)) return true;
  if (cJSON_IsObject(item) && is_text(item, "quant_method", "mxfp4", false))
    return ret->kind = TSR_HF_MXFP4, true;
  const cJSON *block = tsr_json_get(item, "weight_block_size");
  bool ok = cJSON_IsObject(item) && is_text(item, "quant_method", "fp8", false) &&
            is_text(item, "fmt", "e4m3", true) && cJSON_IsArray(block) &&
            cJSON_GetArraySize(block) == 2;
  for (int i = 0; ok && i < 2; i++) {
    const cJSON *size = cJSON_GetArrayItem(block, i);
    ok = cJSON_IsNumber(size) && size->valuedouble >= 1 && size->valuedouble <= 1e9 &&
         size->valuedouble == floor(size->valuedouble);
    if (ok) ret->block[i] = (int64_t)size->valuedouble;
  }
  if (!ok) return refuse(arena, path, item, diags);
  ret->kind = TSR_HF_FP8;
  return true;
}

const char *tsr_hf_quantization_text(tsr_arena *arena, const tsr_hf_quantization *q) {
  if (q->kind == TSR_HF_MXFP4) return "MXFP4";
  return tsr_arena_printf(
      arena, "fp8 (e4m3, blocks of %" PRId64 " x %" PRId64 ")", q->block[0], q->block[1]);
}

/* ---- tensors ---- */

bool tsr_hf_is_quantized(const tsr_hf_quantization *q, const tsr_hf_tensor *t) {
  return q->kind == TSR_HF_FP8 && !strcmp(t->tensor->dtype, "F8_E4M3");
}

static int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

static bool check_scales(
    const tsr_hf_quantization *q, const tsr_hf_tensor *t, const tsr_hf_tensor *scales,
    tsr_diags *diags) {
  const tsr_safetensor *s = scales->tensor;
  const int64_t want[] = {
      blocks(t->tensor->shape[0], q->block[0]), blocks(t->tensor->shape[1], q->block[1])};
  if (s->ndim != 2 || s->shape[0] != want[0] || s->shape[1] != want[1])
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s': tensor '%s' has the shape %s, not %s as the blocks of '%s' need",
        scales->file->path, s->name, tsr_shape_text(s->ndim, s->shape).text,
        tsr_shape_text(2, want).text, t->tensor->name);
  if (!strcmp(s->dtype, "F32") || !strcmp(s->dtype, "BF16")) return true;
  return tsr_diag_error(
      diags, TSR_NOWHERE, "'%s': tensor '%s' has the dtype %s; scales are taken in F32 and BF16",
      scales->file->path, s->name, s->dtype);
}

bool tsr_hf_quantized_open(
    const tsr_hf_quantization *q, const tsr_hf_folder *folder, tsr_hf_tensor *t, tsr_diags *diags) {
  const char *name = tsr_arena_printf(folder->arena, "%s_scale_inv", t->tensor->name);
  if (t->tensor->ndim != 2)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s': tensor '%s' of shape %s is quantized, but no matrix",
        t->file->path, t->tensor->name, tsr_shape_text(t->tensor->ndim, t->tensor->shape).text);
  tsr_hf_tensor *scales = tsr_hf_folder_find(folder, name);
  if (!scales)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s': tensor '%s' is quantized, but there is no '%s'", t->file->path,
        t->tensor->name, name);
  scales->used = true;
  t->scales = scales;
  return check_scales(q, t, scales, diags);
}

/* One sign bit, four of the exponent with bias 7, three of the mantissa; no infinities, and all
 * ones are NaN (Micikevicius et al. 2022). */
static float from_e4m3(uint8_t bits) {
  int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 127) == 127) return NAN;
  float value =
      exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
  return bits & 128 ? -value : value;
}

static float scale_at(const tsr_hf_tensor *scales, int64_t index) {
  const char *data = scales->file->map + scales->tensor->offset;
  uint32_t bits = 0;
  uint16_t half;
  if (!strcmp(scales->tensor->dtype, "F32")) memcpy(&bits, data + 4 * index, 4);
  else memcpy(&half, data + 2 * index, 2), bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

void tsr_hf_dequantize(
    const tsr_hf_quantization *q, const tsr_hf_tensor *t, int64_t first, int64_t n, float *ret) {
  const uint8_t *data = (const uint8_t *)t->file->map + t->tensor->offset;
  float values[256];
  for (int i = 0; i < 256; i++) values[i] = from_e4m3((uint8_t)i);
  int64_t columns = t->tensor->shape[1], across = blocks(columns, q->block[1]);
  for (int64_t i = first, end; i < first + n; i = end) { /* the part of a row in one block */
    int64_t row = i / columns, column = i % columns, block = column / q->block[1];
    end = row * columns + (block + 1) * q->block[1];
    if (end > (row + 1) * columns) end = (row + 1) * columns;
    if (end > first + n) end = first + n;
    float scale = scale_at(t->scales, row / q->block[0] * across + block);
    for (int64_t k = i; k < end; k++) ret[k - first] = values[data[k]] * scale;
  }
}

/* ---- MXFP4 ---- */

tsr_hf_tensor *
tsr_hf_mxfp4_find(const tsr_hf_quantization *q, const tsr_hf_folder *folder, const char *name) {
  if (q->kind != TSR_HF_MXFP4) return NULL;
  return tsr_hf_folder_find(folder, tsr_arena_printf(folder->arena, "%s_blocks", name));
}

static bool check_bytes(const tsr_hf_tensor *t, int ndim, const int64_t *want, tsr_diags *diags) {
  const tsr_safetensor *s = t->tensor;
  bool same = s->ndim == ndim && !strcmp(s->dtype, "U8");
  for (int d = 0; same && d < ndim; d++) same = s->shape[d] == want[d];
  return same || tsr_diag_error(
                     diags, TSR_NOWHERE, "'%s': tensor '%s' is %s of shape %s, not U8 of shape %s",
                     t->file->path, s->name, s->dtype, tsr_shape_text(s->ndim, s->shape).text,
                     tsr_shape_text(ndim, want).text);
}

bool tsr_hf_mxfp4_open(
    const tsr_hf_folder *folder, tsr_hf_tensor *blocks, const tsr_hf_place *p, tsr_diags *diags) {
  const char *name = blocks->tensor->name;
  int length = (int)(strlen(name) - strlen("blocks"));
  const char *other = tsr_arena_printf(folder->arena, "%.*sscales", length, name);
  bool columns = p->ndim == 3 && p->column == p->whole[2] && p->in % TSR_MXFP4_BLOCK == 0;
  if (!columns)
    return tsr_diag_error(
        diags, TSR_NOWHERE,
        "'%s': tensor '%s' is in MXFP4, whose blocks of %d do not fit the shape %s of its values",
        blocks->file->path, name, TSR_MXFP4_BLOCK, tsr_shape_text(p->ndim, p->whole).text);
  tsr_hf_tensor *scales = tsr_hf_folder_find(folder, other);
  if (!scales)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s': tensor '%s' is quantized, but there is no '%s'",
        blocks->file->path, name, other);
  scales->used = true;
  blocks->scales = scales;
  const int64_t want[] = {p->experts, p->whole[2], p->in / TSR_MXFP4_BLOCK, TSR_MXFP4_BLOCK_BYTES};
  return check_bytes(blocks, 4, want, diags) & check_bytes(scales, 3, want, diags);
}
