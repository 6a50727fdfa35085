// SPDX-License-Identifier: Apache-2.0
/* Which elements of members' tensors a collective is about. */
#ifndef TSR_COMM_SLICES_H
#define TSR_COMM_SLICES_H
#include "comm/collective.h"
#include "comm/view.h"

static inline bool tsr_collective_adds(const tsr_collective *c) {
  return tsr_op_sums_members(c->op);
}

/* How many neighbours get the same from a member. */
static inline int tsr_collective_sharers(const tsr_collective *c) {
  return c->op == TSR_OP_BROADCAST || c->op == TSR_OP_ALL_GATHER ? c->members / c->groups : 1;
}

/* A sum's slice i, of [begin, end), is what members i, i + step, … get: the whole tensor, or a
 * block; other members get nothing. It begins at tsr_sum_slice_at of each summand, and is
 * contiguous where it goes. */
typedef struct {
  int begin, end, step;
  int64_t rows, elements; /* of a slice */
  int64_t distance;       /* from a slice to the next in a summand */
  tsr_view view;
} tsr_sum_slices;
tsr_sum_slices tsr_collective_sum_slices(const tsr_collective *c);
static inline int64_t tsr_sum_slice_at(const tsr_sum_slices *s, int slice) {
  return (slice - s->begin) * s->distance;
}
/* The slice that a member gets; -1: none. */
static inline int tsr_sum_slice_of(const tsr_sum_slices *s, int member) {
  int slice = member % s->step;
  return slice >= s->begin && slice < s->end ? slice : -1;
}

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
