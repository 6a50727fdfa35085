// SPDX-License-Identifier: Apache-2.0
/* Inside the schedules' files: the actions of all stages, one after another as they can happen. */
#ifndef TSR_SCHEDULE_PIPELINE_WALK_H
#define TSR_SCHEDULE_PIPELINE_WALK_H
#include "schedule/pipeline.h"

enum { TSR_ACTION_KINDS = TSR_ACTION_WEIGHTS + 1 };

/* What an action needs from another virtual stage: that F or B of its microbatch. */
typedef struct {
  int stage;
  tsr_action action;
} tsr_need;

/* False if all that it needs is on its own virtual stage: F of the first, B of the last, W. */
bool tsr_pipeline_needs(
    const tsr_pipeline *pipeline, int stage, tsr_action action, tsr_need *ret_need);

/* A place of its own for every action of a kind: 0 .. tsr_pipeline_slots - 1 (of one kind). */
int64_t tsr_pipeline_slots(const tsr_pipeline *pipeline);
int64_t tsr_pipeline_slot(const tsr_pipeline *pipeline, int stage, tsr_action action);

typedef struct {
  const tsr_pipeline *pipeline;
  int *next;      /* per stage: its next action */
  bool *done[2];  /* F and B, per slot */
  int *ready;     /* a stack of the stages that may continue */
  bool *is_ready; /* per stage: whether it is on the stack */
  int ready_count;
} tsr_pipeline_walk;

/* Of a schedule whose stages have every action once, F before B before W. */
void tsr_pipeline_walk_begin(
    tsr_arena *arena, const tsr_pipeline *pipeline, tsr_pipeline_walk *ret_walk);
/* False when all is done or every stage waits for another one. Constant time per action. */
bool tsr_pipeline_walk_next(tsr_pipeline_walk *walk, int *ret_stage, int *ret_index);

#endif
