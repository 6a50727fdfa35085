// SPDX-License-Identifier: Apache-2.0
/* Random numbers as a function of the key and the element's global index. */
#include "kernels/cpu/elementary.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/philox.h"

/* The global row-major index of the first element of a local row. */
static uint64_t row_first(const tsr_tensor_slice *slice, int64_t row) {
  int64_t index[TSR_SLICE_DIMS_MAX] = {0};
  for (int d = slice->ndim - 2; d >= 0; d--) {
    index[d] = row % slice->shape[d];
    row /= slice->shape[d];
  }
  uint64_t first = 0;
  for (int d = 0; d < slice->ndim; d++)
    first = first * (uint64_t)slice->global[d] + (uint64_t)(index[d] + slice->offset[d]);
  return first;
}

/* A run of elements inside one philox_block: `take` of them, from place `skip` of the block on. */
typedef struct {
  uint64_t counter;
  int64_t skip, take;
} block_run;

static block_run run_at(uint64_t element, int64_t left) {
  block_run run = {element / 4, (int64_t)(element % 4), 0};
  run.take = left < PHILOX_ELEMENTS - run.skip ? left : PHILOX_ELEMENTS - run.skip;
  return run;
}

/* Box and Muller 1958: a pair of words gives a pair of normal numbers. */
static void normal_block(float values[PHILOX_ELEMENTS], const uint32_t words[PHILOX_ELEMENTS]) {
#pragma omp simd
  for (int i = 0; i < PHILOX_ELEMENTS / 2; i++) {
    /* signed conversions of 31 bits and the rest: a vector of these exists on every level */
    uint32_t a = words[2 * i], b = words[2 * i + 1];
    double u = ((double)(int32_t)(a >> 1) * 2 + (double)(int32_t)(a & 1) + 0.5) * 0x1p-32;
    double radius = __builtin_sqrt(-2 * double_log(u));
    int32_t quarters = (int32_t)((b + 0x20000000u) >> 30); /* nearest quarter turn, 0..3 */
    double rest = (double)(int32_t)(b - ((uint32_t)quarters << 30)) * 0x1p-30;
    double sine, cosine;
    double_sincos(rest, quarters, &sine, &cosine);
    values[2 * i] = (float)(radius * cosine);
    values[2 * i + 1] = (float)(radius * sine);
  }
}

void LEVEL(random_normal)(
    float *out, float mean, float std, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
    int64_t end) {
  int64_t n = slice->shape[slice->ndim - 1];
  uint32_t words[PHILOX_ELEMENTS];
  float values[PHILOX_ELEMENTS];
  for (int64_t row = begin; row < end; row++) {
    uint64_t first = row_first(slice, row);
    for (int64_t done = 0; done < n;) {
      block_run run = run_at(first + (uint64_t)done, n - done);
      philox_block(words, run.counter, key);
      normal_block(values, words);
      float *to = out + row * n + done;
      for (int64_t i = 0; i < run.take; i++) to[i] = values[run.skip + i] * std + mean;
      done += run.take;
    }
  }
}

void LEVEL(random_uniform)(
    float *out, float low, float high, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
    int64_t end) {
  int64_t n = slice->shape[slice->ndim - 1];
  uint32_t words[PHILOX_ELEMENTS];
  for (int64_t row = begin; row < end; row++) {
    uint64_t first = row_first(slice, row);
    for (int64_t done = 0; done < n;) {
      block_run run = run_at(first + (uint64_t)done, n - done);
      philox_block(words, run.counter, key);
      float *to = out + row * n + done;
      for (int64_t i = 0; i < run.take; i++)
        to[i] = philox_uniform(words[run.skip + i]) * (high - low) + low;
      done += run.take;
    }
  }
}

void LEVEL(dropout)(
    float *y, const float *x, float p, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
    int64_t end) {
  int64_t n = slice->shape[slice->ndim - 1];
  uint32_t words[PHILOX_ELEMENTS];
  float kept = 1.0f / (1.0f - p);
  for (int64_t row = begin; row < end; row++) {
    uint64_t first = row_first(slice, row);
    for (int64_t done = 0; done < n;) {
      block_run run = run_at(first + (uint64_t)done, n - done);
      philox_block(words, run.counter, key);
      float *to = y + row * n + done;
      const float *from = x + row * n + done;
#pragma omp simd
      for (int64_t i = 0; i < run.take; i++)
        to[i] = philox_uniform(words[run.skip + i]) < p ? 0.0f : from[i] * kept;
      done += run.take;
    }
  }
}
