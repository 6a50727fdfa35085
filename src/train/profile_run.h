// SPDX-License-Identifier: Apache-2.0
/* The command `profile`: a few steps of a training run, recorded. */
#ifndef TSR_TRAIN_PROFILE_RUN_H
#define TSR_TRAIN_PROFILE_RUN_H
#include "job/job.h"
#include "train/trainer.h"

enum { TSR_PROFILE_WARM_UP = 1, TSR_PROFILE_STEPS = 5 };

/* Collective: trains TSR_PROFILE_WARM_UP steps and `steps` (0: TSR_PROFILE_STEPS) more exactly as
 * tsr_train does. Process 0 gathers what all processes have recorded, writes trace.json into
 * options->out_folder, or into the working directory, and prints the tables and the advice unless
 * options->quiet. Errors: fewer steps in the run than that, more events than can be kept; both name
 * the numbers. */
bool tsr_profile_command(
    const tsr_trainer_options *options, const tsr_compiled *training, tsr_job *job, int64_t steps,
    int *ret_signal, tsr_diags *diags);

#endif
