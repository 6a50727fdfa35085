// SPDX-License-Identifier: Apache-2.0
/* Rows of experts on a rank, and how the gradient of experts' weights is summed over them, so that
 * its bits depend on neither the axes that share experts and samples out nor the microbatches.
 *
 * Rows lie by (expert, token), and tokens by (batch unit, sample, position); a rank has the rows of
 * all tokens of its microbatch that chose one of its experts. The gradient of an expert is a sum
 * over its rows of a step. It is made of `numerics.units.expert` leaves: runs of whole batch units.
 * A leaf is one chain in the order of rows, continued from one batch unit, and microbatch, to the
 * next (a batch unit's rows are summed by themselves in runs of TSR_GEMM_DEPTH, and each such sum
 * is added to the chain), so that no partial result is kept for each unit. Leaves are added in the
 * tree of base/reduction_tree.h, over a rank's leaves, its microbatches and dp alike.
 *
 * The sum of a token over its experts is the binary tree over expert indices, absent ones left out;
 * a rank's experts are a subtree. */
#ifndef TSR_SCHEDULE_EXPERT_ROWS_H
#define TSR_SCHEDULE_EXPERT_ROWS_H
#include "base/axis.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int64_t experts, choices; /* of the mixture, of a token */
  bool shared[TSR_AXES];    /* the axes that share the experts out, nested in their order */
  int64_t here;             /* experts of a rank */
  int64_t tokens;           /* that a rank has rows of, at most */
  int64_t slots;            /* of an expert in a batch unit; 0: no choice is dropped */
  int64_t unit_tokens;      /* of a batch unit, where there are slots and of a gradient */
  /* of the gradient of weights: */
  bool accumulates;   /* over the step's microbatches, in the output */
  int64_t leaf_units; /* batch units of a leaf */
  int64_t leaves;     /* that one sum of this rank has: of a step, or of a microbatch */
} tsr_expert_rows;

#endif
