// SPDX-License-Identifier: Apache-2.0
/* What is by chance: a function of the key and the element's global index. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/philox.cuh"

enum { W = LAUNCH_DROPOUT_WIDTH }; /* elements of a thread: the words of one counter */

template <typename T>
static __global__ void dropout(
    T *y, const T *x, float p, const uint64_t *key, const __grid_constant__ tsr_tensor_slice slice,
    int64_t n, bool packed) {
  float kept = 1.0f / (1.0f - p);
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    float v[W];
    uint32_t words[W];
    row_load(v, x, i, n, packed);
    slice_words(words, slice, i, n, *key);
#pragma unroll
    for (int k = 0; k < W; k++) v[k] = philox_uniform(words[k]) < p ? 0.0f : v[k] * kept;
    row_store(y, v, i, n, packed);
  }
}

extern "C" void tsr_cuda_dropout(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, float p, const uint64_t *key,
    const tsr_tensor_slice *slice) {
  int64_t n = slice_size(slice);
  if (n <= 0) return;
  tsr_tensor_slice folded = slice_folded(slice);
  bool packed = is_aligned(y, 16) && is_aligned(x, 16);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(dropout<T>, launch_dropout(n), s, (T *)y, (const T *)x, p, key, folded, n, packed))
}
