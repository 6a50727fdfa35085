// SPDX-License-Identifier: Apache-2.0
/* Adapters beside the files that they come from and go to: PEFT's folders, and models that they are
 * merged into. */
#ifndef TSR_TRAIN_ADAPTER_FILES_H
#define TSR_TRAIN_ADAPTER_FILES_H
#include "checkpoint/hf_export.h"
#include "checkpoint/peft.h"
#include "train/adapter_targets.h"

/* A model of a configuration with lora_config, without a batch. */
typedef struct {
  const tsr_config *config;
  const tsr_graph *base, *graph; /* without and with adapters */
  tsr_adapters adapters;         /* of base */
  int64_t num_labels;            /* of tsr_model */
} tsr_adapted_model;

/* `vocab`: tokens of the model, for a vocab_size of 0. */
bool tsr_adapted_model_read(
    tsr_arena *arena, const tsr_config *config, int64_t vocab, const char *graphs_folder,
    tsr_adapted_model *ret_model, tsr_diags *diags);

/* What the trained values change of the model's parameters. */
tsr_hf_change *
tsr_adapted_changes(tsr_arena *arena, const tsr_trained_values *values, int *ret_count);

/* Writes PEFT's folder. */
bool tsr_adapted_write(
    tsr_arena *arena, const tsr_adapted_model *model, const tsr_trained_values *values,
    const char *out, tsr_diags *diags);

#endif
