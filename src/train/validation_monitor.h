// SPDX-License-Identifier: Apache-2.0
/* What a run remembers of its evaluations: the best ones, whose checkpoints are kept, and whether
 * the loss still falls. It belongs to the run's state, so a resumed run decides as one that was not
 * interrupted. All processes have the same losses, so they decide alike. */
#ifndef TSR_TRAIN_VALIDATION_MONITOR_H
#define TSR_TRAIN_VALIDATION_MONITOR_H
#include "checkpoint/manifest.h"
#include "config/config.h"

/* Whether anything is to be remembered. */
bool tsr_validation_is_monitored(const tsr_config *config);

/* After the evaluation of a step. `due`: it is one of those every eval_every steps, and counts for
 * the early stop; the one after a run's last step is none of them, unless it is due as well.
 * Whether the loss is among the best, so that a checkpoint of the step is kept. */
bool tsr_validation_update(
    const tsr_config *config, tsr_validation_state *state, int64_t step, double loss, bool due);

/* Whether early_stop_patience evaluations in a row were no improvement. */
bool tsr_validation_is_over(const tsr_config *config, const tsr_validation_state *state);

#endif
