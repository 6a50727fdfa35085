// SPDX-License-Identifier: Apache-2.0
/* What the tests of the rows of experts share: random choices of experts, and their plan. */
#ifndef TSR_TESTS_EXPERTS_CHECK_H
#define TSR_TESTS_EXPERTS_CHECK_H
#include "kernel_check.h"

/* (S,k): k of E experts for each token, in ascending order (selection sampling). */
static inline int32_t *choices_new(int64_t S, int64_t E, int64_t k) {
  int32_t *experts = check_alloc((size_t)(S * k) * sizeof *experts);
  for (int64_t s = 0; s < S; s++)
    for (int64_t e = 0, j = 0; j < k; e++)
      if ((int64_t)(check_random() % (uint64_t)(E - e)) < k - j) experts[s * k + j++] = (int32_t)e;
  return experts;
}

static inline bool expert_is_here(const tsr_experts *e, int32_t expert) {
  return expert >= e->first && expert < e->first + e->count;
}

static inline int64_t rows_here(const tsr_experts *e, const int32_t *experts, int64_t S) {
  int64_t rows = 0;
  for (int64_t slot = 0; slot < S * e->k; slot++) rows += expert_is_here(e, experts[slot]);
  return rows;
}

typedef struct {
  int64_t rows, R;
  int32_t *plan, *row_of;
} expert_rows;

/* With `unused` rows behind those in use. */
static inline expert_rows expert_rows_new(
    const tsr_kernels *k, const tsr_experts *e, const int32_t *experts, int64_t S, int64_t unused) {
  expert_rows t = {.R = rows_here(e, experts, S) + unused};
  t.plan = check_alloc((size_t)t.R * 2 * sizeof *t.plan);
  t.row_of = check_alloc((size_t)(S * e->k) * sizeof *t.row_of);
  tsr_capacity all = {0};
  void *scratch = check_alloc((size_t)k->expert_plan_scratch(e->count, S * e->k, e->k, &all));
  t.rows = k->expert_plan(e, &all, t.plan, experts, NULL, S, t.R, scratch);
  k->expert_row_of(t.row_of, t.plan, S * e->k, t.R);
  free(scratch);
  return t;
}

static inline void expert_rows_free(expert_rows *t) { free(t->plan), free(t->row_of); }

#endif
