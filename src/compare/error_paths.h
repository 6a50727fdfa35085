// SPDX-License-Identifier: Apache-2.0
/* The errors that the tensors of a step may have, carried from the inputs to the last gradient with
 * the sizes that the tensors had in the step: the running error analysis of Wilkinson, with mean
 * squares in place of bounds. A product of matrices hands the error of x on as w makes it larger, a
 * sum whose summands cancel has the errors of the summands, the mean of a norm as well, and softmax
 * turns the absolute error of a logit into a relative one. */
#ifndef TSR_COMPARE_ERROR_PATHS_H
#define TSR_COMPARE_ERROR_PATHS_H
#include "compare/error_bound.h"
#include "graph/graph.h"
#include "runtime/value_trace.h"

/* What is known of a step. */
typedef struct {
  const tsr_value_size *sizes; /* of each value */
  const double *errors;        /* of each parameter, as a mean square; NULL: they are exact */
  const bool *scaled;          /* of each value: it is stored times the loss scale */
  double loss_scale;
} tsr_step_sizes;

/* Of each value of a graph with values_count of them; in the arena. The path of a choice of experts
 * bounds the share of tokens that choose others. */
tsr_error_path *
tsr_error_paths(tsr_arena *arena, const tsr_graph *graph, const tsr_step_sizes *sizes);

#endif
