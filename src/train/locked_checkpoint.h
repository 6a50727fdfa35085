// SPDX-License-Identifier: Apache-2.0
/* Where steps of a run that has left a run.lock can be repeated from. */
#ifndef TSR_TRAIN_LOCKED_CHECKPOINT_H
#define TSR_TRAIN_LOCKED_CHECKPOINT_H
#include "checkpoint/manifest.h"
#include "report/run_lock.h"

/* The newest checkpoint of a step below `before`, in the folder `checkpoints` beside the run.lock
 * or in `folder`, where the configuration keeps them. False: there is none, and the run is repeated
 * from its begin. */
bool tsr_locked_checkpoint_find(
    tsr_arena *arena, const tsr_run_lock *lock, const char *folder, int64_t before,
    tsr_manifest *ret_checkpoint, tsr_diags *diags);

#endif
