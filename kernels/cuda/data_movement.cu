// SPDX-License-Identifier: Apache-2.0
/* Elements that go to another place: transposes, slices, parts of a dimension. Before the launch
 * the dimensions are made as few, and the elements as large, as the steps allow. */
#include "kernels/cuda/copy_walk.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include <assert.h>
#include <string.h>

template <typename T, typename INDEX>
static __global__ void copy(T *out, const T *x, const __grid_constant__ copy_walk w) {
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

template <typename T>
static void copy_launch(tsr_cuda_stream s, void *out, const void *x, const copy_walk &w) {
  if (w.n < INT32_MAX)
    TSR_LAUNCH((copy<T, uint32_t>), launch_map(w.n), s, (T *)out, (const T *)x, w);
  else TSR_LAUNCH((copy<T, int64_t>), launch_map(w.n), s, (T *)out, (const T *)x, w);
}

extern "C" void tsr_cuda_move(
    tsr_cuda_stream s, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  copy_walk w = copy_walk_new(bytes, ndim, shape, out_step, x_step);
  if (w.n <= 0) return;
  copy_walk_widen(&w, out, x);
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
  emulator::begin(s, "cudaMemsetAsync", [=]() { memset(out, 0, (size_t)bytes); });
#else
  cudaMemsetAsync(out, 0, (size_t)bytes, s);
#endif
}
