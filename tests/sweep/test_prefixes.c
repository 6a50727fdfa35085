// SPDX-License-Identifier: Apache-2.0
/* Trees of shared steps, against the rates step by step: what runs share is the same, and everything
 * that is the same is made once. */
#include "sweep/prefix.h"
#include "tests/check.h"
#include <stdlib.h>

enum { RUNS_MAX = 9, STEPS_MAX = 10 /* so short that every node is worth a process */ };
static uint32_t state = 7;
static int draw(int below) {
  state = state * 1664525u + 1013904223u;
  return (int)((state >> 8) % (uint32_t)below);
}

static tsr_prefix_run draw_run(void) {
  static const char *const groups[] = {"a", "a", "a", "b", NULL};
  static const tsr_lr_kind kinds[] = {TSR_LR_CONSTANT,     TSR_LR_CONSTANT, TSR_LR_WSD,
                                      TSR_LR_WSD,          TSR_LR_LINEAR,   TSR_LR_COSINE,
                                      TSR_LR_WARMUP_LINEAR};
  int steps = 1 + draw(STEPS_MAX), warmup = draw(3);
  tsr_prefix_run r = {.group = groups[draw(5)], .steps = 1 + draw(steps)};
  r.curve = (tsr_lr_curve){.kind = kinds[draw(7)], .base = draw(4) ? 1 : 0.5, .total_steps = steps};
  r.curve.warmup_steps = warmup < steps ? warmup : 0;
  r.curve.stable_steps = draw(steps - (int)r.curve.warmup_steps + 1);
  return r;
}

static bool same(const tsr_prefix_run *a, const tsr_prefix_run *b, int64_t steps) {
  for (int64_t s = 0; s < steps; s++)
    if (tsr_learning_rate(&a->curve, s) != tsr_learning_rate(&b->curve, s)) return false;
  return a == b || (a->group && b->group && !strcmp(a->group, b->group));
}

/* A step before a run's last one counts where no earlier run has made the same steps up to it. */
static int64_t least_steps(const tsr_prefix_run *runs, int count) {
  int64_t all = 0;
  for (int i = 0; i < count; i++)
    for (int64_t s = 1; s <= runs[i].steps; s++) {
      bool again = false;
      for (int k = 0; k < i && s < runs[i].steps; k++)
        again |= s < runs[k].steps && same(&runs[i], &runs[k], s);
      all += !again;
    }
  return all;
}

static void check_way(const tsr_prefix_run *runs, const tsr_prefix_tree *t, int run) {
  int64_t step = runs[run].steps;
  for (int node = t->leaf[run]; node >= 0; node = t->nodes[node].parent) {
    const tsr_prefix_node *n = &t->nodes[node];
    CHECK(n->step < step);
    CHECK(n->parent < node);
    CHECK(same(&runs[run], &runs[n->run], n->step));
    CHECK(n->step < runs[n->run].steps);
    step = n->step;
  }
  CHECK(step > 0);
}

static void test_trees(void) {
  int shared = 0;
  for (int number = 0; number < 3000; number++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_prefix_run runs[RUNS_MAX];
    int count = 1 + draw(RUNS_MAX);
    for (int i = 0; i < count; i++) runs[i] = draw_run();
    tsr_prefix_tree t = tsr_prefix_tree_make(arena, runs, count);
    int64_t made = 0;
    for (int n = 0; n < t.count; n++)
      made += t.nodes[n].step - (t.nodes[n].parent < 0 ? 0 : t.nodes[t.nodes[n].parent].step);
    for (int i = 0; i < count; i++) {
      made += runs[i].steps - (t.leaf[i] < 0 ? 0 : t.nodes[t.leaf[i]].step);
      check_way(runs, &t, i);
    }
    CHECK_INT(made, least_steps(runs, count));
    shared += t.count;
    tsr_arena_free(arena);
  }
  CHECK(shared > 1000);
}

/* Of 1,000 steps 99 are not worth a process, 100 are. */
static void test_short(void) {
  tsr_arena *arena = tsr_arena_new();
  for (int warmup = 99; warmup <= 100; warmup++) {
    tsr_prefix_run runs[2];
    for (int i = 0; i < 2; i++) {
      runs[i] = (tsr_prefix_run){.group = "a", .steps = 1000};
      runs[i].curve = (tsr_lr_curve){TSR_LR_WSD, 1, i * 0.5, 1000, warmup, 0};
    }
    tsr_prefix_tree t = tsr_prefix_tree_make(arena, runs, 2);
    CHECK_INT(t.count, warmup == 100 || 10 * (warmup + 1) >= 1000);
    if (t.count) CHECK_INT(t.nodes[0].step, warmup + 1);
  }
  tsr_arena_free(arena);
}

int main(void) {
  test_trees();
  test_short();
  return check_done("sweep.prefixes");
}
