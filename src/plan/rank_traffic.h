// SPDX-License-Identifier: Apache-2.0
/* Which rank sends how much to which other one in a step.
 *
 * The bytes are those that a member sends in plan.h and estimate.h; whom they go to depends on the
 * algorithm. Each member sends to each other one directly, as the transports do it by default
 * (comm/algorithm.h); an all_reduce by a ring (collectives.all_reduce.algo) and a ring_shift go to
 * the next member. A broadcast goes from the root to each member, a reduce from each to the root.
 * What processes or hosts combine before they send is not taken into account. */
#ifndef TSR_PLAN_RANK_TRAFFIC_H
#define TSR_PLAN_RANK_TRAFFIC_H
#include "parallel/parallel.h"
#include "schedule/program.h"

typedef enum {
  TSR_PAIRS_EACH_OTHER,
  TSR_PAIRS_NEXT, /* round the group */
  TSR_PAIRS_FROM_ROOT,
  TSR_PAIRS_TO_ROOT,
  TSR_PAIRS_STAGES /* from a stage to another one */
} tsr_rank_pairs;

/* Tasks of a stage's ranks that are alike, added up. */
typedef struct {
  tsr_op op;
  int axis, stage;
  tsr_rank_pairs pairs;
  int64_t members, stride; /* of the group */
  int distance;            /* NEXT: to the member so many behind; STAGES: the receiving stage */
  int root;                /* its place in the group */
  int owner, owners;       /* only the ranks of this place, of so many, on dp take part; -1: all */
  int64_t count;
  double bytes; /* from a rank to one other rank, of all tasks */
} tsr_rank_flow;

typedef struct {
  tsr_rank_flow *flows;
  int count, capacity;
} tsr_rank_traffic;

void tsr_rank_traffic_make(
    tsr_arena *arena, const tsr_programs *programs, const tsr_parallel *parallel,
    tsr_all_reduce_algorithm all_reduce, tsr_rank_traffic *ret_traffic);

/* Called with how many pairs of ranks of two blocks send in a flow: from one of `from` to one of
 * `to`. Any number of times for the same blocks. */
typedef void tsr_block_traffic_visitor(
    void *context, const tsr_rank_flow *flow, int from, int to, int64_t pairs);
/* `block_of`: the block of each rank, of so many blocks; each rank may be one. The work grows with
 * the ranks and with the pairs of blocks, not with the pairs of ranks. */
void tsr_rank_traffic_visit(
    tsr_arena *arena, const tsr_rank_traffic *traffic, const tsr_parallel *parallel,
    const int *block_of, int blocks, tsr_block_traffic_visitor *visit, void *context);

#endif
