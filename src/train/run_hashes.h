// SPDX-License-Identifier: Apache-2.0
/* The hashes of a run's steps: written into its run.lock, and compared with those of another. */
#ifndef TSR_TRAIN_RUN_HASHES_H
#define TSR_TRAIN_RUN_HASHES_H
#include "train/trainer_internal.h"

/* Once the run's first weights are known, before anything is written: the recipe and the weights
 * against options->locked. Errors: keys of the recipe that differ; a failure: other weights. */
bool tsr_run_hashes_check(tsr_trainer *trainer, tsr_diags *diags);
/* Begins the run's own run.lock; of the process that writes it. */
bool tsr_run_hashes_begin(tsr_trainer *trainer, tsr_diags *diags);
/* After a step. A failure where the other run has other bits. */
bool tsr_run_hashes_step(tsr_trainer *trainer, tsr_diags *diags);
/* Something other than a step has written weights. All processes together. */
void tsr_run_hashes_refresh(tsr_trainer *trainer);
/* The run has returned to an earlier step: cuts off what is behind it. All processes together. A
 * failure where the run.lock has other weights after that step. */
bool tsr_run_hashes_return(tsr_trainer *trainer, tsr_diags *diags);
/* At the end. */
bool tsr_run_hashes_finish(tsr_trainer *trainer, tsr_diags *diags);

#endif
