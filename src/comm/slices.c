// SPDX-License-Identifier: Apache-2.0
#include "comm/slices.h"

tsr_sum_slices tsr_collective_sum_slices(const tsr_collective *c) {
  bool scatters = c->op == TSR_OP_REDUCE_SCATTER;
  tsr_sum_slices s = {.end = 1, .step = 1, .rows = 1};
  if (c->op != TSR_OP_ALL_REDUCE) s.step = c->members / c->groups;
  if (c->op == TSR_OP_REDUCE) s.begin = c->root, s.end = c->root + 1;
  if (scatters) s.end = s.step, s.rows = tsr_collective_elements(c, 0, c->to);
  int64_t whole = tsr_collective_elements(c, scatters ? c->to : 0, c->ndim);
  int64_t run = whole / (s.end - s.begin);
  s.distance = run > 0 ? run : 1;
  s.view = (tsr_view){.run = run > 0 ? run : 1, .inner = 1, .outer_step = whole};
  s.elements = s.rows * run;
  return s;
}

static int group_size(const tsr_collective *c) { return c->members / c->groups; }

bool tsr_collective_moves(const tsr_collective *c, int from, int to) {
  bool same_group = from / group_size(c) == to / group_size(c);
  if (c->op == TSR_OP_ALL_GATHER) return same_group;
  if (c->op == TSR_OP_RING_SHIFT) return tsr_collective_source(c, to) == from;
  if (c->op == TSR_OP_BROADCAST) return same_group && from % group_size(c) == c->root;
  return c->from != c->to || from == to;
}

int64_t tsr_collective_moved(const tsr_collective *c) {
  int64_t whole = tsr_collective_elements(c, 0, c->ndim);
  if (c->op == TSR_OP_RING_SHIFT || c->op == TSR_OP_BROADCAST) return whole;
  if (c->op == TSR_OP_ALL_GATHER) return whole / group_size(c);
  return whole / c->members / (c->from == c->to ? 1 : c->members);
}

/* all_to_all: part i of dimension `dim`, of a tensor that has all of it and one member's part of
 * dimension `split`. */
static tsr_slice part_of(const tsr_collective *c, int dim, int split, int i) {
  int64_t below = tsr_collective_elements(c, dim + 1, c->ndim);
  if (split > dim) below /= c->members;
  int64_t run = c->shape[dim] / c->members * below;
  return (tsr_slice){
      {.run = run > 0 ? run : 1, .inner = 1, .outer_step = c->shape[dim] * below}, i * run};
}

static tsr_slice whole_of(const tsr_collective *c) {
  return (tsr_slice){tsr_view_contiguous(tsr_collective_moved(c)), 0};
}

tsr_slice tsr_collective_source_slice(const tsr_collective *c, int to) {
  bool parts = c->op == TSR_OP_ALL_TO_ALL && c->from != c->to;
  return parts ? part_of(c, c->to, c->from, to) : whole_of(c);
}

tsr_slice tsr_collective_target_slice(const tsr_collective *c, int from) {
  if (c->op == TSR_OP_ALL_TO_ALL && c->from != c->to) return part_of(c, c->from, c->to, from);
  if (c->op != TSR_OP_ALL_GATHER) return whole_of(c);
  int64_t blocks = group_size(c), block = from % blocks;
  int64_t whole = tsr_collective_elements(c, c->from, c->ndim), part = whole / blocks;
  int64_t run = part / (c->zigzag ? 2 : 1);
  tsr_view view = {.run = run > 0 ? run : 1, .inner = 1, .outer_step = whole};
  /* base/sequence_layout.h: the second run is as far from the end as the first one from the
   * beginning. */
  if (c->zigzag) view.inner = 2, view.inner_step = (2 * blocks - 1 - 2 * block) * run;
  return (tsr_slice){view, block * run};
}
