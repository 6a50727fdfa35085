// SPDX-License-Identifier: Apache-2.0
/* Fused tasks: several ops that one kernel of the target computes in one pass over memory.
 *
 * A fused task is its base op with the list of graph nodes that it covers, in graph order, and its
 * own operands: inputs are the inputs of these nodes that none of them makes, outputs those of
 * their outputs that somebody else reads (or that the program returns), both in the order of the
 * nodes. A value that only the task's own nodes read is elided: it has no memory. Under policy
 * deterministic a fused task has the bits of its nodes, one after the other.
 *
 *   form          nodes                                  kernel
 *   epilogue      linear [+ add(row)] [+ add | gelu]     y = x w^T [+ bias] [+ residual | gelu],
 *                                                        of these what the target has (target.h)
 *   sum_norm      [add(row) +] add + a norm              norm(x [+ row] + residual), and the sum
 *   norm_dx_sum   a norm's input gradient + add          dx + the gradient of the residual branch
 *   updates       optimizer updates, one after another   one launch for many parameters
 *   norms         sums of squares for the norm           one launch for many gradients
 *   casts         casts of parameters, one after another one launch for many parameters
 *
 * Fusion moves no update to a later place, and raises no peak: a sum of squares moves behind others
 * only where its gradient is read later than that, and an output may overwrite an input as
 * tsr_fused_may_overwrite has it. */
#ifndef TSR_SCHEDULE_FUSE_H
#define TSR_SCHEDULE_FUSE_H
#include "schedule/target.h"

/* Replaces tasks of a program by fused ones, as far as the target has kernels for them. After the
 * update has been sunk (sink_updates.c), before operands are bound. */
void tsr_program_fuse(tsr_program *program, const tsr_target *target);

const char *tsr_fused_name(tsr_fused_form form); /* "epilogue" */
/* Whether the nodes are of one op, and none reads what another one makes: each has as many inputs
 * and as many outputs, in the order of the nodes. */
bool tsr_fused_is_batch(tsr_fused_form form);

/* Whether a fused task's output may have the bytes of one of its inputs of the same shape that
 * no task reads later. */
bool tsr_fused_may_overwrite(
    const tsr_program *program, const tsr_task *task, int output, int input);

/* ---- operands of a fused task, for kernels ---- */

typedef struct {
  const tsr_tensor *bias, *residual; /* NULL: none */
  const tsr_tensor *before;          /* gelu's input, where it is an output; else NULL */
  const tsr_tensor *out;
  bool gelu;
} tsr_epilogue;
/* Of a linear task; without a fused epilogue only `out`. */
tsr_epilogue tsr_epilogue_of(const tsr_program *program, const tsr_task *task);

typedef struct {
  const tsr_tensor *from, *row, *plus; /* row NULL: none; from NULL: the norm's input is given */
  const tsr_tensor *x;                 /* the norm's input */
  const tsr_tensor *norm_inputs;       /* weight [, bias], behind it */
  const tsr_tensor *norm_outputs;      /* y, statistics */
} tsr_sum_norm;
/* Of a norm's task, fused or not. */
tsr_sum_norm tsr_sum_norm_of(const tsr_program *program, const tsr_task *task);

/* The gradient that a norm's input gradient is added to; NULL: it is not fused. */
const tsr_tensor *tsr_norm_dx_addend(const tsr_task *task);

#endif
