// SPDX-License-Identifier: Apache-2.0
/* DoRA (Liu et al. 2024): the norms of the rows of W + scale B A, without that sum in memory. */
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/level.h"

enum { AT_ONCE = 1024 };

/* n elements of w from `at` on; `place` has room for them. */
static const float *weights(const tsr_matrix *w, int64_t at, int64_t n, float *place) {
  if (w->type == TSR_ELEMENT_F32) return (const float *)w->data + w->first + at;
  LEVEL(quantized_to_f32)(place, &w->quantized, w->first + at, n);
  return place;
}

/* Columns [first, first + n) of a row, n at most AT_ONCE, into x; w are those of W. */
static void add_row(
    float *x, const float *w, const float *a, const float *b, int64_t in, int64_t rank, float scale,
    int64_t first, int64_t n) {
  memset(x, 0, sizeof *x * (size_t)n);
  for (int64_t k = 0; k < rank; k++) {
    const float *row = a + k * in + first;
    float factor = b[k];
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) x[i] += factor * row[i];
  }
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) x[i] = w[i] + scale * x[i];
}

void LEVEL(adapted_squares)(
    float *out, const tsr_matrix *w, const float *a, const float *b, int64_t in, int64_t rank,
    float scale, int64_t first, int64_t columns, int64_t begin, int64_t end) {
  float x[AT_ONCE], place[AT_ONCE];
  for (int64_t r = begin; r < end; r++) {
    float sum = 0;
    for (int64_t at = 0; at < columns; at += AT_ONCE) {
      int64_t n = columns - at < AT_ONCE ? columns - at : AT_ONCE;
      const float *row = weights(w, r * in + first + at, n, place);
      add_row(x, row, a, b + r * rank, in, rank, scale, first + at, n);
      sum += row_sum_squares(x, 0, n);
    }
    out[r] = sum;
  }
}

void LEVEL(divide_root)(
    float *y, const float *x, const float *squares, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) y[i] = squares[i] > 0 ? x[i] / sqrtf(squares[i]) : 0;
}
