// SPDX-License-Identifier: Apache-2.0
/* Norms of adapted weights against sums in double. */
#include "kernel_check.h"

/* Quantised weights have the sums of what they are decoded to. */
static void check_quantized(
    const tsr_kernels *k, const float *w, const float *a, const float *b, int64_t rows, int64_t in,
    int64_t rank, int64_t first, int64_t columns) {
  tsr_quantized_layout layout = {rows, in, rows, in};
  void *bytes = check_alloc((size_t)tsr_quantized_bytes(&layout));
  float *decoded = check_alloc((size_t)(rows * in) * sizeof *decoded), *got[2];
  tsr_quantize(&layout, bytes, w);
  tsr_matrix from[2] = {
      {decoded, in, 1, TSR_ELEMENT_F32},
      {NULL, in, 1, TSR_ELEMENT_CODES, .quantized = {bytes, layout, TSR_ELEMENT_F32}}};
  k->quantized_to_f32(decoded, &from[1].quantized, 0, rows * in);
  for (int i = 0; i < 2; i++) {
    got[i] = check_alloc((size_t)rows * sizeof *got[i]);
    k->adapted_squares(got[i], &from[i], a, b, in, rank, 0.5f, first, columns, 0, rows);
  }
  CHECK(!memcmp(got[0], got[1], (size_t)rows * sizeof *got[0]));
  free(got[0]), free(got[1]), free(decoded), free(bytes);
}

/* of (rows, in), over columns [first, first + columns) */
static void check_squares(
    const tsr_kernels *k, int64_t rows, int64_t in, int64_t rank, int64_t first, int64_t columns) {
  float *w = input_new(rows * in, 1), *a = input_new(rank * in, 1), *b = input_new(rows * rank, 1);
  const float scale = 0.75f;
  tsr_matrix of_w = {w, in, 1, TSR_ELEMENT_F32};
  double *want = reference_new(rows);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = first; c < first + columns; c++) {
      double x = 0;
      for (int64_t i = 0; i < rank; i++) x += (double)b[r * rank + i] * (double)a[i * in + c];
      x = (double)w[r * in + c] + (double)scale * x;
      want[r] += x * x;
    }
  output got = output_new(rows);
  RUN(rows,
      k->adapted_squares(got.pass[pass], &of_w, a, b, in, rank, scale, first, columns, begin, end));
  CHECK_OUTPUT(got, want, 1e-5, 1e-3);
  if (in % TSR_QUANTIZED_BLOCK == 0) check_quantized(k, w, a, b, rows, in, rank, first, columns);
  output_free(&got);
  free(w), free(a), free(b), free(want);
}

static void check_divide(const tsr_kernels *k, int64_t n) {
  float *x = input_new(n, 3), *squares = input_new(n, 1);
  double *want = reference_new(n);
  for (int64_t i = 0; i < n; i++) {
    squares[i] = i % 7 == 3 ? 0 : squares[i] * squares[i] + 1e-3f;
    want[i] = squares[i] > 0 ? (double)x[i] / sqrt((double)squares[i]) : 0;
  }
  output y = output_new(n);
  RUN(n, k->divide_root(y.pass[pass], x, squares, begin, end));
  CHECK_OUTPUT(y, want, 1e-6, 1e-6);
  output_free(&y);
  free(x), free(squares), free(want);
}

static void check_level(const tsr_kernels *k) {
  check_squares(k, 1, 1, 1, 0, 1);
  check_squares(k, 5, 33, 3, 0, 33);
  check_squares(k, 9, 48, 4, 12, 24);
  check_squares(k, 3, 2500, 7, 0, 2500);
  check_squares(k, 4, 2500, 1, 1250, 1250);
  check_squares(k, 6, 1344, 2, 0, 1344);
  check_squares(k, 6, 1344, 2, 672, 672);
  check_divide(k, 1);
  check_divide(k, 77);
}

int main(void) {
  each_level(check_level);
  return check_done("kernels.adapters");
}
