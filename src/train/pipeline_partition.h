// SPDX-License-Identifier: Apache-2.0
/* Which schedule a pipeline runs, and where the model is split into its stages. */
#ifndef TSR_TRAIN_PIPELINE_PARTITION_H
#define TSR_TRAIN_PIPELINE_PARTITION_H
#include "config/config.h"
#include "parallel/parallel.h"
#include "passes/passes.h"
#include "schedule/pipeline.h"

/* pipeline.schedule for this mesh. Errors: a kind that the counts do not allow, a file with a
 * mistake. Notes when the microbatches are few (SPEC: fewer than stages a warning, than twice the
 * stages a note with the bubble). */
bool tsr_pipeline_order(
    tsr_arena *arena, const tsr_config *config, const tsr_parallel *parallel,
    const tsr_pipeline **ret_order, tsr_diags *diags);

/* Where the virtual stages of `pipeline` begin in a forward graph: by name (pipeline.stages), by
 * blocks_per_rank, or so that the costliest stage costs the least. Errors: more stages than blocks,
 * counts that do not add up. */
bool tsr_pipeline_split(
    const tsr_graph *graph, const tsr_config *config, const tsr_pipeline *pipeline,
    tsr_stage_split *ret_split, tsr_diags *diags);

#endif
