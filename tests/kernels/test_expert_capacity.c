// SPDX-License-Identifier: Apache-2.0
/* The plan of experts that drop rows: which are kept, by counting for each choice how many are to be
 * kept before it. */
#include "experts_check.h"

/* A NaN is the smallest number; of equal ones the first slot is kept. */
static bool is_before(const float *priority, int64_t a, int64_t b) {
  if (!priority) return a < b;
  float x = isnan(priority[a]) ? -INFINITY : priority[a],
        y = isnan(priority[b]) ? -INFINITY : priority[b];
  return x > y || (x == y && a < b);
}

static bool is_kept(
    const tsr_experts *e, const tsr_capacity *c, const int32_t *experts, const float *priority,
    int64_t slot) {
  int64_t each = c->unit_tokens * e->k, unit = slot / each, before = 0;
  for (int64_t other = unit * each; other < (unit + 1) * each; other++)
    before += experts[other] == experts[slot] && is_before(priority, other, slot);
  return before < c->slots;
}

/* Rows in the order of expert and token; returns how many. */
static int64_t want_plan(
    const tsr_experts *e, const tsr_capacity *c, int32_t *plan, const int32_t *experts,
    const float *priority, int64_t S) {
  int64_t row = 0;
  for (int64_t expert = e->first; expert < e->first + e->count; expert++)
    for (int64_t slot = 0; slot < S * e->k; slot++)
      if (experts[slot] == expert && is_kept(e, c, experts, priority, slot)) {
        plan[row * 2] = (int32_t)slot;
        plan[row++ * 2 + 1] = (int32_t)expert;
      }
  return row;
}

static void check_plan(
    const tsr_kernels *k, const tsr_experts *e, const tsr_capacity *c, const int32_t *experts,
    const float *priority, int64_t S) {
  int64_t R = S * e->k + 3;
  size_t bytes = (size_t)R * 2 * sizeof(int32_t);
  int32_t *plan = check_alloc(bytes), *want = check_alloc(bytes);
  memset(want, -1, bytes);
  int64_t rows = want_plan(e, c, want, experts, priority, S);
  void *scratch = check_alloc((size_t)k->expert_plan_scratch(e->count, S * e->k, e->k, c));
  CHECK_INT(k->expert_plan(e, c, plan, experts, priority, S, R, scratch), rows);
  CHECK_AT(
      !memcmp(plan, want, bytes), "%s: E %d k %d, experts from %d, %d slots of %d tokens%s", k->isa,
      (int)e->E, (int)e->k, (int)e->first, (int)c->slots, (int)c->unit_tokens,
      priority ? ", by priority" : "");
  free(plan), free(want), free(scratch);
}

/* By position and by priority, whose numbers are all different, then of few values, then equal. */
static void check_choices(
    const tsr_kernels *k, int64_t E, int64_t chosen, const int32_t *experts, int64_t units,
    int64_t unit_tokens) {
  int64_t S = units * unit_tokens;
  float *priority = input_new(S * chosen, 1);
  for (int64_t slots = 1; slots <= unit_tokens; slots += 1 + unit_tokens / 6)
    for (int64_t count = E; count >= 1; count /= 2) {
      if (!tsr_tree_is_subtree(E, count)) continue;
      tsr_experts e = {E, chosen, E - count, count};
      tsr_capacity c = {slots, unit_tokens};
      check_plan(k, &e, &c, experts, NULL, S);
      check_plan(k, &e, &c, experts, priority, S);
    }
  tsr_experts all = {E, chosen, 0, E};
  tsr_capacity half = {(unit_tokens + 1) / 2, unit_tokens};
  for (int values = 3; values >= 1; values--) {
    for (int64_t i = 0; i < S * chosen; i++)
      priority[i] = (float)(check_random() % (uint64_t)values);
    check_plan(k, &all, &half, experts, priority, S);
  }
  for (int64_t i = 0; i < S * chosen; i++) {
    static const float special[] = {NAN, -INFINITY, INFINITY, 0.0f, -0.0f, 0.5f};
    priority[i] = special[check_random() % 6];
  }
  check_plan(k, &all, &half, experts, priority, S);
  free(priority);
}

static void test_random(const tsr_kernels *k) {
  static const int64_t shapes[][4] = {/* E, k, units, tokens of a unit */
                                      {1, 1, 1, 1},  {8, 2, 3, 13},  {8, 8, 2, 7},  {12, 3, 1, 65},
                                      {6, 1, 5, 29}, {60, 4, 2, 33}, {4, 2, 2, 257}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i];
    int32_t *experts = choices_new(s[2] * s[3], s[0], s[1]);
    check_choices(k, s[0], s[1], experts, s[2], s[3]);
    free(experts);
  }
}

/* All tokens choose the same experts, which drop most; the others have none. */
static void test_uneven(const tsr_kernels *k) {
  enum { E = 8, UNITS = 3, TOKENS = 19, S = UNITS * TOKENS };
  int32_t one[S], two[S * 2];
  for (int s = 0; s < S; s++) one[s] = E - 1, two[s * 2] = 0, two[s * 2 + 1] = 5;
  check_choices(k, E, 1, one, UNITS, TOKENS);
  check_choices(k, E, 2, two, UNITS, TOKENS);
}

/* Written out: two units of three tokens that all choose expert 1 of 2, with two slots. */
static void test_example(const tsr_kernels *k) {
  static const int32_t experts[6] = {1, 1, 1, 1, 1, 1};
  static const float priority[6] = {0.5f, 0.5f, 0.75f, 0, 1, 0};
  static const int32_t by_position[8] = {0, 1, 1, 1, 3, 1, 4, 1},
                       by_priority[8] = {0, 1, 2, 1, 3, 1, 4, 1};
  tsr_experts e = {2, 1, 0, 2};
  tsr_capacity c = {2, 3};
  int32_t plan[8];
  void *scratch = check_alloc((size_t)k->expert_plan_scratch(2, 6, 1, &c));
  CHECK_INT(k->expert_plan(&e, &c, plan, experts, NULL, 6, 4, scratch), 4);
  CHECK(!memcmp(plan, by_position, sizeof plan));
  CHECK_INT(k->expert_plan(&e, &c, plan, experts, priority, 6, 4, scratch), 4);
  CHECK(!memcmp(plan, by_priority, sizeof plan));
  free(scratch);
}

int main(void) {
  each_level(test_random);
  each_level(test_uneven);
  each_level(test_example);
  return check_done("kernels.expert_capacity");
}
