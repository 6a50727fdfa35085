// SPDX-License-Identifier: Apache-2.0
/* The forms linear_cross_entropy and logits_gradient of fused tasks (fuse.h). */
#ifndef TSR_SCHEDULE_FUSE_CROSS_ENTROPY_H
#define TSR_SCHEDULE_FUSE_CROSS_ENTROPY_H
#include "schedule/fuse_task.h"

/* Fuses the classifier whose cross-entropy is the task `loss`, with the tasks of its gradient where
 * the graph has one. Not where
 *   - something else reads the logits, their statistics or their gradient: a collective over a
 *     vocabulary that tp splits, a metric;
 *   - the gradient is that of other parameters than the forward pass has read (ZeRO's stage 3
 *     gathers them twice), or a zero-bubble schedule has the weight's gradient in an action W;
 *   - a task between the first and the last of them reads what they make or writes what they read;
 *   - one tile has all rows, or the weight's gradient sums them in runs that are too short for
 *     tiles (row_tiles.h);
 *   - the operands are of two types, on a target whose GEMMs round one of them. */
void tsr_fuse_cross_entropy(tsr_fusing *fusing, int loss);

/* The same of one part: of the statistics, the task ce_stats, or of the gradients, the task
 * ce_loss_dx, whose logits nothing else reads: an evaluation over a vocabulary that tp splits, and
 * a training that computes logits again in the backward pass. After all whole forms are fused. */
void tsr_fuse_cross_entropy_part(tsr_fusing *fusing, int task);

/* Fuses the gradient of a cross-entropy's logits, the task `loss_dx`, with the GEMMs that read it,
 * which round it to the half precision of their other operand. Not where something else reads it,
 * or where one of them stands in another part of the program. */
void tsr_fuse_logits_gradient(tsr_fusing *fusing, int loss_dx);

#endif
