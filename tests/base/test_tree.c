// SPDX-License-Identifier: Apache-2.0
/* The tree of sums against a stack that is gone through step by step: what it holds before each
 * unit, at most, and at the end; that ranks with a subtree each end with the same tree, and that
 * tsr_tree_stack adds the same entries, also when it goes on at any unit. */
#include "base/reduction_tree.h"
#include "tests/check.h"

enum { UNITS_MAX = 300 };

/* A tree as a number that depends on its shape and leaves. */
typedef uint64_t shape;
static shape leaf(int64_t i) { return (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u; }
static shape join(shape low, shape high) {
  uint64_t mixed = (low ^ low >> 29) * 0xBF58476D1CE4E5B9u + high;
  return (mixed ^ mixed >> 32) * 0x94D049BB133111EBu;
}

typedef struct {
  shape at[UNITS_MAX];
  int count, most;
} stack;

static void push(stack *s, shape entry, int merges) {
  s->at[s->count++] = entry;
  if (s->count > s->most) s->most = s->count;
  for (; merges; merges--, s->count--)
    s->at[s->count - 2] = join(s->at[s->count - 2], s->at[s->count - 1]);
}

static shape sum(int64_t n) {
  stack s = {.count = 0};
  for (int64_t i = 0; i < n; i++) {
    CHECK_INT(tsr_tree_entries(n, i), s.count);
    push(&s, leaf(i), tsr_tree_merges(n, i));
  }
  CHECK_INT(s.count, 1);
  CHECK_INT(tsr_tree_depth(n), s.most);
  return s.at[0];
}

/* By tsr_tree_stack, which is made anew for each unit from `anew` on. */
static shape sum_of_stack(int64_t n, int64_t anew) {
  shape at[UNITS_MAX];
  tsr_tree_stack tree = {0};
  for (int64_t i = 0; i < n; i++) {
    if (i >= anew) tree = (tsr_tree_stack){.entries = tsr_tree_entries(n, i)};
    at[tsr_tree_push(&tree, tsr_tree_merges(n, i))] = leaf(i);
    for (int low; tsr_tree_merge(&tree, &low);) at[low] = join(at[low], at[low + 1]);
  }
  CHECK_INT(tree.entries, 1);
  return at[0];
}

/* Each of `ranks` adds its own units, and they add what they have. */
static shape sum_of_ranks(int64_t n, int64_t ranks) {
  stack all = {.count = 0};
  for (int64_t r = 0; r < ranks; r++) {
    stack own = {.count = 0};
    for (int64_t i = r * n / ranks; i < (r + 1) * n / ranks; i++)
      push(&own, leaf(i), tsr_tree_merges(n / ranks, i - r * n / ranks));
    CHECK_INT(own.count, 1);
    push(&all, own.at[0], tsr_tree_merges(ranks, r));
  }
  CHECK_INT(all.count, 1);
  return all.at[0];
}

/* From left to right; and that a unit which is merged at once needs no place. */
static void check_shape(tsr_tree_shape tree, int64_t n, shape want) {
  shape at[UNITS_MAX];
  int entries = 0, most = 0, stored = 0;
  for (int64_t i = 0; i < n; i++) {
    int merges = tsr_tree_of_merges(tree, n, i);
    CHECK_INT(tsr_tree_of_entries(tree, n, i), entries);
    at[entries++] = leaf(i);
    if (entries > most) most = entries;
    if (!merges && entries > stored) stored = entries;
    for (; merges; merges--, entries--) at[entries - 2] = join(at[entries - 2], at[entries - 1]);
  }
  CHECK_INT(entries, 1);
  CHECK(at[0] == want);
  CHECK_INT(tsr_tree_of_depth(tree, n), most);
  CHECK_INT(tsr_tree_of_stored(tree, n), stored);
}

int main(void) {
  CHECK_INT(tsr_tree_depth(0), 0);
  shape flat = leaf(0);
  for (int64_t n = 1; n <= UNITS_MAX; n++) {
    check_shape(TSR_TREE_BINARY, n, sum(n));
    check_shape(TSR_TREE_FLAT, n, flat);
    flat = join(flat, leaf(n));
    for (int64_t local = 1; local <= n; local++) {
      bool node = local == 1 || local == n;
      CHECK(tsr_tree_of_is_subtree(TSR_TREE_FLAT, n, local) == node);
    }
    shape want = sum(n);
    CHECK(sum_of_stack(n, n) == want && sum_of_stack(n, n / 2) == want);
    for (int64_t ranks = 2; ranks < n; ranks++)
      if (n % ranks == 0 && tsr_tree_is_subtree(n, n / ranks))
        CHECK_AT(sum_of_ranks(n, ranks) == want, "%d units on %d ranks", (int)n, (int)ranks);
  }
  return check_done("tree");
}
