// SPDX-License-Identifier: Apache-2.0
/* How a summing task makes its sum, so that the bits do not depend on who computes it.
 *
 * A task sums over some dimensions of an operand: rows of a weight's gradient, K of a matmul. Where
 * the recipe's reduction units split such a dimension, the sum is made of one partial result a unit
 * (a leaf), added in the tree of base/reduction_tree.h that the recipe has. Units of dp split the
 * batch (those of ep's ranks are among them), those of cp the positions, those of tp heads, hidden
 * features and the vocabulary. The leaves of one rank's task are numbered with the batch outermost,
 * then the sequence, then tp, and the tree over them is nested alike: the units of a sequence are
 * added before the batch units that they make up.
 *
 * An output may keep units apart, each in a block of its own in front of the output's shape, since
 * other ranks add to them before they can be added to one another: the batch units where cp splits
 * positions, and the units of one summed dimension (`kept_dim`) where tp splits it.
 *
 * Sums over tp of values in half precision may be made in it (tsr_units.tp_in_half): each leaf and
 * each sum of two is rounded, so the bits do not depend on how many of the tree's nodes one rank
 * has, and what ranks exchange is in half precision.
 *
 * Lowering derives the record from graph, placements and recipe, kernels read nothing else, and the
 * verifier derives the global interval of every unit again (verify_reductions.c,
 * verify_sum_rows.c). */
#ifndef TSR_SCHEDULE_SUM_ORDER_H
#define TSR_SCHEDULE_SUM_ORDER_H
#include "base/axis.h"
#include "base/sequence_layout.h"
#include "base/reduction_tree.h"
#include "graph/graph.h"
#include <stdbool.h>
#include <stdint.h>

enum { TSR_REDUCED_DIMS_MAX = 5 };

/* A summed dimension of the operand, as this rank has it. */
typedef struct {
  int64_t size;
  bool split
      [TSR_AXES]; /* by the units of dp, cp and tp; nested in that order where several split it */
} tsr_reduced_dim;

typedef struct {
  int ndim; /* summed dimensions, outermost first; 0: the task sums nothing that units split */
  tsr_reduced_dim dim[TSR_REDUCED_DIMS_MAX];
  tsr_tree_shape tree;
  int64_t batch, sequence, tp; /* units of each axis on this rank; 1: not split */
  bool keeps_batch;            /* the output has a block for every batch unit */
  int kept_dim;        /* the output has a block for every unit of this one, too; -1: none */
  int64_t kept;        /* so many; 1 without kept_dim */
  bool kept_positions; /* these are units of positions, whose order zigzag is */
  bool zigzag;         /* the order of the leaves of a sequence (base/sequence_layout.h) */
  tsr_dtype rounds; /* a half precision to which each leaf and each sum of two is rounded; TSR_F32:
                       none is */
} tsr_reduction;

/* Of a task that sums nothing, or in one piece. */
static inline tsr_reduction tsr_reduction_none(void) {
  return (tsr_reduction){.batch = 1, .sequence = 1, .tp = 1, .kept_dim = -1, .kept = 1};
}

/* Whether two tasks sum alike. */
bool tsr_reduction_equal(const tsr_reduction *a, const tsr_reduction *b);

/* The output's blocks, and the leaves that the tree adds up to each of them. */
static inline int64_t tsr_reduction_blocks(const tsr_reduction *r) {
  return (r->keeps_batch ? r->batch : 1) * r->kept;
}
static inline int64_t tsr_reduction_leaves(const tsr_reduction *r) {
  return (r->keeps_batch ? 1 : r->batch) * r->sequence * r->tp;
}

/* The tree over a block's leaves: how often the two topmost stack entries are added after a leaf,
 * how many entries there are before it, and how many there are at most. */
int tsr_reduction_merges(const tsr_reduction *r, int64_t leaf);
int tsr_reduction_entries(const tsr_reduction *r, int64_t leaf);
int tsr_reduction_depth(const tsr_reduction *r);

/* Rows first, first + step, … of the summed dimensions, flattened in row-major order. */
typedef struct {
  int64_t first, step, rows;
} tsr_reduced_rows;

/* The rows that a leaf of a block sums, as runs that are summed one after the other; false when
 * there is no k-th run. All runs of a reduction are of one length. */
bool tsr_reduction_rows(
    const tsr_reduction *r, int64_t block, int64_t leaf, int64_t k, tsr_reduced_rows *ret_rows);
/* Runs of a leaf. */
int64_t tsr_reduction_runs(const tsr_reduction *r);
/* Whether a leaf is one run of neighbours, and the blocks and leaves in their order are all rows
 * in theirs. */
bool tsr_reduction_is_contiguous(const tsr_reduction *r);
/* Into how many equal intervals a dimension is split. */
int64_t tsr_reduction_splits(const tsr_reduction *r, int dim);
/* What the program's dump shows: leaves, and blocks that are kept apart. */
static inline bool tsr_reduction_is_split(const tsr_reduction *r) {
  return tsr_reduction_leaves(r) > 1 || tsr_reduction_blocks(r) > 1;
}

#endif
