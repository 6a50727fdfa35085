// SPDX-License-Identifier: Apache-2.0
/* Elements that go to another place: transposes, slices, parts of a dimension. Before the launch
 * the dimensions are made as few, and the elements as large, as the steps allow. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include <assert.h>
#include <string.h>

/* The first dimension is the innermost. */
typedef struct {
  int ndim, bytes;
  int64_t n, shape[TSR_SLICE_DIMS_MAX], out[TSR_SLICE_DIMS_MAX], x[TSR_SLICE_DIMS_MAX]; /* steps */
} walk;

template <typename T, typename INDEX>
static __global__ void copy(T *out, const T *x, const __grid_constant__ walk w) {
  for (int64_t i = map_thread(); i < w.n; i += map_threads()) {
    INDEX rest = (INDEX)i;
    int64_t to = 0, from = 0;
    int last = w.ndim - 1;
    for (int d = 0; d < last; d++) {
      int64_t index = (int64_t)(rest % (INDEX)w.shape[d]);
      rest /= (INDEX)w.shape[d];
      to += index * w.out[d];
      from += index * w.x[d];
    }
    out[to + (int64_t)rest * w.out[last]] = x[from + (int64_t)rest * w.x[last]];
  }
}

/* Without dimensions of 1, and with those made one that follow one another in memory on both sides.
 */
static walk walk_new(
    int bytes, int ndim, const int64_t *shape, const int64_t *out_step, const int64_t *x_step) {
  assert(ndim >= 0 && ndim <= TSR_SLICE_DIMS_MAX);
  walk w = {1, bytes, 1, {1}, {1}, {1}};
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
static void walk_widen(walk *w, const void *out, const void *x) {
  while (w->bytes < 16 && w->out[0] == 1 && w->x[0] == 1 && w->shape[0] % 2 == 0 &&
         is_aligned(out, w->bytes * 2) && is_aligned(x, w->bytes * 2)) {
    for (int d = 1; d < w->ndim; d++)
      if (w->out[d] % 2 || w->x[d] % 2) return;
    for (int d = 1; d < w->ndim; d++) w->out[d] /= 2, w->x[d] /= 2;
    w->shape[0] /= 2, w->n /= 2, w->bytes *= 2;
  }
}

template <typename T>
static void copy_launch(tsr_cuda_stream s, void *out, const void *x, const walk &w) {
  if (w.n < INT32_MAX)
    TSR_LAUNCH(
        (copy<T, uint32_t>), map_blocks(w.n), TSR_MAP_THREADS, 0, s, (T *)out, (const T *)x, w);
  else
    TSR_LAUNCH(
        (copy<T, int64_t>), map_blocks(w.n), TSR_MAP_THREADS, 0, s, (T *)out, (const T *)x, w);
}

extern "C" void tsr_cuda_move(
    tsr_cuda_stream s, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  walk w = walk_new(bytes, ndim, shape, out_step, x_step);
  if (w.n <= 0) return;
  walk_widen(&w, out, x);
  switch (w.bytes) {
  case 1:
    copy_launch<uint8_t>(s, out, x, w);
    return;
  case 2:
    copy_launch<uint16_t>(s, out, x, w);
    return;
  case 4:
    copy_launch<uint32_t>(s, out, x, w);
    return;
  case 8:
    copy_launch<uint2>(s, out, x, w);
    return;
  case 16:
    copy_launch<uint4>(s, out, x, w);
    return;
  }
  assert(!"1, 2, 4, 8 or 16 bytes");
}

extern "C" void tsr_cuda_gather(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start) {
  tsr_cuda_move(s, out, NULL, (const char *)x + start * bytes, step, bytes, ndim, shape);
}

extern "C" void tsr_cuda_scatter(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start) {
  tsr_cuda_move(s, (char *)out + start * bytes, step, x, NULL, bytes, ndim, shape);
}

extern "C" void tsr_cuda_zero(tsr_cuda_stream s, void *out, int64_t bytes) {
#if defined(TSR_EMULATED)
  (void)s;
  emulator::begin([=]() { memset(out, 0, (size_t)bytes); });
#else
  cudaMemsetAsync(out, 0, (size_t)bytes, s);
#endif
}
