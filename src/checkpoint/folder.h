// SPDX-License-Identifier: Apache-2.0
/* A run's folder of checkpoints: step-00000500, step-00001000, … */
#ifndef TSR_CHECKPOINT_FOLDER_H
#define TSR_CHECKPOINT_FOLDER_H
#include "base/folder_lock.h"
#include "checkpoint/manifest.h"

typedef struct {
  int64_t step;
  const char *path;
} tsr_checkpoint_entry;

/* The committed ones, by rising step; none if the folder does not exist. Errors: one that cannot
 * be read. */
bool tsr_checkpoints_list(
    tsr_arena *arena, const char *folder, tsr_checkpoint_entry **ret_entries, int *ret_count,
    tsr_diags *diags);

/* The newest of a step below `before` whose manifest can be read, and its manifest; what cannot be
 * read is passed over with a warning. False where there is none, without an error. */
bool tsr_checkpoints_newest(
    tsr_arena *arena, const char *folder, int64_t before, tsr_manifest *ret_manifest,
    tsr_diags *diags);
/* The warning that `path` is passed over because of the first of `errors`. */
void tsr_checkpoint_pass_over(const char *path, tsr_diags *errors, tsr_diags *diags);

/* A file in a run's folder of checkpoints that names the best one (checkpoint.keep_best). */
#define TSR_BEST_NAME "best"
/* Lets it name the first of these evaluations whose checkpoint the folder has. */
bool tsr_checkpoints_name_best(
    tsr_arena *arena, const char *folder, const tsr_validation_state *state, tsr_diags *diags);

/* A checkpoint by its own path, by its run's folder: there the newest, or by FOLDER/best of either.
 * Errors at `place`. */
bool tsr_checkpoint_find(
    tsr_arena *arena, const char *path, tsr_location location, tsr_manifest *ret_manifest,
    tsr_diags *diags);

/* The same for a reader beside the run: what it has found is not pruned before the hold is
 * released, which the end of the process does, too. Where the file system has no locks nothing is
 * held. */
typedef struct {
  int fd; /* -1: nothing is held */
} tsr_checkpoint_hold;
#define TSR_CHECKPOINT_HOLD_NONE ((tsr_checkpoint_hold){.fd = -1})
bool tsr_checkpoint_find_held(
    tsr_arena *arena, const char *path, tsr_location location, tsr_manifest *ret_manifest,
    tsr_checkpoint_hold *ret_hold, tsr_diags *diags);
void tsr_checkpoint_release(tsr_checkpoint_hold *hold);

const char *tsr_checkpoint_path(tsr_arena *arena, const char *folder, int64_t step);
/* The name that a checkpoint has while another one of the same step replaces it. */
const char *tsr_checkpoint_aside(tsr_arena *arena, const char *path);
/* Removes one that has this name, as tsr_checkpoints_prune does. */
bool tsr_checkpoint_remove_aside(tsr_arena *arena, const char *path, tsr_diags *diags);

/* Makes the folder, and takes it for this process alone. Errors: another process has it; then no
 * folder was made; it cannot be made, at `place`. */
bool tsr_checkpoints_take_folder(
    tsr_arena *arena, const char *folder, tsr_location location, tsr_folder_lock *ret_lock,
    tsr_diags *diags);

/* Gives it back; folders that were made for it and have nothing in them are removed. */
void tsr_checkpoints_give_back(tsr_arena *arena, tsr_folder_lock *lock);

/* Removes what a run that was killed has left unfinished, of a folder that is taken; with `all`
 * every checkpoint, too. What this program has not written stays, with a warning. An error, and
 * nothing is removed, where something has the name of one and neither a manifest nor tensors: a
 * checkpoint of that step would replace it; or where this process has read a file of what would be
 * removed. */
bool tsr_checkpoints_clean(tsr_arena *arena, const char *folder, bool all, tsr_diags *diags);

/* Steps whose checkpoints are of a run. */
typedef struct {
  int64_t *items;
  int count;
} tsr_checkpoint_steps;
bool tsr_checkpoint_steps_have(const tsr_checkpoint_steps *steps, int64_t step);

/* Which checkpoints are kept. */
typedef struct {
  int64_t last, every;              /* 0: all; none */
  const tsr_validation_state *best; /* NULL: none */
} tsr_checkpoint_retention;

/* Of those that are `known` (NULL: of all) removes those up to step `newest`, the one just written,
 * that are neither among the last ones of them nor of a step that is a multiple of `every`, nor
 * among the best, nor held by a reader, which leaves them to the next call.
 * Later ones, which the run resumed from before, may be damaged: they count for nothing and stay,
 * as does what is only named as a checkpoint. A checkpoint loses its name before its files. What
 * this program has not written stays under that other name, which is a failure, as is what cannot
 * be removed; the others are removed all the same. */
bool tsr_checkpoints_prune(
    tsr_arena *arena, const char *folder, const tsr_checkpoint_steps *known, int64_t newest,
    const tsr_checkpoint_retention *keep, tsr_diags *diags);

#endif
