// SPDX-License-Identifier: Apache-2.0
/* Quantises matrices to FP8 with a scale for each block (base/fp8_layout.h). */
#include "kernels/cpu/fp8.h"
#include "kernels/cpu/level.h"

enum { BLOCK = TSR_FP8_BLOCK };

/* What of a matrix is read, a row of a tile at a time. */
typedef struct {
  const void *data;
  tsr_element type;
  int64_t stride;
} source;

static void read_row(const source *s, int64_t row, int64_t col, int64_t n, float *to) {
  int64_t at = row * s->stride + col;
  if (s->type == TSR_ELEMENT_BF16) LEVEL(bf16_to_f32)(to, (const uint16_t *)s->data + at, 0, n);
  else memcpy(to, (const float *)s->data + at, sizeof *to * (size_t)n);
}

/* Magnitudes are compared as integers: their order is that of the numbers, and an infinity and NaN
 * are above all others. */
static int32_t largest_of(const float *x, int64_t n) {
  int32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; i++) {
    int32_t magnitude = float_bits(x[i]) & F32_MAGNITUDE;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

static float scale_of(const tsr_fp8_layout *l, int32_t amax) {
  if (amax >= F32_INFINITY) return bits_float(F32_INFINITY | F32_QUIET);
  float scale = bits_float(amax) / tsr_fp8_largest(l->format);
  if (scale < 0x1p-126f) return 0x1p-126f;
  if (l->power_of_two) scale = bits_float((float_bits(scale) + 0x7FFFFF) & F32_INFINITY);
  return scale;
}

static void
write_codes(tsr_fp8_format format, uint8_t *to, const float *x, float scale, int64_t n) {
  if (format == TSR_FP8_E4M3) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = e4m3_nearest(x[i] / scale);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = e5m2_nearest(x[i] / scale);
  }
}

/* The same with a scale for each column. */
static void
write_columns(tsr_fp8_format format, uint8_t *to, const float *x, const float *scale, int64_t n) {
  if (format == TSR_FP8_E4M3) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = e4m3_nearest(x[i] / scale[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = e5m2_nearest(x[i] / scale[i]);
  }
}

/* Blocks of neighbours in a row. */
static void quantize_rows(
    const tsr_fp8_layout *l, const tsr_fp8_tile *t, const source *s, uint8_t *codes,
    float *scales) {
  float x[BLOCK];
  for (int64_t i = 0; i < t->rows; i++) {
    read_row(s, t->row + i, t->col, t->cols, x);
    float scale = scales[t->scale + i * tsr_fp8_scale_cols(l)] =
        scale_of(l, largest_of(x, t->cols));
    write_codes(l->format, codes + (t->row + i) * l->cols + t->col, x, scale, t->cols);
  }
}

/* Blocks of neighbours in a column. */
static void quantize_columns(
    const tsr_fp8_layout *l, const tsr_fp8_tile *t, const source *s, uint8_t *codes,
    float *scales) {
  float x[BLOCK];
  int32_t largest[BLOCK] = {0};
  for (int64_t i = 0; i < t->rows; i++) {
    read_row(s, t->row + i, t->col, t->cols, x);
#pragma omp simd
    for (int64_t j = 0; j < t->cols; j++) {
      int32_t magnitude = float_bits(x[j]) & F32_MAGNITUDE;
      largest[j] = magnitude > largest[j] ? magnitude : largest[j];
    }
  }
  float *scale = scales + t->scale;
  for (int64_t j = 0; j < t->cols; j++) scale[j] = scale_of(l, largest[j]);
  for (int64_t i = 0; i < t->rows; i++) {
    read_row(s, t->row + i, t->col, t->cols, x);
    write_columns(l->format, codes + (t->row + i) * l->cols + t->col, x, scale, t->cols);
  }
}

/* One block. */
static void quantize_square(
    const tsr_fp8_layout *l, const tsr_fp8_tile *t, const source *s, uint8_t *codes,
    float *scales) {
  float x[BLOCK];
  int32_t largest = 0;
  for (int64_t i = 0; i < t->rows; i++) {
    read_row(s, t->row + i, t->col, t->cols, x);
    int32_t of_row = largest_of(x, t->cols);
    largest = of_row > largest ? of_row : largest;
  }
  float scale = scales[t->scale] = scale_of(l, largest);
  for (int64_t i = 0; i < t->rows; i++) {
    read_row(s, t->row + i, t->col, t->cols, x);
    write_codes(l->format, codes + (t->row + i) * l->cols + t->col, x, scale, t->cols);
  }
}

void LEVEL(fp8_quantize)(
    const tsr_fp8_layout *l, uint8_t *codes, float *scales, const void *x, tsr_element type,
    int64_t begin, int64_t end) {
  source s = {x, type, l->cols};
  for (int64_t i = begin; i < end; i++) {
    tsr_fp8_tile t = tsr_fp8_tile_at(l, i);
    if (l->block_rows == 1) quantize_rows(l, &t, &s, codes, scales);
    else if (l->block_cols == 1) quantize_columns(l, &t, &s, codes, scales);
    else quantize_square(l, &t, &s, codes, scales);
  }
}
