// SPDX-License-Identifier: Apache-2.0
/* What a gradient rule sees: one node, the gradients of its outputs, and where to put its inputs'.
 */
#ifndef TSR_PASSES_AUTODIFF_H
#define TSR_PASSES_AUTODIFF_H
#include "graph/graph.h"

typedef struct tsr_gradients tsr_gradients;

/* Adds `value` to the pending gradient of `of`. */
void tsr_gradient_give(tsr_gradients *grads, int of, int value);
/* The same for the matmul dy * w: matmuls of one value become a single node (those in FP8 another
 * one), so that the sum over a sharded dimension is completed once for q, k and v together. */
void tsr_gradient_give_product(tsr_gradients *grads, int of, int dy, int w, tsr_fp8_recipe fp8);
bool tsr_gradient_wanted(const tsr_gradients *grads, int value);

typedef struct {
  tsr_graph *g;
  tsr_gradients *grads;
  tsr_section section;     /* of the nodes that the rule adds */
  int node;                /* index: the array may move while nodes are added */
  int dy[TSR_OUTPUTS_MAX]; /* -1: nothing flows back through this output */
} tsr_gradient_call;

/* Runs the rule of the node's op (ops.def, gradient column). */
void tsr_gradient_apply(const tsr_gradient_call *call);

#endif
