// SPDX-License-Identifier: Apache-2.0
/* A run of train, profile or verify, from its configuration to its exit code. */
#ifndef TSR_CLI_TRAIN_RUN_H
#define TSR_CLI_TRAIN_RUN_H
#include "cli/console.h"
#include "train/trainer.h"

/* Environment variables of a run, before it begins, so that a mistake in them leaves nothing. */
bool train_run_check_variables(tsr_diags *diags);

/* All processes call it, each with what went well so far in `ok`. `locked`: NULL, or steps that the
 * run must repeat. */
int train_run(
    app *a, setup *s, tsr_checkpoint_manager_options *keep, tsr_locked_run *locked, bool ok);

#endif
