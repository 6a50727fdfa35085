// SPDX-License-Identifier: Apache-2.0
/* Who adds what of a sum between processes (algorithm_tree_sum.c): parts, spans, relays and owners;
 * each a function of the collective and the layout, the same on all processes. */
#ifndef TSR_COMM_TREE_SUM_LAYOUT_H
#define TSR_COMM_TREE_SUM_LAYOUT_H
#include "comm/group_topology.h"
#include "comm/slices.h"

/* Elements [begin, end) of a slice, which one process adds; `first`: the round of its first chunk,
 * in a sequence of all of that owner's pieces. */
typedef struct {
  int owner, slice, first;
  int64_t begin, end;
} tsr_sum_piece;

typedef struct {
  /* Per member: of the largest node of the tree that begins there and is one process's (a part),
   * one host's (a span), how many members it has; 0: none begins there. */
  int *part, *span;
  int parts;             /* of all processes */
  int *merges;           /* per member, as tsr_collective_merges */
  tsr_sum_piece *pieces; /* owners ascending, the pieces of each in the order of their rounds */
  int pieces_count;
} tsr_sum_layout;

/* Only parts and spans. */
void tsr_sum_layout_find_nodes(
    tsr_arena *arena, const tsr_collective *collective, const tsr_layout *l, tsr_sum_layout *ret);
/* Then pieces, of chunks of so many elements, split at multiples of `alignment` elements. */
void tsr_sum_layout_find_pieces(
    tsr_arena *arena, const tsr_layout *l, const tsr_sum_slices *slices, int64_t chunk,
    int64_t alignment, tsr_sum_layout *layout);

/* The merges after the last member of [begin, end), a node of the tree, that are not the node's
 * own. */
int tsr_sum_layout_merges_left(const tsr_sum_layout *layout, int begin, int end);
/* The first member of a process that gets the slice, after `before` (-1: of all); -1: none. */
int tsr_sum_layout_next_target(
    const tsr_layout *l, const tsr_sum_slices *slices, int process, int slice, int before);

/* Whether `process` adds on its host for an owner on another one, and gets the sums for all there.
 */
static inline bool tsr_layout_is_relay(const tsr_layout *l, int process, int owner) {
  return l->position[process] == l->position[owner] % l->size[l->host[process]];
}
/* Who that is on the host of `near`. */
static inline int tsr_layout_find_relay(const tsr_layout *l, int owner, int near) {
  int p = near;
  while (l->host[p] != l->host[near] || !tsr_layout_is_relay(l, p, owner))
    p = p + 1 < l->processes ? p + 1 : 0;
  return p;
}

#endif
