// SPDX-License-Identifier: Apache-2.0
#include "kernels/ring_attention_merge.h"
#include "base/reduction_tree.h"
#include <assert.h>

static int chunks(const tsr_ring *r) { return r->zigzag && r->members > 1 ? 2 : 1; }

int tsr_ring_source(const tsr_ring *r, int step) {
  return (r->coord + (r->queries ? step : r->members - step)) % r->members;
}

int64_t tsr_ring_unit(const tsr_ring *r, int member, int64_t local) {
  int64_t chunk = r->units / r->members / chunks(r);
  int64_t mirror = 2 * (int64_t)r->members - 1 - member;
  return local < chunk ? member * chunk + local : mirror * chunk + local - chunk;
}

static int log2_ceil(int64_t n) { return n > 1 ? 64 - __builtin_clzll((uint64_t)n - 1) : 0; }

/* The most subtrees that an interval of a tree with n leaves falls into, and so does what is
 * outside of it: at each level below the root's, one at each of its two ends. */
static int pieces(int64_t n) { return n > 2 ? 2 * (log2_ceil(n) - 1) : 1; }

static bool chunks_are_subtrees(const tsr_ring *r) {
  return tsr_tree_is_subtree(r->units, r->units / r->members / chunks(r));
}

/* The members seen so far are an interval of the circle; zigzag it is one in each half of the tree,
 * which has an even number of chunks. */
int tsr_ring_slots(const tsr_ring *r) {
  if (r->members == 1) return 1;
  int64_t leaves = chunks_are_subtrees(r) ? r->members : r->units / chunks(r);
  return chunks(r) * pieces(leaves);
}

/* A chunk that is a subtree waits as one part while the next one is made. */
int tsr_ring_temps(const tsr_ring *r) {
  int64_t chunk = r->units / r->members / chunks(r);
  if (chunks_are_subtrees(r)) return log2_ceil(chunk) + chunks(r);
  return chunks(r) * pieces(r->units / chunks(r)) + 1;
}

/* base/reduction_tree.h's tree, from the root down: the left child's leaves of a node with n. */
static int64_t left_leaves(int64_t n) {
  return n % 2 == 0 ? n / 2 : (int64_t)1 << (63 - __builtin_clzll((uint64_t)n));
}

/* The node that becomes one with `part`; none for the root. */
static bool
sibling(int64_t units, const tsr_ring_part *part, int64_t *ret_begin, int64_t *ret_end) {
  int64_t begin = 0, end = units;
  *ret_begin = *ret_end = 0;
  while (part->begin != begin || part->end != end) {
    assert(end - begin > 1);
    int64_t middle = begin + left_leaves(end - begin);
    bool left = part->begin < middle;
    *ret_begin = left ? middle : begin;
    *ret_end = left ? end : middle;
    if (left) end = middle;
    else begin = middle;
  }
  return *ret_end > 0;
}

static int slot_take(uint64_t *used) {
  assert(~*used);
  int slot = __builtin_ctzll(~*used);
  *used |= (uint64_t)1 << slot;
  return slot;
}

static void slot_free(tsr_ring_pending *p, int slot) {
  if (slot >= TSR_RING_TEMP) p->temps &= ~((uint64_t)1 << (slot - TSR_RING_TEMP));
  else p->kept &= ~((uint64_t)1 << slot);
}

static int push_part(tsr_ring_pending *p, int64_t begin, int64_t end) {
  assert(p->count < TSR_RING_PARTS_MAX);
  p->last = p->count++;
  int slot = TSR_RING_TEMP + slot_take(&p->temps);
  p->parts[p->last] = (tsr_ring_part){begin, end, slot};
  return slot;
}

int tsr_ring_push(tsr_ring_pending *p, int64_t unit) { return push_part(p, unit, unit + 1); }

static int part_find(const tsr_ring_pending *p, int64_t begin, int64_t end) {
  for (int i = 0; i < p->count; i++)
    if (p->parts[i].begin == begin && p->parts[i].end == end) return i;
  return -1;
}

bool tsr_ring_merge(tsr_ring_pending *p, tsr_ring_part *ret_left, tsr_ring_part *ret_right) {
  int64_t begin, end;
  if (!sibling(p->units, &p->parts[p->last], &begin, &end)) return false;
  int other = part_find(p, begin, end);
  if (other < 0) return false;
  bool after = p->parts[other].begin > p->parts[p->last].begin;
  int left = after ? p->last : other, right = after ? other : p->last;
  *ret_left = p->parts[left], *ret_right = p->parts[right];
  p->parts[left].end = ret_right->end;
  slot_free(p, ret_right->slot);
  p->parts[right] = p->parts[--p->count];
  p->last = left == p->count ? right : left;
  return true;
}

/* The part that begins first goes to the lowest slot. With results in the left part's slot, the
 * slots at the end of a step are then the same whether a chunk comes in units or as a whole. */
bool tsr_ring_settle(tsr_ring_pending *p, tsr_ring_part *ret_from, int *ret_to) {
  int first = -1;
  for (int i = 0; i < p->count; i++)
    if (p->parts[i].slot >= TSR_RING_TEMP)
      if (first < 0 || p->parts[i].begin < p->parts[first].begin) first = i;
  if (first < 0) return false;
  *ret_from = p->parts[first];
  *ret_to = p->parts[first].slot = slot_take(&p->kept);
  slot_free(p, ret_from->slot);
  return true;
}

/* Pushes the largest subtrees under the node [node, node_end) that make up [begin, end). */
static void
push_run(tsr_ring_pending *p, int64_t node, int64_t node_end, int64_t begin, int64_t end) {
  if (begin >= node_end || end <= node) return;
  if (begin <= node && node_end <= end) {
    tsr_ring_part left, right;
    push_part(p, node, node_end);
    while (tsr_ring_merge(p, &left, &right)) {
    }
    return;
  }
  int64_t middle = node + left_leaves(node_end - node);
  push_run(p, node, middle, begin, end);
  push_run(p, middle, node_end, begin, end);
}

void tsr_ring_before(const tsr_ring *r, int step, tsr_ring_pending *ret_pending) {
  assert(r->members > 0 && r->units % ((int64_t)r->members * chunks(r)) == 0);
  assert(r->coord >= 0 && r->coord < r->members && step >= 0 && step <= r->members);
  int64_t chunk = r->units / r->members / chunks(r);
  *ret_pending = (tsr_ring_pending){.units = r->units};
  for (int done = 0; done < step; done++) {
    for (int i = 0; i < chunks(r); i++) {
      int64_t first = tsr_ring_unit(r, tsr_ring_source(r, done), i * chunk);
      push_run(ret_pending, 0, r->units, first, first + chunk);
    }
    tsr_ring_part from;
    int to;
    while (tsr_ring_settle(ret_pending, &from, &to)) {
    }
  }
}
