// SPDX-License-Identifier: Apache-2.0
/* Which elements of members' tensors a collective is about. */
#ifndef TSR_COMM_SLICES_H
#define TSR_COMM_SLICES_H
#include "comm/collective.h"
#include "comm/view.h"

static inline bool tsr_collective_adds(const tsr_collective *c) {
  return c->op == TSR_OP_ALL_REDUCE || c->op == TSR_OP_REDUCE_SCATTER;
}

/* How many neighbours get the same from a member. */
static inline int tsr_collective_sharers(const tsr_collective *c) {
  if (c->op == TSR_OP_BROADCAST) return c->members;
  return c->op == TSR_OP_ALL_GATHER ? c->members / c->groups : 1;
}

/* A sum's slice i is what members i, i + count, … get: the whole tensor, or a block. It begins at
 * i * view.run of each summand, and is contiguous where it goes. */
typedef struct {
  int count;
  int64_t rows, elements; /* of a slice */
  tsr_view view;
} tsr_sum_slices;
tsr_sum_slices tsr_collective_sum_slices(const tsr_collective *c);

/* all_gather, broadcast, ring_shift, all_to_all: member `from` has something for member `to`, as
 * many elements in all cases. */
typedef struct {
  tsr_view view;
  int64_t at;
} tsr_slice;
bool tsr_collective_moves(const tsr_collective *c, int from, int to);
int64_t tsr_collective_moved(const tsr_collective *c); /* elements */
/* Where they lie in `in` of `from`, and where in `out` of `to`. */
tsr_slice tsr_collective_source_slice(const tsr_collective *c, int to);
tsr_slice tsr_collective_target_slice(const tsr_collective *c, int from);

#endif
