// SPDX-License-Identifier: Apache-2.0
/* Philox against the known answers of its authors, and every distribution element by element. */
#include "kernel_check.h"

static void check_words(uint64_t low, uint64_t high, uint64_t key, const uint32_t want[4]) {
  uint32_t words[4];
  tsr_philox(low, high, key, words);
  for (int i = 0; i < 4; i++) CHECK_INT(words[i], want[i]);
}

static void test_known_answers(void) {
  check_words(0, 0, 0, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check_words(
      UINT64_MAX, UINT64_MAX, UINT64_MAX,
      (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check_words(
      0x85a308d3243f6a88u, 0x0370734413198a2eu, 0x299f31d0a4093822u,
      (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static uint32_t word_of(uint64_t element, uint64_t key) {
  uint32_t words[4];
  tsr_philox(element / 4, 0, key, words);
  return words[element % 4];
}

static double normal_of(uint64_t element, uint64_t key) {
  double u = (word_of(element & ~1ull, key) + 0.5) * 0x1p-32;
  double angle = 2 * M_PI * word_of(element | 1, key) * 0x1p-32;
  return sqrt(-2 * log(u)) * (element % 2 ? sin(angle) : cos(angle));
}

static int64_t slice_size(const tsr_tensor_slice *slice) {
  int64_t n = 1;
  for (int d = 0; d < slice->ndim; d++) n *= slice->shape[d];
  return n;
}

static uint64_t global_of(const tsr_tensor_slice *slice, int64_t i) {
  uint64_t element = 0, stride = 1;
  for (int d = slice->ndim - 1; d >= 0; d--) {
    element += (uint64_t)(i % slice->shape[d] + slice->offset[d]) * stride;
    stride *= (uint64_t)slice->global[d];
    i /= slice->shape[d];
  }
  return element;
}

static void check_slice(const tsr_kernels *k, const tsr_tensor_slice *slice, uint64_t key) {
  int64_t n = slice_size(slice), rows = n / slice->shape[slice->ndim - 1];
  float *x = input_new(n, 3);
  double *want = reference_new(n), *want_uniform = reference_new(n), *want_drop = reference_new(n);
  for (int64_t i = 0; i < n; i++) {
    uint64_t element = global_of(slice, i);
    double uniform = (word_of(element, key) >> 8) * 0x1p-24;
    want[i] = 0.5 + 2 * normal_of(element, key);
    want_uniform[i] = -1 + 4 * uniform;
    want_drop[i] = uniform < 0.25 ? 0 : x[i] / 0.75;
  }
  output normal = output_new(n), uniform = output_new(n), drop = output_new(n);
  output in_place = output_from(x, n);
  RUN(rows, k->random_normal(normal.pass[pass], 0.5f, 2, key, slice, begin, end));
  RUN(rows, k->random_uniform(uniform.pass[pass], -1, 3, key, slice, begin, end));
  RUN(rows, k->dropout(drop.pass[pass], x, 0.25f, key, slice, begin, end));
  RUN(rows, k->dropout(in_place.pass[pass], in_place.pass[pass], 0.25f, key, slice, begin, end));
  CHECK_OUTPUT(normal, want, 2e-7, 1);
  CHECK_OUTPUT(uniform, want_uniform, 2e-7, 1);
  CHECK_OUTPUT(drop, want_drop, 2e-7, 1);
  CHECK_OUTPUT(in_place, want_drop, 2e-7, 1);
  output_free(&normal), output_free(&uniform), output_free(&drop), output_free(&in_place);
  free(x), free(want), free(want_uniform), free(want_drop);
}

static void test_slices(const tsr_kernels *k) {
  static const tsr_tensor_slice slices[] = {
      {1, {1}, {1}, {0}},
      {1, {17}, {100}, {33}},
      {1, {1037}, {1037}, {0}},
      {2, {7, 65}, {9, 130}, {2, 65}},
      {3, {3, 5, 33}, {3, 10, 99}, {0, 5, 33}},
      {4, {2, 2, 3, 7}, {4, 3, 5, 21}, {2, 1, 2, 7}},
      {2, {2, 600}, {1ll << 20, 1ll << 21}, {(1ll << 20) - 2, 1001}}, /* counters above 2^32 */
  };
  for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++)
    check_slice(k, &slices[i], 0x9876543210 + i);
}

static void test_moments(const tsr_kernels *k) {
  enum { N = 1 << 18 };
  static float x[N];
  tsr_tensor_slice slice = {1, {N}, {N}, {0}};
  k->random_normal(x, 0, 1, tsr_random_key(1234, "wte", 0), &slice, 0, 1);
  double mean = 0, square = 0, fourth = 0, lag = 0;
  for (int i = 0; i < N; i++) {
    mean += x[i] / (double)N;
    square += (double)x[i] * x[i] / N;
    fourth += pow(x[i], 4) / N;
    lag += i ? (double)x[i] * x[i - 1] / N : 0;
  }
  CHECK(fabs(mean) < 0.01);
  CHECK(fabs(square - 1) < 0.02);
  CHECK(fabs(fourth - 3) < 0.15);
  CHECK(fabs(lag) < 0.01);
}

static void test_keys(void) {
  uint64_t key = tsr_random_key(1, "wte", 0);
  CHECK(key == tsr_random_key(1, "wte", 0));
  CHECK(key != tsr_random_key(2, "wte", 0));
  CHECK(key != tsr_random_key(1, "wpe", 0));
  CHECK(key != tsr_random_key(1, "wte", 1));
}

int main(void) {
  test_known_answers();
  test_keys();
  each_level(test_slices);
  each_level(test_moments);
  return check_done("kernels.random");
}
