// SPDX-License-Identifier: Apache-2.0
/* The plan that sorts rows by expert, and the permutation of tokens into rows. */
#include "experts_check.h"

/* The contract by brute force: for each expert here, for each token that chose it, a row. */
static void
plan_check(const tsr_experts *e, const expert_rows *t, const int32_t *experts, int64_t S) {
  int64_t row = 0;
  for (int64_t expert = e->first; expert < e->first + e->count; expert++)
    for (int64_t slot = 0; slot < S * e->k; slot++)
      if (experts[slot] == expert) {
        CHECK_INT(t->plan[row * 2], slot);
        CHECK_INT(t->plan[row * 2 + 1], expert);
        CHECK_INT(t->row_of[slot], row++);
      }
  CHECK_INT(t->rows, row);
  for (; row < t->R; row++) CHECK(t->plan[row * 2] == -1 && t->plan[row * 2 + 1] == -1);
  for (int64_t slot = 0; slot < S * e->k; slot++)
    if (!expert_is_here(e, experts[slot])) CHECK_INT(t->row_of[slot], -1);
}

static void check_permutation(
    const tsr_kernels *k, const tsr_experts *e, const expert_rows *t, int64_t S, int64_t C) {
  float *x = input_new(S * C, 1);
  double *want = reference_new(t->R * C);
  for (int64_t i = 0; i < t->rows * C; i++) want[i] = x[t->plan[i / C * 2] / e->k * C + i % C];
  output rows = output_new(t->R * C);
  RUN(t->R, k->permute_rows(rows.pass[pass], x, t->plan, e->k, C, begin, end));
  CHECK_OUTPUT(rows, want, 0, 0);
  output_free(&rows);
  free(x), free(want);
}

static void check_experts(
    const tsr_kernels *k, const tsr_experts *e, const int32_t *experts, int64_t S, int64_t C) {
  for (int64_t unused = 0; unused <= 5; unused += 5) {
    expert_rows t = expert_rows_new(k, e, experts, S, unused);
    plan_check(e, &t, experts, S);
    check_permutation(k, e, &t, S, C);
    expert_rows_free(&t);
  }
}

static void test_random(const tsr_kernels *k) {
  static const int64_t shapes[][4] = {/* E, k, S, C */
                                      {1, 1, 5, 1},   {8, 2, 13, 7},  {8, 8, 3, 64},
                                      {12, 3, 1, 65}, {6, 1, 29, 33}, {60, 4, 17, 100}};
  for (int i = 0; i < 6; i++) {
    int64_t E = shapes[i][0], chosen = shapes[i][1], S = shapes[i][2];
    int32_t *experts = choices_new(S, E, chosen);
    for (int64_t count = 1; count <= E; count++)
      for (int64_t first = 0; tsr_tree_is_subtree(E, count) && first < E; first += count)
        check_experts(k, &(tsr_experts){E, chosen, first, count}, experts, S, shapes[i][3]);
    free(experts);
  }
}

/* All tokens choose the same experts; the others have none. */
static void test_uneven(const tsr_kernels *k) {
  enum { E = 8, S = 11 };
  int32_t one[S], two[S * 2];
  for (int s = 0; s < S; s++) one[s] = 5, two[s * 2] = 2, two[s * 2 + 1] = 7;
  check_experts(k, &(tsr_experts){E, 1, 0, E}, one, S, 9);
  check_experts(k, &(tsr_experts){E, 2, 0, E}, two, S, 9);
  for (int64_t first = 0; first < E; first += 2) {
    check_experts(k, &(tsr_experts){E, 1, first, 2}, one, S, 9);
    check_experts(k, &(tsr_experts){E, 2, first, 2}, two, S, 9);
  }
}

/* Written out: tokens 0 {0, 2}, 1 {2, 3}, 2 {0, 3}; experts 2 and 3 are here. */
static void test_example(const tsr_kernels *k) {
  static const int32_t experts[6] = {0, 2, 2, 3, 0, 3};
  static const int32_t want_plan[12] = {1, 2, 2, 2, 3, 3, 5, 3, -1, -1, -1, -1};
  static const int32_t want_row_of[6] = {-1, 0, 1, 2, -1, 3};
  expert_rows t = expert_rows_new(k, &(tsr_experts){4, 2, 2, 2}, experts, 3, 2);
  CHECK_INT(t.rows, 4);
  CHECK(!memcmp(t.plan, want_plan, sizeof want_plan));
  CHECK(!memcmp(t.row_of, want_row_of, sizeof want_row_of));
  expert_rows_free(&t);
}

int main(void) {
  each_level(test_random);
  each_level(test_uneven);
  each_level(test_example);
  return check_done("kernels.experts");
}
