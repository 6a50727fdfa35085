// SPDX-License-Identifier: Apache-2.0
/* What the tests of the GPU's kernels for mixtures of experts share: choices, and whole numbers
 * that a kernel writes. */
#ifndef TSR_TESTS_CUDA_EXPERT_CASE_H
#define TSR_TESTS_CUDA_EXPERT_CASE_H
#include "cuda_check.h"
#include "kernels/cuda/experts.h"

/* (S,k): k of E experts for each token, in ascending order; in half of the tokens the first
 * ones. */
static inline integers random_choices(int64_t S, int64_t E, int64_t k) {
  integers experts((size_t)(S * k));
  for (int64_t s = 0; s < S; s++)
    for (int64_t e = 0, j = 0; j < k; e++)
      if (s % 2 || (int64_t)(check_random() % (uint64_t)(E - e)) < k - j)
        experts[(size_t)(s * k + j++)] = (int32_t)e;
  return experts;
}

/* An array of whole numbers to write; -1 is what memory has before. */
static inline int32_t *out_integers(call_arrays &c, int64_t n) {
  return (int32_t *)c.changed(numbers((size_t)n, 0));
}
static inline integers as_integers(const numbers &x) {
  integers y(x.size());
  if (!x.empty()) memcpy(y.data(), x.data(), 4 * x.size());
  return y;
}

static inline void check_integers(const char *what, const integers &got, const integers &want) {
  size_t at = 0;
  CHECK_INT(got.size(), want.size());
  while (at < want.size() && got[at] == want[at]) at++;
  CHECK_AT(
      at == want.size(), "%s, n %d: at %d %d, not %d", what, (int)want.size(), (int)at, got[at],
      want[at]);
}

/* The CPU's plan (R, 2). */
static inline integers cpu_plan(
    const tsr_experts &e, const tsr_capacity &capacity, const integers &experts,
    const float *priority, int64_t S, int64_t R, int64_t *ret_rows) {
  integers plan((size_t)(2 * R));
  std::vector<int64_t> scratch(
      (size_t)cpu->expert_plan_scratch(e.count, S * e.k, e.k, &capacity) / 8 + 1);
  *ret_rows =
      cpu->expert_plan(&e, &capacity, plan.data(), experts.data(), priority, S, R, scratch.data());
  return plan;
}

/* Room for a rank's rows, and some more. */
static inline int64_t room_for(const tsr_experts &e, int64_t S) {
  return S * (e.k < e.count ? e.k : e.count) + 3;
}

#endif
