// SPDX-License-Identifier: Apache-2.0
/* What a copy in steps goes through (data_movement.cu, kv_cache.cu): its dimensions, made as few,
 * and its elements, made as large, as the steps and addresses allow. A thread has one element. C
 * and C++. */
#ifndef TSR_KERNELS_CUDA_COPY_WALK_H
#define TSR_KERNELS_CUDA_COPY_WALK_H
#include "kernels/cuda/launch_shape.h"
#include <assert.h>

/* The first dimension is the innermost. */
typedef struct {
  int ndim, bytes;
  int64_t n, shape[TSR_SLICE_DIMS_MAX], out[TSR_SLICE_DIMS_MAX], x[TSR_SLICE_DIMS_MAX]; /* steps */
} copy_walk;

/* Without dimensions of 1, and with those made one that follow one another in memory on both sides.
 */
static inline copy_walk copy_walk_new(
    int bytes, int ndim, const int64_t *shape, const int64_t *out_step, const int64_t *x_step) {
  assert(ndim >= 0 && ndim <= TSR_SLICE_DIMS_MAX);
  copy_walk w = {1, bytes, 1, {1}, {1}, {1}};
  for (int d = ndim - 1; d >= 0; d--) {
    int64_t out = out_step ? out_step[d] : w.n, x = x_step ? x_step[d] : w.n;
    int outer = w.ndim - 1;
    w.n *= shape[d];
    if (shape[d] == 1) continue;
    if (out == w.out[outer] * w.shape[outer] && x == w.x[outer] * w.shape[outer]) {
      w.shape[outer] *= shape[d];
      continue;
    }
    if (w.shape[outer] != 1) outer = w.ndim++;
    w.shape[outer] = shape[d], w.out[outer] = out, w.x[outer] = x;
  }
  return w;
}

/* Two neighbours as one element, as long as everything is even. */
static inline void copy_walk_widen(copy_walk *w, const void *out, const void *x) {
  while (w->bytes < 16 && w->out[0] == 1 && w->x[0] == 1 && w->shape[0] % 2 == 0 &&
         is_aligned(out, w->bytes * 2) && is_aligned(x, w->bytes * 2)) {
    for (int d = 1; d < w->ndim; d++)
      if (w->out[d] % 2 || w->x[d] % 2) return;
    for (int d = 1; d < w->ndim; d++) w->out[d] /= 2, w->x[d] /= 2;
    w->shape[0] /= 2, w->n /= 2, w->bytes *= 2;
  }
}

/* Bytes of the elements that a row of `bytes` is copied in. */
static inline int copy_row_element(const void *out, const void *x, int64_t bytes) {
  int width = 16;
  while (bytes % width || !is_aligned(out, width) || !is_aligned(x, width)) width /= 2;
  return width;
}

#endif
