// SPDX-License-Identifier: Apache-2.0
/* The calls of a classifier's GEMMs where their bits depend on a call's number of rows.
 *
 * The logits of a unit of rows, and the gradients of both operands, are computed in calls of as
 * many rows as a tile of logits has (target.h), so that no more of them need be in memory at once.
 * Logits and the input's gradient are rows of such calls; a unit's part of the weight's gradient is
 * the first call's result, to which each further call adds its own in f32, in the order of rows.
 * The number follows from the whole vocabulary and the unit's rows, which are the recipe's: a task
 * that computes all logits at once (tp splits the vocabulary, or they are an output) and one that
 * keeps a tile of them (fuse_cross_entropy.h) have the same bits. */
#ifndef TSR_SCHEDULE_CLASSIFIER_CALLS_H
#define TSR_SCHEDULE_CLASSIFIER_CALLS_H
#include "schedule/target.h"

/* Sets `calls` of the GEMMs whose output a cross-entropy reads, perhaps through collectives, and of
 * those that read its gradient. Nothing for a target whose rows are alone. Before tasks are fused.
 */
void tsr_program_split_classifiers(tsr_program *program, const tsr_target *target);

#endif
