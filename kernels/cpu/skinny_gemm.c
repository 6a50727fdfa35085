// SPDX-License-Identifier: Apache-2.0
/* A product with few rows, y = x w^T: what decoding is made of. Reading w is all its work, so w is
 * read once, in the order in which it lies, and turned in registers; gemm packs it first. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp16.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/transpose.h"

enum { TOGETHER = 4 }; /* rows of x whose sums are in registers at once */

typedef struct {
  const tsr_skinny_gemm *p;
  const float *x, *bias; /* of the first row and column */
  const void *w;
  int64_t columns; /* of WIDTH that are in use */
} square;

/* `wide` numbers of w, at most WIDTH, from element `at` on; zeros follow. */
static inline __attribute__((always_inline)) vector
weights_load(const square *s, int64_t at, int64_t wide, const tsr_element type) {
  float part[WIDTH];
  uint16_t half[WIDTH] = {0};
  if (type == TSR_ELEMENT_F32) {
    const float *w = (const float *)s->w + at;
    return wide == WIDTH ? lanes_load(w, 0) : vector_part(w, wide);
  }
  memcpy(half, (const uint16_t *)s->w + at, (size_t)wide * sizeof *half);
  if (type == TSR_ELEMENT_BF16)
    for (int i = 0; i < WIDTH; i++) part[i] = bf16_value(half[i]);
  else
    for (int i = 0; i < WIDTH; i++) part[i] = fp16_value(half[i]);
  return lanes_load(part, 0);
}

/* Adds the products of k in [k, k + wide), which is at most WIDTH. */
static inline __attribute__((always_inline)) void square_add(
    const square *s, int64_t k, int64_t wide, vector *sums, int rows, const tsr_element type) {
  vector transposed[WIDTH];
  _Pragma("GCC unroll 16") for (int c = 0; c < WIDTH; c++) transposed[c] =
      weights_load(s, (c < s->columns ? c : 0) * s->p->w_stride + k, wide, type);
  turn_square(transposed);
  if (wide == WIDTH) {
    _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) for (int r = 0; r < rows; r++)
        sums[r] =
            vector_fused(s->x[r * s->p->x_stride + k + i] - (vector){0}, transposed[i], sums[r]);
    return;
  }
  for (int i = 0; i < wide; i++)
    for (int r = 0; r < rows; r++)
      sums[r] =
          vector_fused(s->x[r * s->p->x_stride + k + i] - (vector){0}, transposed[i], sums[r]);
}

/* y (rows, columns) */
static inline __attribute__((always_inline)) void
square_run(const square *s, float *y, const int rows, const tsr_element type) {
  const tsr_skinny_gemm *p = s->p;
  vector all[TOGETHER], sums[TOGETHER];
  for (int64_t k = 0; k < p->K;) {
    int64_t end = p->K - k < TSR_GEMM_DEPTH ? p->K : k + TSR_GEMM_DEPTH;
    bool first = k == 0;
    for (int r = 0; r < rows; r++) sums[r] = (vector){0};
    for (; k + WIDTH <= end; k += WIDTH) square_add(s, k, WIDTH, sums, rows, type);
    if (k < end) square_add(s, k, end - k, sums, rows, type);
    k = end;
    for (int r = 0; r < rows; r++) all[r] = first ? sums[r] : all[r] + sums[r];
  }
  if (s->bias) {
    vector bias = vector_part(s->bias, s->columns);
    for (int r = 0; r < rows; r++) all[r] += bias;
  }
  for (int r = 0; r < rows; r++)
    memcpy(y + r * p->y_stride, &all[r], (size_t)s->columns * sizeof *y);
}

static inline __attribute__((always_inline)) void
rows_run(const square *s, float *y, int64_t rows, const tsr_element type) {
  switch (rows) {
  case 1:
    square_run(s, y, 1, type);
    break;
  case 2:
    square_run(s, y, 2, type);
    break;
  case 3:
    square_run(s, y, 3, type);
    break;
  default:
    square_run(s, y, TOGETHER, type);
  }
}

void LEVEL(skinny_gemm)(
    const tsr_skinny_gemm *p, float *y, const float *x, const void *w, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; n += WIDTH)
    for (int64_t r = 0; r < p->R; r += TOGETHER) {
      square s = {
          .p = p,
          .x = x + r * p->x_stride,
          .bias = p->bias ? p->bias + n : NULL,
          .w = tsr_element_at(w, p->w_type, n * p->w_stride),
          .columns = end - n < WIDTH ? end - n : WIDTH};
      float *to = y + r * p->y_stride + n;
      if (p->w_type == TSR_ELEMENT_F32) rows_run(&s, to, p->R - r, TSR_ELEMENT_F32);
      else if (p->w_type == TSR_ELEMENT_BF16) rows_run(&s, to, p->R - r, TSR_ELEMENT_BF16);
      else rows_run(&s, to, p->R - r, TSR_ELEMENT_F16);
    }
}
