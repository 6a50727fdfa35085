// SPDX-License-Identifier: Apache-2.0
/* Where a run begins: anew, from saved weights, or where another run of the same recipe stopped;
 * and which folders its results go to. */
#ifndef TSR_CLI_RUN_BEGIN_H
#define TSR_CLI_RUN_BEGIN_H
#include "cli/console.h"
#include "train/checkpoint_manager.h"

/* Of train and profile, before the programs are made; what the configuration leaves out of the
 * recipe becomes that of the checkpoint which the run resumes from. */
bool run_begin_find(app *a, tsr_config *config, tsr_checkpoint_manager_options *keep);

/* The parts of it: the frozen or initial parameters that training_config.model_path names, the
 * adapters that lora_config.path names, and the recipe of a checkpoint, which `file` has. */
bool run_begin_find_weights(app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep);
bool run_begin_find_adapter(app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep);
bool run_begin_take_recipe(
    app *a, tsr_config *config, const tsr_manifest *checkpoint, const char *file);

/* What the folder of --out is for. */
tsr_out_purpose
run_begin_out_purpose(const app *a, const setup *s, const tsr_checkpoint_manager_options *keep);

#endif
