// SPDX-License-Identifier: Apache-2.0
/* adapter_model.safetensors of PEFT: "base_model.model.MODULE.lora_A.weight" (r, in),
 * "….lora_B.weight" (out, r), DoRA's "….lora_magnitude_vector" (out), biases of layers with
 * adapters as "….base_layer.bias", and other trained parameters by their names in the model. */
#ifndef TSR_CHECKPOINT_PEFT_H
#define TSR_CHECKPOINT_PEFT_H
#include "checkpoint/peft_config.h"
#include "checkpoint/trained_values.h"

/* The name of a module, or of a tensor, in transformers 5 by that in files of a model: Mixtral's
 * block_sparse_moe is mlp there. */
const char *tsr_peft_module_name(tsr_arena *arena, const char *name);

/* Folders have the names of transformers 5; those of files are read, too.
 * Every trained parameter of values->graph must be in the folder's file, and nothing else. */
bool tsr_peft_read(
    tsr_arena *arena, const char *folder, tsr_location location, const tsr_trained_values *values,
    tsr_diags *diags);
/* XXH3-128 of the folder's file of weights. */
bool tsr_peft_hash(
    tsr_arena *arena, const char *folder, tsr_location location, const char **ret_hash,
    tsr_diags *diags);

/* A folder of both files. `out` must not be there; after an error it is not. */
bool tsr_peft_write(
    tsr_arena *arena, const char *out, const tsr_trained_values *values,
    const tsr_peft_config *config, tsr_diags *diags);

#endif
