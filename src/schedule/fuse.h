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
 *   linear_cross_ linear + ce_stats + ce_loss            over tiles of rows (row_tiles.h): the
 *   entropy       [+ ce_loss_dx [+ linear_dx]            logits of a tile, its losses, its part
 *                 [+ linear_dw]];                        of both gradients; no logits in memory.
 *                 linear + ce_stats;                     Its two parts, where statistics of other
 *                 linear + ce_loss_dx [+ linear_dx]      ranks are added between them: the second
 *                 [+ linear_dw]                          computes the logits again (recompute.c)
 *   logits_       ce_loss_dx [+ linear_dx]               the gradient of the logits is written
 *   gradient      [+ linear_dw]                          once, in the half precision of the GEMMs
 *   sum_norm      [add(row) +] add + a norm              norm(x [+ row] + residual), and the sum
 *   norm_dx_sum   a norm's input gradient + add          dx + the gradient of the residual branch
 *   embedding_    embedding_dw + add                     the table's gradient + that of the
 *   dw_sum                                               classifier that shares it, in place
 *   gemms         linear [+ add(row)] of one x, or one batched GEMM: operands at equal distances,
 *                 linear_dw of one x           x at distance 0
 *   updates       optimizer updates, one after another   one launch for many parameters
 *   norms         sums of squares for the norm           one launch for many gradients
 *   casts         casts of parameters, one after another one launch for many parameters
 *
 * Of a linear_cross_entropy the tasks of the forward pass run with those of the backward pass, in
 * whatever order a pipeline schedule runs the actions of microbatches: what these read is kept for
 * the backward pass anyway, and nothing of the forward pass reads a loss. fuse_cross_entropy.h says
 * where it does not apply; there the separate tasks have the same bits. Scratch has one tile of
 * logits, and on a GPU in half precision of their gradient.
 *
 * GEMMs are a batch where operands are of one shape, type, placement and sum, with a bias each or
 * none; all run at the place of one of them (fuse_gemms.h). Where operands do not lie at equal
 * distances, the kernel is several calls, with the same bits.
 *
 * Fusion moves no update to a later place, and raises no peak: a sum of squares moves behind others
 * only where its gradient is read later than that, and an output may overwrite an input as
 * tsr_fused_may_overwrite has it. Where a batch of GEMMs makes values live longer, lowering
 * compares the memory plans with and without such batches. An exception is a linear_cross_entropy
 * of little more than one tile, whose logits are then fewer bytes than what its GEMMs pack beside
 * both gradients. */
#ifndef TSR_SCHEDULE_FUSE_H
#define TSR_SCHEDULE_FUSE_H
#include "schedule/target.h"

/* Batches of linear tasks, of linear_dw tasks, and those that make values live longer. */
enum { TSR_GEMMS_LINEAR = 1, TSR_GEMMS_LINEAR_DW = 2, TSR_GEMMS_EXTENDING = 4 };

/* Replaces tasks of a program by fused ones, as far as the target has kernels for them. After the
 * update has been sunk (sink_updates.c), before operands are bound. `gemms`: of TSR_GEMMS_*, which
 * batches of GEMMs there may be. */
void tsr_program_fuse(tsr_program *program, const tsr_target *target, unsigned gemms);

const char *tsr_fused_name(tsr_fused_form form); /* "epilogue" */
/* Of tasks of one op, none of which reads what another one makes, how many a task is: each has as
 * many nodes, inputs and outputs, in the order of the nodes. 0: it is no batch. */
int tsr_task_batch(const tsr_task *task);

/* What reports count a task as: its op's name, where `covered` is set that of the form. */
const char *tsr_task_kind_name(const tsr_task *task);

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

/* GEMMs of a batch: more of them are several tasks. */
enum { TSR_GEMMS_MAX = 16 };
typedef struct {
  const tsr_tensor *a, *b; /* x, w of linear; dy, x of linear_dw */
  const tsr_tensor *bias;  /* NULL: none */
  const tsr_tensor *out;
} tsr_batched_gemm;
/* The i-th of a task of gemms. */
tsr_batched_gemm tsr_batched_gemm_of(const tsr_task *task, int i);

typedef struct {
  const tsr_tensor *from, *row, *plus; /* row NULL: none; from NULL: the norm's input is given */
  const tsr_tensor *x;                 /* the norm's input */
  const tsr_tensor *norm_inputs;       /* weight [, bias], behind it */
  const tsr_tensor *norm_outputs;      /* y, statistics */
} tsr_sum_norm;
/* Of a norm's task, fused or not. */
tsr_sum_norm tsr_sum_norm_of(const tsr_program *program, const tsr_task *task);

/* The tasks that a linear_cross_entropy or logits_gradient covers, with their sums (sum_order.h);
 * operands that are elided have no memory. NULL: it has none. */
typedef struct {
  const tsr_task *linear, *stats, *loss, *loss_dx, *dx, *dw;
} tsr_linear_cross_entropy;
tsr_linear_cross_entropy tsr_linear_cross_entropy_of(const tsr_task *task);

/* The gradient that a norm_dx_sum or embedding_dw_sum adds its own to; NULL: it is neither. */
const tsr_tensor *tsr_gradient_addend(const tsr_task *task);

#endif
