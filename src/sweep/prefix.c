// SPDX-License-Identifier: Apache-2.0
#include "sweep/prefix.h"
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_prefix_run *runs;
  tsr_prefix_tree tree;
  int capacity;
} builder;

/* Runs by number, rising. */
typedef struct {
  int *items, count;
} run_set;

static run_set set_new(builder *b, int room) {
  return (run_set){.items = tsr_arena_array(b->arena, int, room + 1)};
}

static bool same_rate(const builder *b, int a, int c, int64_t step) {
  double x = tsr_learning_rate(&b->runs[a].curve, step);
  double y = tsr_learning_rate(&b->runs[c].curve, step);
  return !memcmp(&x, &y, sizeof x);
}

static int64_t shortest(const builder *b, run_set set) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < set.count; i++)
    if (b->runs[set.items[i]].steps < least) least = b->runs[set.items[i]].steps;
  return least;
}

/* The first step from `step` on at which one of the runs has another rate, or is at its last one.
 */
static int64_t find_end(const builder *b, run_set set, int64_t step) {
  int64_t last = shortest(b, set) - 1;
  for (; step < last; step++)
    for (int i = 1; i < set.count; i++)
      if (!same_rate(b, set.items[0], set.items[i], step)) return step;
  return last;
}

static int add_node(builder *b, run_set set, int parent, int64_t step) {
  tsr_prefix_tree *t = &b->tree;
  tsr_arena_grow(b->arena, (void **)&t->nodes, sizeof *t->nodes, t->count, &b->capacity);
  t->nodes[t->count] = (tsr_prefix_node){parent, step, set.items[0]};
  return t->count++;
}

/* Takes those with the first one's rate of the step out of the set. */
static run_set take_alike(builder *b, run_set *set, int64_t step) {
  run_set alike = set_new(b, set->count);
  int left = 0, first = set->items[0];
  for (int i = 0; i < set->count; i++) {
    int run = set->items[i];
    if (same_rate(b, first, run, step)) alike.items[alike.count++] = run;
    else set->items[left++] = run;
  }
  set->count = left;
  return alike;
}

/* The runs have the same rates up to `step`; they begin at the end of `parent`. */
static void build(builder *b, run_set set, int parent, int64_t step) {
  for (int i = 0; i < set.count; i++) b->tree.leaf[set.items[i]] = parent;
  if (set.count < 2) return;
  int64_t end = find_end(b, set, step), begin = parent < 0 ? 0 : b->tree.nodes[parent].step;
  if (end > begin && 10 * (end - begin) >= shortest(b, set)) {
    parent = add_node(b, set, parent, end);
    for (int i = 0; i < set.count; i++) b->tree.leaf[set.items[i]] = parent;
  }
  run_set others = set_new(b, set.count);
  for (int i = 0; i < set.count; i++) /* but those that have no step left to share */
    if (b->runs[set.items[i]].steps - 1 > end) others.items[others.count++] = set.items[i];
  while (others.count) build(b, take_alike(b, &others, end), parent, end);
}

static bool is_of_group(const tsr_prefix_run *run, const char *group) {
  return run->group && !strcmp(run->group, group);
}

tsr_prefix_tree tsr_prefix_tree_make(tsr_arena *arena, const tsr_prefix_run *runs, int count) {
  builder b = {.arena = arena, .runs = runs};
  bool *seen = tsr_arena_array(arena, bool, count + 1);
  b.tree.leaf = tsr_arena_array(arena, int, count + 1);
  for (int i = 0; i < count; i++) b.tree.leaf[i] = -1;
  for (int i = 0; i < count; i++) {
    if (seen[i] || !runs[i].group) continue;
    int room = 0;
    for (int k = i; k < count; k++) room += is_of_group(&runs[k], runs[i].group);
    run_set set = set_new(&b, room);
    for (int k = i; k < count; k++) {
      if (!is_of_group(&runs[k], runs[i].group)) continue;
      set.items[set.count++] = k;
      seen[k] = true;
    }
    build(&b, set, -1, 0);
  }
  return b.tree;
}

const char *tsr_prefix_folder(tsr_arena *arena, int node) {
  return tsr_arena_printf(arena, "prefix-%03d", node + 1);
}
