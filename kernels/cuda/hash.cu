// SPDX-License-Identifier: Apache-2.0
/* The hash of a part of a tensor (base/tensor_hash.h). Sums are of integers: in any order. */
#include "base/tensor_hash.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

static __constant__ const uint32_t hash_keys[TSR_HASH_BLOCK] = {TSR_HASH_KEYS};

/* Where a stored index of the padded dimension is without padding; -1: it is padding. */
static __device__ inline int64_t real_index(const tsr_cuda_padding &p, int64_t stored, int64_t at) {
  int64_t length = stored / p.blocks, block = at / length, rest = at % length;
  int64_t each = p.real / p.blocks, longer = p.real % p.blocks;
  if (rest >= each + (block < longer)) return -1;
  return block * each + (block < longer ? block : longer) + rest;
}

/* The element's index in the whole tensor without padding; -1: it is padding. */
static __device__ inline int64_t
whole_index(const tsr_tensor_slice &part, const tsr_cuda_padding &p, int64_t element) {
  int64_t whole = 0, each = 1;
  for (int d = part.ndim - 1; d >= 0; d--) {
    int64_t index = part.offset[d] + (d ? element % part.shape[d] : element);
    element /= part.shape[d];
    if (d == p.dim) index = real_index(p, part.global[d], index);
    if (index < 0) return -1;
    whole += index * each;
    each *= d == p.dim ? p.real : part.global[d];
  }
  return whole;
}

static __device__ inline uint64_t hash_element(float x, int64_t whole) {
  uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) bits = 0x7fc00000; /* NaN */
  uint64_t product = (uint64_t)hash_keys[whole % TSR_HASH_BLOCK] * bits;
  return tsr_hash_block_key(whole / TSR_HASH_BLOCK) * product;
}

template <typename T>
static __global__ void hash_part(
    unsigned long long *sum, const T *x, tsr_tensor_slice part, tsr_cuda_padding padding,
    int64_t begin, int64_t end) {
  uint64_t mine = 0;
  for (int64_t i = begin + map_thread(); i < end; i += map_threads()) {
    int64_t whole = whole_index(part, padding, i);
    if (whole >= 0) mine += hash_element(number_float(x[i]), whole);
  }
  for (int half = TSR_WARP / 2; half; half /= 2) mine += __shfl_xor_sync(~0u, mine, half);
  if (threadIdx.x % TSR_WARP == 0) atomicAdd(sum, (unsigned long long)mine);
}

/* Inner dimensions that are whole and have no padding are one with the next one outwards. */
static tsr_tensor_slice
without_whole_dims(const tsr_tensor_slice *part, const tsr_cuda_padding *p) {
  tsr_tensor_slice s = *part;
  while (s.ndim > 1) {
    int last = s.ndim - 1;
    if (s.shape[last] != s.global[last] || p->dim >= last - 1) break;
    s.shape[last - 1] *= s.shape[last];
    s.offset[last - 1] *= s.shape[last];
    s.global[last - 1] *= s.shape[last];
    s.ndim--;
  }
  return s;
}

extern "C" void tsr_cuda_hash(
    tsr_cuda_stream s, tsr_cuda_type type, uint64_t *sum, const void *x,
    const tsr_tensor_slice *part, const tsr_cuda_padding *padding, int64_t begin, int64_t end) {
  tsr_cuda_padding p = *padding;
  if (begin >= end) return;
  if (p.real == part->global[p.dim]) p.dim = -1;
  tsr_tensor_slice of = without_whole_dims(part, &p);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          (hash_part<T>), launch_hash(end - begin), s, (unsigned long long *)sum, (const T *)x, of,
          p, begin, end))
}
