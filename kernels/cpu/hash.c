// SPDX-License-Identifier: Apache-2.0
/* The hash of a part of a tensor (base/tensor_hash.h). */
#include "base/tensor_hash.h"
#include "kernels/cpu/level.h"
#include <string.h>

static const uint32_t keys[TSR_HASH_BLOCK] = {TSR_HASH_KEYS};

static inline uint64_t product(uint32_t bits, int j) {
  int32_t size = (int32_t)(bits & 0x7fffffff);
  return (uint64_t)keys[j] * (size > 0x7f800000 ? 0x7fc00000 : bits); /* NaN */
}

/* Elements [begin, end) of a block, the first of them at x. */
static uint64_t hash_some(const float *x, int64_t begin, int64_t end) {
  uint64_t sum = 0;
  for (int64_t j = begin; j < end; j++) {
    uint32_t bits;
    memcpy(&bits, x + j - begin, sizeof bits);
    sum += product(bits, (int)j);
  }
  return sum;
}

static uint64_t hash_block(const float *x) {
  uint32_t bits[TSR_HASH_BLOCK];
  uint64_t sum = 0;
  memcpy(bits, x, sizeof bits);
#pragma omp simd reduction(+ : sum)
  for (int j = 0; j < TSR_HASH_BLOCK; j++) sum += product(bits[j], j);
  return sum;
}

uint64_t LEVEL(hash)(const float *x, int64_t first, int64_t count) {
  uint64_t sum = 0;
  for (int64_t done = 0, take; done < count; done += take) {
    int64_t block = (first + done) / TSR_HASH_BLOCK, begin = (first + done) % TSR_HASH_BLOCK;
    take = TSR_HASH_BLOCK - begin < count - done ? TSR_HASH_BLOCK - begin : count - done;
    uint64_t part =
        take == TSR_HASH_BLOCK ? hash_block(x + done) : hash_some(x + done, begin, begin + take);
    sum += tsr_hash_block_key(block) * part;
  }
  return sum;
}
