// SPDX-License-Identifier: Apache-2.0
/* Inside the verifier: a sum as the recipe demands it, which a task's record is held against. */
#ifndef TSR_SCHEDULE_VERIFY_SUMS_H
#define TSR_SCHEDULE_VERIFY_SUMS_H
#include "schedule/verify_checks.h"

enum { TSR_UNITS_BATCH, TSR_UNITS_SEQUENCE, TSR_UNITS_TP, TSR_UNITS_KEPT, TSR_UNITS_KINDS };

/* One way in which a summed dimension is split: into `global` units, of which this rank has
 * `local`, those at places [index * local, …) of the tree over the global ones. */
typedef struct {
  int kind;
  int64_t global, local;
  bool zigzag;
} tsr_sum_split;

typedef struct {
  int64_t whole, local;    /* lengths */
  tsr_sum_split splits[3]; /* nested, outermost first */
  int splits_count;
  int64_t *begin; /* per combination of local units: where the record's rows begin here, or -1 */
  int64_t combinations, width;
} tsr_sum_dim;

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  const tsr_program *p;
  int task;
  const tsr_task *t; /* or one that it covers */
  const tsr_reduction *r;
  const tsr_value *in, *out; /* the first operand */
  int first;
  tsr_sum_dim dim[TSR_REDUCED_DIMS_MAX];
  int dims, kept;                 /* the dimension whose units are kept apart; -1: none */
  int64_t units[TSR_UNITS_KINDS]; /* of this rank */
  bool apart; /* the batch's units are kept apart, by a sum that cp completes or a loss by sample */
  bool samples; /* by a loss by sample */
  bool strided; /* each index of the kept dimension is summed by itself */
} tsr_sum_check;

/* Each row once, in its order and run, by the leaf that its unit is. Says what it finds. */
bool tsr_verify_rows(tsr_sum_check *c);

static inline bool tsr_sum_splits(tsr_placement p, int dim) {
  return p.kind == TSR_SHARD && p.dim == dim;
}
/* Whether an axis splits a summed dimension and the sum is to be completed over it, or its units
 * are all that is wanted. */
static inline bool tsr_sum_is_partial(const tsr_sum_check *c, int axis, int dim) {
  bool partial = c->out->placement[axis].kind == TSR_PARTIAL || (c->samples && axis == TSR_DP);
  return partial && tsr_sum_splits(c->in->placement[axis], c->first + dim);
}

#endif
