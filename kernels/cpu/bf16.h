// SPDX-License-Identifier: Apache-2.0
/* bf16 weights, for the conversions and for the optimizers: branch-free plain C, so that a loop
 * over them becomes vectors of any width with the same bits. */
#ifndef TSR_KERNELS_CPU_BF16_H
#define TSR_KERNELS_CPU_BF16_H
#include "kernels/cpu/elementary.h"
#include "kernels/cpu/philox.h"
#include "kernels/kernels.h"

enum { F32_INFINITY = 0x7F800000, F32_QUIET = 0x00400000, F32_MAGNITUDE = 0x7FFFFFFF };

static inline float bf16_value(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  bits |= (int32_t)(bits & F32_MAGNITUDE) > F32_INFINITY ? F32_QUIET : 0;
  return bits_float((int32_t)bits);
}

/* Cut to 16 bits after adding `up`, 0..0xFFFF, below the last bit that stays. An infinity has
 * nothing below, so it passes; a NaN is truncated alone, lest it overflow into another number. */
static inline uint16_t bf16_truncate(float x, uint32_t up) {
  uint32_t bits = (uint32_t)float_bits(x);
  uint32_t nan = (bits | F32_QUIET) >> 16, rounded = (bits + up) >> 16;
  return (uint16_t)((int32_t)(bits & F32_MAGNITUDE) > F32_INFINITY ? nan : rounded);
}

static inline uint16_t bf16_nearest(float x) {
  return bf16_truncate(x, 0x7FFF + ((uint32_t)float_bits(x) >> 16 & 1));
}

/* Consecutive elements of the global tensor: the index of the first and how many. */
typedef struct {
  uint64_t first;
  int64_t count;
} slice_run;

/* The run that begins at a local element. The trailing dimensions that are whole, and the one
 * before them, are consecutive. */
static inline slice_run slice_run_at(const tsr_tensor_slice *slice, int64_t element) {
  int64_t length = slice->shape[slice->ndim - 1];
  for (int d = slice->ndim - 1; d > 0 && slice->shape[d] == slice->global[d]; d--)
    length *= slice->shape[d - 1];
  slice_run run = {0, length - element % length};
  uint64_t stride = 1;
  for (int d = slice->ndim - 1; d >= 0; d--) {
    run.first += (uint64_t)(element % slice->shape[d] + slice->offset[d]) * stride;
    stride *= (uint64_t)slice->global[d];
    element /= slice->shape[d];
  }
  return run;
}

/* n elements from local element `at` of the slice on; x and out are those of that element. */
static inline void bf16_stochastic(
    uint16_t *out, const float *x, uint64_t key, const tsr_tensor_slice *slice, int64_t at,
    int64_t n) {
  uint32_t words[PHILOX_ELEMENTS];
  for (int64_t done = 0; done < n;) {
    slice_run run = slice_run_at(slice, at + done);
    int64_t skip = (int64_t)(run.first % 4), take = PHILOX_ELEMENTS - skip;
    if (take > run.count) take = run.count;
    if (take > n - done) take = n - done;
    philox_block(words, run.first / 4, key);
#pragma omp simd
    for (int64_t i = 0; i < take; i++)
      out[done + i] = bf16_truncate(x[done + i], words[skip + i] >> 16);
    done += take;
  }
}

#endif
