// SPDX-License-Identifier: Apache-2.0
/* Casts from one type to another, of one array or of many in one launch. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include <assert.h>

enum { W = LAUNCH_CAST_WIDTH };

template <typename TO, typename FROM>
static __global__ void cast(TO *out, const FROM *x, int64_t n, bool packed) {
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    float v[W];
    row_load(v, x, i, n, packed);
    row_store(out, v, i, n, packed);
  }
}

template <typename TO>
static void cast_launch(tsr_cuda_stream s, TO *out, tsr_cuda_type from, const void *x, int64_t n) {
  bool packed = is_aligned(out, 16) && is_aligned(x, 16);
  TSR_BY_TYPE(
      from, FROM, TSR_LAUNCH((cast<TO, FROM>), launch_cast(n), s, out, (const FROM *)x, n, packed))
}

extern "C" void tsr_cuda_cast(
    tsr_cuda_stream s, tsr_cuda_type to, void *out, tsr_cuda_type from, const void *x, int64_t n) {
  if (n <= 0) return;
  TSR_BY_TYPE(to, TO, cast_launch(s, (TO *)out, from, x, n))
}

/* ---- many: a block has LAUNCH_UPDATE_PIECE elements of one ---- */

struct cast_batch {
  int count;
  unsigned first[TSR_CUDA_CASTS]; /* block of each */
  bool packed[TSR_CUDA_CASTS];
  tsr_cuda_cast_pair of[TSR_CUDA_CASTS];
};
static_assert(sizeof(cast_batch) <= 4096, "it is a kernel's parameter");

template <typename TO, typename FROM>
static __global__ void casts(const __grid_constant__ cast_batch b) {
  int at = b.count - 1;
  while (b.first[at] > blockIdx.x) at--;
  TO *out = (TO *)b.of[at].out;
  const FROM *x = (const FROM *)b.of[at].x;
  const bool packed = b.packed[at];
  int64_t begin = (int64_t)(blockIdx.x - b.first[at]) * LAUNCH_UPDATE_PIECE;
  int64_t n = b.of[at].n, end = begin + LAUNCH_UPDATE_PIECE < n ? begin + LAUNCH_UPDATE_PIECE : n;
  for (int64_t i = begin + threadIdx.x * W; i < end; i += blockDim.x * W) {
    float v[W];
    row_load(v, x, i, n, packed);
    row_store(out, v, i, n, packed);
  }
}

template <typename TO>
static void
casts_launch(tsr_cuda_stream s, tsr_cuda_type from, const cast_batch &b, tsr_launch_shape shape) {
  TSR_BY_TYPE(from, FROM, TSR_LAUNCH((casts<TO, FROM>), shape, s, b))
}

extern "C" void tsr_cuda_casts(
    tsr_cuda_stream s, tsr_cuda_type to, tsr_cuda_type from, const tsr_cuda_cast_pair *pairs,
    int count) {
  cast_batch b;
  int64_t blocks = b.count = 0;
  assert(count <= TSR_CUDA_CASTS);
  for (int i = 0; i < count; i++) {
    if (pairs[i].n <= 0) continue;
    b.first[b.count] = (unsigned)blocks;
    b.packed[b.count] = is_aligned(pairs[i].out, 16) && is_aligned(pairs[i].x, 16);
    b.of[b.count++] = pairs[i];
    blocks += launch_update_blocks(pairs[i].n);
  }
  if (blocks) TSR_BY_TYPE(to, TO, casts_launch<TO>(s, from, b, launch_updates(blocks)))
}
