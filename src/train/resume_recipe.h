// SPDX-License-Identifier: Apache-2.0
/* The recipe of a run and that of the checkpoint which it resumes from (config/recipe_keys.h). */
#ifndef TSR_TRAIN_RESUME_RECIPE_H
#define TSR_TRAIN_RESUME_RECIPE_H
#include "report/run_lock.h"
#include "train/checkpoint_manager.h"

/* `resume`: the checkpoint that the run goes on from, whose levels of instruction sets it keeps;
 * NULL: none. */
void tsr_resume_recipe(
    tsr_arena *arena, const tsr_checkpoint_manager_run *run, const tsr_manifest *resume,
    tsr_recipe_entry **ret_recipe, int *ret_count);

/* A hash of the parameters of a checkpoint that a graph has, as they are stored. */
const char *
tsr_resume_recipe_hash(tsr_arena *arena, const tsr_manifest *weights, const tsr_graph *graph);
/* What a run began with, and the one that goes on where it ended with it: the hash of
 * options->weights, or what options->resume's recipe has; NULL: the seed's random ones. */
const char *tsr_resume_recipe_weights(
    tsr_arena *arena, const tsr_checkpoint_manager_options *options, const tsr_graph *graph);

/* Errors: every key whose value differs, at its location in the configuration. The instruction-set
 * level may differ, with a warning, as may one that it has had before. Of a run that forks the
 * level may not, but the keys of learning rates may, if the rates up to the checkpoint are the
 * same: the run is then the one that its own recipe fixes from the first step. */
bool tsr_resume_recipe_check(
    const tsr_checkpoint_manager_run *run, const tsr_manifest *checkpoint,
    const tsr_recipe_entry *recipe, int count, tsr_diags *diags);

/* The same against a run.lock, from which no key may differ: neither the instruction-set level. */
bool tsr_resume_recipe_check_locked(
    const tsr_checkpoint_manager_run *run, const tsr_run_lock *lock, const tsr_recipe_entry *recipe,
    int count, bool data_may_differ, tsr_diags *diags);

/* Values that a configuration left out and the recipe of a checkpoint has (units, the
 * instruction-set level, the precision), so that the run that resumes has them too. */
void tsr_resume_recipe_fill(tsr_arena *arena, tsr_config *config, const tsr_manifest *resume);

#endif
