// SPDX-License-Identifier: Apache-2.0
/* A forward graph and its gradients by definition: in double precision, with loops over whole
 * tensors, and reverse-mode differentiation of its own. It knows no ranks, units, placements,
 * programs or kernels and does not use the autodiff pass, so what a program computes can be
 * compared with it.
 *
 * A graph has the shapes of one microbatch. A step with several calls forward and backward once for
 * each: the parameters' gradients add up, and the step's loss is the sum of the microbatches'.
 * Losses are scaled as in a program: cross_entropy is the sum over the targets that are not
 * negative times inv_count, mse the mean over all elements of the step.
 *
 * Collectives that a graph file wrote out say where data is, not what it is: as functions of whole
 * tensors, which is all there is here, they are the identity, and so are their vjps. */
#ifndef TSR_INTERPRETER_INTERPRETER_H
#define TSR_INTERPRETER_INTERPRETER_H
#include "graph/graph.h"

typedef struct tsr_interpreter tsr_interpreter;

/* Writes what dropout of this node multiplies each element by: 0, or 1 / (1 - p). `ret_mask` is
 * row-major of that shape: the result's, or (batch, heads, queries, keys) of attention, which drops
 * probabilities. The node has the stream's name and p among its attributes. */
typedef void tsr_interpreter_mask(
    void *context, const tsr_node *node, int ndim, const int64_t *shape, double *ret_mask);

/* What the loss and dropout depend on beside inputs and parameters. */
typedef struct {
  double inv_count;     /* 1 / targets of the step that are not ignored (TSR_SCALAR_INV_COUNT) */
  int64_t microbatches; /* of the step; 0 counts as 1 */
  tsr_interpreter_mask *mask; /* called by forward for every node with p > 0; may be NULL without */
  void *mask_context;
  /* Above 0: every element of a node's result, of the loss's gradient by it, and what may cancel
   * inside an op, is multiplied by 1 + rounding or 1 - rounding, as `draw` decides. So the caller
   * measures how far roundings of that size move a gradient: what two programs may differ by that
   * are both right. */
  double rounding;
  uint64_t draw;
} tsr_interpreter_step;

/* Memory in `arena` for the values and gradients of a graph as tsr_graph_call made it; constants
 * have their numbers. What passes do to the graph later does not matter: what is needed is copied,
 * but for names and lists of inputs in the graph's arena. An op that only passes make is a bug of
 * the caller (assert). Inputs and parameters are zero. */
tsr_interpreter *tsr_interpreter_new(tsr_arena *arena, const tsr_graph *forward);

/* The elements of a value of the forward graph, row-major, of its whole shape; tokens as numbers.
 * Inputs and parameters are the caller's to write, node outputs are valid after forward. NULL for
 * what is no value here: step_scalars, and statistics that an op gives beside its result. */
double *tsr_interpreter_value(tsr_interpreter *t, int value);
/* The same of parameter `param` of the graph. */
double *tsr_interpreter_param(tsr_interpreter *t, int param);

/* Computes every value of one microbatch. `step` is copied; backward uses it too. */
void tsr_interpreter_forward(tsr_interpreter *t, const tsr_interpreter_step *step);
/* This microbatch's part of the step's loss. */
double tsr_interpreter_loss(const tsr_interpreter *t);

/* What nodes add to it besides (balance_loss, router_z_loss): the gradients are those of the sum.
 * */
double tsr_interpreter_added_loss(const tsr_interpreter *t);

/* ADDS the gradient of the loss that forward computed last to the gradient of every parameter.
 * Needs a graph with a loss; inputs and parameters must be as forward saw them. */
void tsr_interpreter_backward(tsr_interpreter *t);
void tsr_interpreter_zero_gradients(tsr_interpreter *t);
/* A parameter's gradient, in its shape; zero where the loss does not depend on it. */
const double *tsr_interpreter_gradient(const tsr_interpreter *t, int param);

#endif
