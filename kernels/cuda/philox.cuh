// SPDX-License-Identifier: Apache-2.0
/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11), with the bits
 * of the CPU's. Element e of a stream uses word e % 4 of counter e / 4. */
#ifndef TSR_KERNELS_CUDA_PHILOX_CUH
#define TSR_KERNELS_CUDA_PHILOX_CUH
#include "kernels/cuda/kernels.h"

struct philox_words {
  uint32_t word[4];
};

static __device__ inline philox_words philox_at(uint64_t counter, uint64_t key) {
  philox_words c = {{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}};
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c.word[0], p1 = (uint64_t)0xCD9E8D57u * c.word[2];
    c = {
        {(uint32_t)(p1 >> 32) ^ c.word[1] ^ key0, (uint32_t)p1,
         (uint32_t)(p0 >> 32) ^ c.word[3] ^ key1, (uint32_t)p0}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

/* Word i of the four, without an array that would go to memory. */
static __device__ inline uint32_t philox_pick(const philox_words &c, unsigned i) {
  uint32_t low = i & 1 ? c.word[1] : c.word[0], high = i & 1 ? c.word[3] : c.word[2];
  return i & 2 ? high : low;
}

/* In [0, 1), 24 bits. */
static __device__ inline float philox_uniform(uint32_t word) {
  return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

/* The global row-major index of a local element. */
static __device__ inline uint64_t slice_element(const tsr_tensor_slice &slice, int64_t i) {
  uint64_t element = 0, stride = 1;
  for (int d = slice.ndim - 1; d > 0; d--) {
    element += (uint64_t)(i % slice.shape[d] + slice.offset[d]) * stride;
    stride *= (uint64_t)slice.global[d];
    i /= slice.shape[d];
  }
  return element + (uint64_t)(i + slice.offset[0]) * stride;
}

/* The words of local elements [i, i + 4) of n: one counter where they are one's four, as most are.
 */
static __device__ inline void slice_words(
    uint32_t (&words)[4], const tsr_tensor_slice &slice, int64_t i, int64_t n, uint64_t key) {
  int64_t length = slice.shape[slice.ndim - 1], left = 0;
  uint64_t element = 0, counter = 0;
  philox_words c = {{0, 0, 0, 0}};
#pragma unroll
  for (int k = 0; k < 4; k++) {
    words[k] = 0;
    if (i + k >= n) continue;
    element++;
    if (left == 0) { /* where a row begins */
      element = slice_element(slice, i + k);
      left = slice.ndim > 1 ? length - (i + k) % length : n - i;
    }
    left--;
    if (k == 0 || element / 4 != counter) c = philox_at(element / 4, key);
    counter = element / 4;
    words[k] = philox_pick(c, (unsigned)(element % 4));
  }
}

static inline int64_t slice_size(const tsr_tensor_slice *slice) {
  int64_t n = 1;
  for (int d = 0; d < slice->ndim; d++) n *= slice->shape[d];
  return n;
}

/* The same elements in fewer dimensions: a whole one is part of the one before it. */
static inline tsr_tensor_slice slice_folded(const tsr_tensor_slice *slice) {
  tsr_tensor_slice folded = *slice;
  while (folded.ndim > 1 && folded.shape[folded.ndim - 1] == folded.global[folded.ndim - 1]) {
    int last = --folded.ndim;
    folded.shape[last - 1] *= folded.global[last];
    folded.global[last - 1] *= folded.global[last];
    folded.offset[last - 1] *= folded.global[last];
  }
  return folded;
}

#endif
