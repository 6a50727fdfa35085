// SPDX-License-Identifier: Apache-2.0
/* The model that a checkpoint's configuration, or another one, describes, for a batch of one
 * token. */
#ifndef TSR_CHECKPOINT_STORED_MODEL_H
#define TSR_CHECKPOINT_STORED_MODEL_H
#include "checkpoint/manifest.h"
#include "config/config.h"
#include "model/model.h"

typedef struct {
  const tsr_config *config;
  tsr_model *model;
  const tsr_stored *embedding; /* NULL: the checkpoint has none */
  int64_t vocab_stored;        /* the embedding's rows, or 0 */
} tsr_stored_model;

/* `config` NULL: the checkpoint's own. Errors: a checkpoint without a configuration, or a
 * configuration without a model. */
bool tsr_stored_model_read(
    tsr_arena *arena, const tsr_manifest *manifest, const tsr_config *config,
    const char *graphs_folder, tsr_stored_model *ret_model, tsr_diags *diags);

#endif
