// SPDX-License-Identifier: Apache-2.0
/* The form linear_cross_entropy of fused tasks (fuse.h). */
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
 *     tiles (row_tiles.h). */
void tsr_fuse_cross_entropy(tsr_fusing *fusing, int loss);

#endif
