// SPDX-License-Identifier: Apache-2.0
/* Inside the checkpoint manager: its state, and how a run's memory becomes what a checkpoint has,
 * where the run begins and where it returns to. All processes together. */
#ifndef TSR_TRAIN_CHECKPOINT_START_H
#define TSR_TRAIN_CHECKPOINT_START_H
#include "checkpoint/folder.h"
#include "train/checkpoint_manager.h"

struct tsr_checkpoint_manager {
  tsr_arena *arena;
  tsr_checkpoint_manager_options options;
  tsr_checkpoint_manager_run run;
  tsr_saver *saver;
  tsr_folder_lock lock; /* of the checkpoints, on process 0 */
  float *loss, *norm;   /* of steps 1 … */
  int64_t capacity;
  int64_t taken;    /* the step of the newest checkpoint that was taken; -1 */
  int64_t *foreign; /* steps of what the folder had that the run did not resume from: behind its
                            begin, and not replaced yet */
  int foreign_count;
  double begin, slowest; /* the run's begin; seconds of its slowest step */
};

/* Whether all processes have the same number. */
bool tsr_checkpoint_start_has_same(const tsr_checkpoint_manager *manager, int64_t number);
/* Whether the run is the one that a checkpoint is of. */
bool tsr_checkpoint_start_check(
    const tsr_checkpoint_manager *manager, const tsr_manifest *checkpoint,
    const tsr_recipe_entry *recipe, int count, tsr_diags *diags);
/* The state that the options begin with; options.resume becomes the checkpoint that was read. */
bool tsr_checkpoint_start_load(
    tsr_arena *arena, tsr_checkpoint_manager *manager, const tsr_recipe_entry *recipe, int count,
    tsr_run_state *state, tsr_diags *diags);

#endif
