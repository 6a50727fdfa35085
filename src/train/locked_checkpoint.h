// SPDX-License-Identifier: Apache-2.0
/* Where steps of a run that has left a run.lock can be repeated from. */
#ifndef TSR_TRAIN_LOCKED_CHECKPOINT_H
#define TSR_TRAIN_LOCKED_CHECKPOINT_H
#include "checkpoint/folder.h"
#include "report/run_lock.h"

/* The newest checkpoint of a step below `before` that a run can resume from, in the folder
 * `checkpoints` beside the run.lock or in `folder`, where the configuration keeps them: those of
 * other recipes there, and of other learning rates beside the run.lock, are other runs'. "": there
 * is no such folder. False: there is none, and the run is repeated from its begin. */
bool tsr_locked_checkpoint_find(
    tsr_arena *arena, const tsr_run_lock *lock, const char *folder, int64_t before,
    tsr_manifest *ret_checkpoint, tsr_diags *diags);
/* The same beside a run that removes checkpoints (checkpoint/folder.h). */
bool tsr_locked_checkpoint_find_held(
    tsr_arena *arena, const tsr_run_lock *lock, const char *folder, int64_t before,
    tsr_manifest *ret_checkpoint, tsr_checkpoint_hold *ret_hold, tsr_diags *diags);

#endif
