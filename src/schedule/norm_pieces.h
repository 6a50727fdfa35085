// SPDX-License-Identifier: Apache-2.0
/* Of what the norm of a gradient is made, so that its bits do not depend on who holds which part.
 *
 * The sum of squares of a gradient is taken of rectangles: `pieces` runs of one dimension, of which
 * dp (ZeRO), cp and those that share experts out hold whole ones, in each of `parts` runs of the
 * dimension that tp splits. Each rectangle's sum is an element of norm_stats' output (units,
 * pieces, 1); the sums of the pieces are added by the tree of base/reduction_tree.h when all ranks'
 * have arrived.
 *
 * Lowering makes the record, kernels read nothing else, and the verifier checks that on every rank
 * the rectangles are the rank's part of the gradient, each element once (verify_norms.c). */
#ifndef TSR_SCHEDULE_NORM_PIECES_H
#define TSR_SCHEDULE_NORM_PIECES_H
#include "base/norm_grid.h"
#include "graph/graph.h"

typedef struct {
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* of this rank's part of the gradient */
  int dim;                     /* the pieces' dimension; -1: all is the first piece */
  int64_t whole;               /* its length in the whole gradient */
  int64_t pieces;              /* of the whole gradient: piece k is [k, k + 1) * whole / pieces */
  int tp_dim;    /* the dimension that tp's units split; -1: none, all are in unit 0 */
  int64_t parts; /* of tp_dim here; 1 without */
  int64_t units; /* rows of pieces in the output: tp's units of this rank, or 1 */
} tsr_norm_pieces;

/* `first`: where the rank's part begins in the pieces' dimension. */
tsr_norm_grid tsr_norm_grid_of(const tsr_norm_pieces *p, int64_t first);

#endif
