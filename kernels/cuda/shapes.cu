/* Elements that go to another place: transposes, slices, parts of a dimension. Before the launch
 * the dimensions are made as few, and the elements as large, as the steps allow. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include <assert.h>
#include <string.h>

typedef struct {
  int ndim, bytes;
  int64_t start, n;
  int64_t shape[TSR_BOX_DIMS_MAX], step[TSR_BOX_DIMS_MAX];
} walk;

/* Where the element i of the row-major order lies. */
template <typename INDEX> static __device__ inline int64_t walk_place(const walk &w, int64_t i) {
  INDEX rest = (INDEX)i;
  int64_t place = w.start;
  for (int d = w.ndim - 1; d > 0; d--) {
    place += (int64_t)(rest % (INDEX)w.shape[d]) * w.step[d];
    rest /= (INDEX)w.shape[d];
  }
  return place + (int64_t)rest * w.step[0];
}

template <typename T, typename INDEX, bool GATHER>
static __global__ void copy(T *out, const T *x, const __grid_constant__ walk w) {
  for (int64_t i = map_thread(); i < w.n; i += map_threads()) {
    int64_t place = walk_place<INDEX>(w, i);
    if (GATHER) out[i] = x[place];
    else out[place] = x[i];
  }
}

/* Without dimensions of 1, and with those that follow one another in memory made one. */
static walk
walk_new(int bytes, int ndim, const int64_t *shape, const int64_t *step, int64_t start) {
  assert(ndim >= 0 && ndim <= TSR_BOX_DIMS_MAX);
  walk w = {1, bytes, start, 1, {1}, {1}};
  bool begun = false;
  for (int d = 0; d < ndim; d++) {
    w.n *= shape[d];
    if (shape[d] == 1) continue;
    int last = w.ndim - 1;
    if (begun && w.step[last] == step[d] * shape[d]) {
      w.shape[last] *= shape[d];
      w.step[last] = step[d];
      continue;
    }
    if (begun) last = w.ndim++;
    w.shape[last] = shape[d];
    w.step[last] = step[d];
    begun = true;
  }
  return w;
}

/* Two neighbours as one element, as long as everything is even. */
static void walk_widen(walk *w, const void *out, const void *x) {
  int last = w->ndim - 1;
  while (w->bytes < 16 && w->n && w->step[last] == 1 && w->shape[last] % 2 == 0 &&
         w->start % 2 == 0 && is_aligned(out, w->bytes * 2) && is_aligned(x, w->bytes * 2)) {
    for (int d = 0; d < last; d++)
      if (w->step[d] % 2) return;
    for (int d = 0; d < last; d++) w->step[d] /= 2;
    w->shape[last] /= 2, w->start /= 2, w->n /= 2, w->bytes *= 2;
  }
}

template <typename T, bool GATHER>
static void copy_launch(tsr_cuda_stream s, void *out, const void *x, const walk &w) {
  if (w.n < INT32_MAX)
    TSR_LAUNCH(
        (copy<T, uint32_t, GATHER>), map_blocks(w.n), TSR_MAP_THREADS, 0, s, (T *)out, (const T *)x,
        w);
  else
    TSR_LAUNCH(
        (copy<T, int64_t, GATHER>), map_blocks(w.n), TSR_MAP_THREADS, 0, s, (T *)out, (const T *)x,
        w);
}

template <bool GATHER>
static void walk_launch(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start) {
  walk w = walk_new(bytes, ndim, shape, step, start);
  if (w.n <= 0) return;
  walk_widen(&w, out, x);
  switch (w.bytes) {
  case 1:
    copy_launch<uint8_t, GATHER>(s, out, x, w);
    return;
  case 2:
    copy_launch<uint16_t, GATHER>(s, out, x, w);
    return;
  case 4:
    copy_launch<uint32_t, GATHER>(s, out, x, w);
    return;
  case 8:
    copy_launch<uint2, GATHER>(s, out, x, w);
    return;
  case 16:
    copy_launch<uint4, GATHER>(s, out, x, w);
    return;
  }
  assert(!"1, 2, 4, 8 or 16 bytes");
}

extern "C" void tsr_cuda_gather(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start) {
  walk_launch<true>(s, out, x, bytes, ndim, shape, step, start);
}

extern "C" void tsr_cuda_scatter(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start) {
  walk_launch<false>(s, out, x, bytes, ndim, shape, step, start);
}

extern "C" void tsr_cuda_zero(tsr_cuda_stream s, void *out, int64_t bytes) {
#if defined(TSR_EMULATED)
  (void)s;
  emulator::begin([=]() { memset(out, 0, (size_t)bytes); });
#else
  cudaMemsetAsync(out, 0, (size_t)bytes, s);
#endif
}
