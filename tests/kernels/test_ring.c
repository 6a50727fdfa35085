// SPDX-License-Identifier: Apache-2.0
/* The ring's bookkeeping by brute force: every coord and step of many shapes. */
#include "../check.h"
#include "base/reduction_tree.h"
#include "kernels/ring_attention_merge.h"

enum { UNITS_MAX = 128 };

/* A tree as its set of merges: right_end[begin][middle], 0 where there is none. */
typedef struct {
  int64_t right_end[UNITS_MAX + 1][UNITS_MAX + 1];
  int64_t merges;
} tree;

static void tree_add(tree *t, int64_t begin, int64_t middle, int64_t end) {
  CHECK(begin < middle && middle < end && !t->right_end[begin][middle]);
  t->right_end[begin][middle] = end;
  t->merges++;
}

static void tree_of_stack(tree *t, int64_t units) {
  int64_t begin[UNITS_MAX + 1]; /* of the stack's entries; each ends where the next begins */
  int depth = 0;
  for (int64_t i = 0; i < units; i++) {
    begin[depth++] = i;
    for (int merges = tsr_tree_merges(units, i); merges > 0; merges--, depth--)
      tree_add(t, begin[depth - 2], begin[depth - 1], i + 1);
  }
  CHECK_INT(depth, 1);
}

/* What lies in each slot: the part that was put there; end 0 when it is free. */
typedef struct {
  tsr_ring_part slots[2 * TSR_RING_TEMP];
  int kept, temps; /* slots used at all */
} memory;

static void memory_put(memory *m, int slot, int64_t begin, int64_t end) {
  CHECK_INT(m->slots[slot].end, 0);
  m->slots[slot] = (tsr_ring_part){begin, end, slot};
  if (slot < TSR_RING_TEMP) m->kept = slot >= m->kept ? slot + 1 : m->kept;
  else m->temps = slot - TSR_RING_TEMP >= m->temps ? slot - TSR_RING_TEMP + 1 : m->temps;
}

static void memory_take(memory *m, const tsr_ring_part *part) {
  tsr_ring_part *there = &m->slots[part->slot];
  CHECK(there->begin == part->begin && there->end == part->end);
  there->end = 0;
}

static void run_step(const tsr_ring *r, int step, memory *m, tree *t, int *leaves) {
  tsr_ring_pending p;
  tsr_ring_before(r, step, &p);
  for (int i = 0; i < p.count; i++) { /* what the steps before have really left */
    CHECK(p.parts[i].slot < TSR_RING_TEMP);
    CHECK_INT(m->slots[p.parts[i].slot].begin, p.parts[i].begin);
    CHECK_INT(m->slots[p.parts[i].slot].end, p.parts[i].end);
  }
  for (int64_t local = 0; local < r->units / r->members; local++) {
    int64_t unit = tsr_ring_unit(r, tsr_ring_source(r, step), local);
    leaves[unit]++;
    int slot = tsr_ring_push(&p, unit);
    CHECK(slot >= TSR_RING_TEMP);
    memory_put(m, slot, unit, unit + 1);
    for (tsr_ring_part left, right; tsr_ring_merge(&p, &left, &right);) {
      memory_take(m, &left), memory_take(m, &right);
      CHECK_INT(left.end, right.begin);
      tree_add(t, left.begin, left.end, right.end);
      memory_put(m, left.slot, left.begin, right.end);
    }
  }
  int to;
  for (tsr_ring_part from; tsr_ring_settle(&p, &from, &to);) {
    memory_take(m, &from);
    memory_put(m, to, from.begin, from.end);
  }
}

/* The most slots over all coords: {kept, temps}. */
typedef struct {
  int kept, temps;
} counts;

