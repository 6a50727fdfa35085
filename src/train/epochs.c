// SPDX-License-Identifier: Apache-2.0
#include "train/epochs.h"

int64_t tsr_epochs_steps(const tsr_config *config, const tsr_run_data *data, int64_t samples) {
  const tsr_config_training *c = &config->training;
  int64_t per_epoch =
      tsr_dataset_samples(&data->dataset, TSR_SPLIT_TRAIN, data->sequence) / samples;
  bool ends_before =
      per_epoch > 0 && c->num_epochs > 0 && c->num_epochs <= c->max_steps / per_epoch;
  return ends_before ? per_epoch * c->num_epochs : c->max_steps;
}

bool tsr_epochs_warn(const tsr_config *config, int64_t steps, tsr_diags *diags) {
  const tsr_config_training *c = &config->training;
  if (steps == c->max_steps) return false;
  tsr_location location = tsr_config_location(config, "training_config.num_epochs");
  if (!location.file) location = tsr_config_location(config, "training_config.max_steps");
  int64_t per_epoch = steps / c->num_epochs;
  tsr_diag_warning(
      diags, location,
      "training ends after step %lld, before max_steps (%lld): num_epochs is %lld, and an epoch of "
      "these data has %lld step%s",
      (long long)steps, (long long)c->max_steps, (long long)c->num_epochs, (long long)per_epoch,
      per_epoch == 1 ? "" : "s");
  return true;
}
