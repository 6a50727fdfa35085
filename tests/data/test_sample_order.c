// SPDX-License-Identifier: Apache-2.0
/* The sample order: a bijection per epoch, other for other seeds and epochs, and frozen. */
#include "data/sample_order.h"
#include "tests/check.h"
#include <stdlib.h>

static void test_bijection(void) {
  static const int64_t sizes[] = {1,  2,  3,  4,   5,   7,   8,    15,   16,   17,
                                  63, 64, 65, 100, 255, 257, 1000, 1025, 4096, 4097};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t n = sizes[i];
    for (int64_t epoch = 0; epoch < 2; epoch++) {
      char *seen = calloc((size_t)n, 1);
      int64_t found = 0;
      for (int64_t p = 0; p < n; p++) {
        int64_t sample = tsr_sample_order_at(7, n, epoch * n + p);
        CHECK(sample >= 0 && sample < n);
        if (sample >= 0 && sample < n) found += !seen[sample]++;
      }
      CHECK_INT(found, n);
      free(seen);
    }
  }
}

static int64_t same(uint64_t seed_a, int64_t begin_a, uint64_t seed_b, int64_t begin_b, int64_t n) {
  int64_t count = 0;
  for (int64_t p = 0; p < n; p++)
    count +=
        tsr_sample_order_at(seed_a, n, begin_a + p) == tsr_sample_order_at(seed_b, n, begin_b + p);
  return count;
}

/* Two random permutations agree in one place on average. */
static void test_differs(void) {
  CHECK(same(1, 0, 2, 0, 1000) < 10);
  CHECK(same(1, 0, 1, 1000, 1000) < 10);
  CHECK(same(1, 0, 1, 0, 1000) == 1000);
  int64_t fixed = 0, next = 0;
  for (int64_t p = 0; p < 1000; p++) {
    int64_t sample = tsr_sample_order_at(3, 1000, p);
    fixed += sample == p;
    next += tsr_sample_order_at(3, 1000, p + 1) == sample + 1;
  }
  CHECK(fixed < 10 && next < 10);
}

/* Where a position goes is spread evenly: 4 samples in their 24 orders over many seeds. */
static void test_uniform(void) {
  int counts[4][4] = {{0}};
  for (uint64_t seed = 0; seed < 4000; seed++)
    for (int p = 0; p < 4; p++) counts[p][tsr_sample_order_at(seed, 4, p)]++;
  for (int p = 0; p < 4; p++)
    for (int s = 0; s < 4; s++) CHECK(abs(counts[p][s] - 1000) < 150);
}

/* A run that is resumed by a later version must see the same samples. */
static void test_frozen(void) {
  static const int64_t ten[20] = {0, 5, 4, 9, 1, 2, 6, 3, 7, 8, 1, 5, 7, 6, 4, 8, 2, 9, 3, 0};
  for (int p = 0; p < 20; p++) CHECK_INT(tsr_sample_order_at(42, 10, p), ten[p]);
  CHECK_INT(tsr_sample_order_at(5489, 1115138, 0), 163822);
  CHECK_INT(tsr_sample_order_at(5489, 1115138, 123456789), 298258);
  CHECK_INT(
      tsr_sample_order_at(UINT64_MAX, INT64_C(1) << 62, INT64_MAX), INT64_C(2511353145942596838));
}

int main(void) {
  test_bijection();
  test_differs();
  test_uniform();
  test_frozen();
  return check_done("data.sample_order");
}
