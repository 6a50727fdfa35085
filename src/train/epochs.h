// SPDX-License-Identifier: Apache-2.0
/* How many steps a run has: max_steps, or fewer where num_epochs over the training data end
 * before. */
#ifndef TSR_TRAIN_EPOCHS_H
#define TSR_TRAIN_EPOCHS_H
#include "train/run_data.h"

/* Of steps with so many samples. */
int64_t tsr_epochs_steps(const tsr_config *config, const tsr_run_data *data, int64_t samples);
/* Warns, and returns true, where a run of `steps` ends before max_steps, which the user may not
 * expect: num_epochs is 1 by default. */
bool tsr_epochs_warn(const tsr_config *config, int64_t steps, tsr_diags *diags);

#endif
