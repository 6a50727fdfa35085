// SPDX-License-Identifier: Apache-2.0
#include "comm/tree_sum_layout.h"
#include <assert.h>

enum { DEPTH_MAX = 20 };

/* ---- parts and spans ---- */

typedef struct {
  int begin, process, host; /* -1: several */
} node;

static void end_part(tsr_sum_layout *s, node n, int end) {
  if (n.process < 0) return;
  s->part[n.begin] = end - n.begin;
  s->parts++;
}

static void end_span(tsr_sum_layout *s, node n, int end) {
  if (n.host >= 0) s->span[n.begin] = end - n.begin;
}

/* Lower and upper are added: what each is alone ends where the sum is not. */
static void merge(tsr_sum_layout *s, node *lower, node upper, int end) {
  if (lower->process != upper.process) {
    end_part(s, *lower, upper.begin);
    end_part(s, upper, end);
    lower->process = -1;
  }
  if (lower->host != upper.host) {
    end_span(s, *lower, upper.begin);
    end_span(s, upper, end);
    lower->host = -1;
  }
}

/* Runs the tree's stack machine over who has what. The summand that a sum is added onto is
 * nobody's: it is there where the sum will be. */
void tsr_sum_layout_find_nodes(
    tsr_arena *arena, const tsr_collective *c, const tsr_layout *l, tsr_sum_layout *ret) {
  node stack[DEPTH_MAX];
  tsr_tree_stack tree = {0};
  *ret = (tsr_sum_layout){
      .part = tsr_arena_array(arena, int, l->members),
      .span = tsr_arena_array(arena, int, l->members),
      .merges = tsr_arena_array(arena, int, l->members)};
  if (c->onto) stack[tsr_tree_push(&tree, 0)] = (node){0, -1, -1};
  for (int m = 0; m < l->members; m++) {
    int process = l->process_of[m];
    assert(tree.entries < DEPTH_MAX);
    ret->merges[m] = tsr_collective_merges(c, m);
    stack[tsr_tree_push(&tree, ret->merges[m])] = (node){m, process, l->host[process]};
    for (int low; tsr_tree_merge(&tree, &low);) merge(ret, &stack[low], stack[low + 1], m + 1);
  }
  end_part(ret, stack[0], l->members);
  end_span(ret, stack[0], l->members);
}

int tsr_sum_layout_merges_left(const tsr_sum_layout *s, int begin, int end) {
  int left = begin + 1 - end;
  for (int i = begin; i < end; i++) left += s->merges[i];
  return left;
}

/* ---- pieces ---- */

int tsr_sum_layout_next_target(
    const tsr_layout *l, const tsr_sum_slices *s, int process, int slice, int before) {
  int begin = l->first[process] + s->step - 1 - slice;
  begin = begin / s->step * s->step + slice;
  for (int m = before < 0 ? begin : before + s->step; m <= l->last[process]; m += s->step)
    if (l->process_of[m] == process) return m;
  return -1;
}

static bool is_first_target(const tsr_layout *l, const tsr_sum_slices *s, int member) {
  int slice = tsr_sum_slice_of(s, member);
  return slice >= 0 && tsr_sum_layout_next_target(l, s, l->process_of[member], slice, -1) == member;
}

/* A slice in equal pieces among the processes that get it; *next: per process, of `pieces`. */
static void split_slice(
    const tsr_layout *l, const tsr_sum_slices *s, int slice, int64_t chunk, int64_t alignment,
    const int *begin, int *next, tsr_sum_piece *pieces) {
  int64_t at = 0;
  int owners = 0;
  for (int m = slice; m < l->members; m += s->step) owners += is_first_target(l, s, m);
  for (int m = slice, i = 0; m < l->members; m += s->step) {
    if (!is_first_target(l, s, m)) continue;
    int owner = l->process_of[m];
    int64_t end = s->elements * ++i / owners;
    if (i < owners) end = end / alignment * alignment;
    tsr_sum_piece *p = &pieces[next[owner]];
    *p = (tsr_sum_piece){owner, slice, 0, at, end};
    if (next[owner] > begin[owner])
      p->first = p[-1].first + (int)((p[-1].end - p[-1].begin + chunk - 1) / chunk);
    at = end;
    next[owner]++;
  }
}

void tsr_sum_layout_find_pieces(
    tsr_arena *arena, const tsr_layout *l, const tsr_sum_slices *s, int64_t chunk,
    int64_t alignment, tsr_sum_layout *ret) {
  int *begin = tsr_arena_array(arena, int, l->processes + 1),
      *next = tsr_arena_array(arena, int, l->processes);
  for (int m = 0; m < l->members; m++) begin[l->process_of[m] + 1] += is_first_target(l, s, m);
  for (int p = 0; p < l->processes; p++) {
    begin[p + 1] += begin[p];
    next[p] = begin[p];
  }
  ret->pieces_count = begin[l->processes];
  ret->pieces = tsr_arena_array(arena, tsr_sum_piece, ret->pieces_count + 1);
  for (int slice = s->begin; slice < s->end; slice++)
    split_slice(l, s, slice, chunk, alignment, begin, next, ret->pieces);
}