static counts check_shape(tsr_ring r) {
  static tree want, got;
  counts most = {0, 0};
  memset(&want, 0, sizeof want);
  tree_of_stack(&want, r.units);
  for (r.coord = 0; r.coord < r.members; r.coord++) {
    memory m = {0};
    int leaves[UNITS_MAX] = {0};
    memset(&got, 0, sizeof got);
    for (int step = 0; step < r.members; step++) run_step(&r, step, &m, &got, leaves);
    for (int64_t u = 0; u < r.units; u++) CHECK_INT(leaves[u], 1);
    CHECK_INT(got.merges, r.units - 1);
    CHECK(!memcmp(got.right_end, want.right_end, sizeof want.right_end));
    tsr_ring_pending whole;
    tsr_ring_before(&r, r.members, &whole);
    CHECK_INT(whole.count, 1);
    CHECK_INT(m.slots[whole.parts[0].slot].begin, 0);
    CHECK_INT(m.slots[whole.parts[0].slot].end, r.units);
    most.kept = m.kept > most.kept ? m.kept : most.kept;
    most.temps = m.temps > most.temps ? m.temps : most.temps;
  }
  CHECK_AT(
      most.kept <= tsr_ring_slots(&r) && most.temps <= tsr_ring_temps(&r),
      "units %lld, members %d, zigzag %d: %d kept of %d, %d temps of %d", (long long)r.units,
      r.members, r.zigzag, most.kept, tsr_ring_slots(&r), most.temps, tsr_ring_temps(&r));
  return most;
}

/* Chunks that are subtrees, and others too. */
static void test_shapes(void) {
  for (int64_t units = 1; units <= 40; units++)
    for (int members = 1; members <= units; members++)
      for (int layout = 0; layout < 4; layout++) {
        tsr_ring r = {units, members, 0, layout & 1, layout & 2};
        if (units % (members * (r.zigzag && members > 1 ? 2 : 1)) == 0) check_shape(r);
      }
}

/* Memory grows as the logarithm of what there is. */
static void test_growth(void) {
  int log2_members = 0;
  for (int members = 1; members <= 64; members *= 2, log2_members++) {
    tsr_ring r = {.units = 2 * members, .members = members};
    int interval = log2_members > 1 ? 2 * (log2_members - 1) : 1;
    counts contiguous = check_shape(r);
    r.zigzag = true;
    counts zigzag = check_shape(r);
    printf("members %d: slots %d, zigzag %d\n", members, contiguous.kept, zigzag.kept);
    CHECK_INT(contiguous.kept, interval);
    CHECK_INT(zigzag.kept, members > 1 ? 2 * interval : 1);
    r.zigzag = false;
    CHECK_INT(tsr_ring_slots(&r), contiguous.kept);
  }
  for (int depth = 0; depth <= 7; depth++) {
    tsr_ring r = {.units = (int64_t)1 << depth, .members = 1};
    counts one = check_shape(r);
    CHECK_INT(one.kept, 1);
    CHECK_INT(one.temps, depth + 1);
  }
  tsr_ring large = {.units = (int64_t)1 << 40, .members = 1 << 16, .zigzag = true};
  CHECK_INT(tsr_ring_slots(&large), 60);
  CHECK_INT(tsr_ring_temps(&large), 25);
}

/* Three members of twelve positions, by hand. */
static void test_layouts(void) {
  tsr_ring r = {.units = 12, .members = 3, .coord = 1};
  const int64_t contiguous[] = {4, 5, 6, 7}, zigzag[] = {2, 3, 8, 9};
  for (int i = 0; i < 4; i++) CHECK_INT(tsr_ring_unit(&r, 1, i), contiguous[i]);
  r.zigzag = true;
  for (int i = 0; i < 4; i++) CHECK_INT(tsr_ring_unit(&r, 1, i), zigzag[i]);
  const int keys[] = {1, 0, 2}, queries[] = {1, 2, 0};
  for (int step = 0; step < 3; step++) CHECK_INT(tsr_ring_source(&r, step), keys[step]);
  r.queries = true;
  for (int step = 0; step < 3; step++) CHECK_INT(tsr_ring_source(&r, step), queries[step]);
}

int main(void) {
  test_layouts();
  test_shapes();
  test_growth();
  return check_done("kernels.ring");
}
