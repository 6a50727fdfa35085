// SPDX-License-Identifier: Apache-2.0
/* The hash of a tensor: the sum that its definition says, over any split, on every level; and what it
 * detects. */
#include "kernel_check.h"
#include "base/tensor_hash.h"

static const uint32_t block_keys[TSR_HASH_BLOCK] = {TSR_HASH_KEYS};

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return isnan(x) ? 0x7fc00000u : bits;
}

/* Element by element. */
static uint64_t reference(const float *x, int64_t first, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = first; i < first + count; i++)
    sum += tsr_hash_block_key(i / TSR_HASH_BLOCK) * block_keys[i % TSR_HASH_BLOCK] *
           bits_of(x[i - first]);
  return sum;
}

static void test_keys(void) {
  for (int j = 0; j < TSR_HASH_BLOCK; j++) {
    CHECK(block_keys[j] == ((uint32_t)(tsr_hash_mix((uint64_t)j) >> 32) | 1));
    for (int i = 0; i < j; i++) CHECK(block_keys[i] != block_keys[j]);
  }
  CHECK(tsr_hash_mix(0) == UINT64_C(0xe220a8397b1dcdaf)); /* splitmix64's first output of seed 0 */
}

static void check_size(const tsr_kernels *k, int64_t first, int64_t n) {
  float *x = input_new(n, 2);
  uint64_t whole = k->hash(x, first, n), sum = 0;
  CHECK_AT(whole == reference(x, first, n), "%s: hash of %lld", k->isa, (long long)n);
  for (int64_t begin = 0, end; begin < n; begin = end) {
    end = split_next(begin, n);
    sum += k->hash(x + begin, first + begin, end - begin);
  }
  CHECK_AT(sum == whole, "%s: the hash of %lld depends on the split", k->isa, (long long)n);
  free(x);
}

/* One bit anywhere, two elements exchanged, two blocks exchanged. */
static void check_detection(const tsr_kernels *k) {
  enum { N = 4 * TSR_HASH_BLOCK, TRIES = 2000 };
  float *x = input_new(N, 1);
  uint64_t before = k->hash(x, 0, N);
  for (int try = 0; try < TRIES; try++) {
    int i = (int)(check_random() % N), j = (int)(check_random() % N);
    float kept = x[i], other = x[j];
    uint32_t bits = bits_of(x[i]) ^ 1u << check_random() % 32;
    memcpy(&x[i], &bits, sizeof bits);
    CHECK_AT(isnan(x[i]) || k->hash(x, 0, N) != before, "%s: a bit of element %d", k->isa, i);
    x[i] = other, x[j] = kept;
    CHECK_AT(kept == other || k->hash(x, 0, N) != before, "%s: %d and %d exchanged", k->isa, i, j);
    x[i] = kept, x[j] = other;
  }
  float *turned = check_alloc(N * sizeof *turned);
  memcpy(turned, x + TSR_HASH_BLOCK, (N - TSR_HASH_BLOCK) * sizeof *x);
  memcpy(turned + N - TSR_HASH_BLOCK, x, TSR_HASH_BLOCK * sizeof *x);
  CHECK_AT(k->hash(turned, 0, N) != before, "%s: blocks exchanged", k->isa);
  free(turned);
  free(x);
}

/* The sign and the payload of a NaN are no part of the contract on bits; the sign of zero is. */
static void check_special(const tsr_kernels *k) {
  float x[TSR_HASH_BLOCK] = {0}, y[TSR_HASH_BLOCK] = {0};
  x[3] = NAN, y[3] = -NAN;
  CHECK_AT(k->hash(x, 64, 64) == k->hash(y, 64, 64), "%s: NaNs", k->isa);
  x[3] = INFINITY, y[3] = NAN;
  CHECK_AT(k->hash(x, 64, 64) != k->hash(y, 64, 64), "%s: infinity is no NaN", k->isa);
  x[3] = 0.0f, y[3] = -0.0f;
  CHECK_AT(k->hash(x, 64, 64) != k->hash(y, 64, 64), "%s: zeros", k->isa);
}

static void test_level(const tsr_kernels *k) {
  static const int64_t sizes[] = {0, 1, 2, 63, 64, 65, 127, 128, 1000, 4097};
  static const int64_t firsts[] = {0, 1, 63, 64, 1000, INT64_C(1) << 33, (INT64_C(1) << 40) + 7};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) check_size(k, firsts[f], sizes[s]);
  check_detection(k);
  check_special(k);
}

int main(void) {
  test_keys();
  each_level(test_level);
  return check_done("kernels.hash");
}
