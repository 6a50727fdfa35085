// SPDX-License-Identifier: Apache-2.0
#include "data/sample_order.h"
#include "kernels/kernels.h"
#include <assert.h>

/* Four rounds make a pseudo-random permutation of a large domain; the halves of a small one have
 * few bits, which more rounds make up for. */
enum { ROUNDS = 8 };

typedef struct {
  uint64_t seed, epoch;
  int half_bits;
} cipher;

static uint64_t encrypt(const cipher *c, uint64_t value) {
  uint64_t mask = (UINT64_C(1) << c->half_bits) - 1;
  uint64_t left = value >> c->half_bits, right = value & mask;
  for (uint64_t round = 0; round < ROUNDS; round++) {
    uint32_t words[4];
    tsr_philox(round << 32 | right, c->epoch, c->seed, words);
    uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << c->half_bits | right;
}

int64_t tsr_sample_order_at(uint64_t seed, int64_t n, int64_t position) {
  assert(n >= 1 && n <= INT64_C(1) << 62 && position >= 0);
  cipher c = {.seed = seed, .epoch = (uint64_t)(position / n), .half_bits = 1};
  while (n > INT64_C(1) << 2 * c.half_bits) c.half_bits++;
  uint64_t value = (uint64_t)(position % n);
  do value = encrypt(&c, value);
  while (value >= (uint64_t)n);
  return (int64_t)value;
}
