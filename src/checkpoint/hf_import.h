// SPDX-License-Identifier: Apache-2.0
/* From a Hugging Face folder (config.json, *.safetensors) to a checkpoint of ours without optimizer
 * state: the weights under our names, in the dtype that they have there, and a config.yaml with the
 * model's section. Tokenizer files are copied. */
#ifndef TSR_CHECKPOINT_HF_IMPORT_H
#define TSR_CHECKPOINT_HF_IMPORT_H
#include "base/diag.h"
#include <stdint.h>

typedef struct {
  const char *graphs_folder;
  const char *version;     /* of the program, for the manifest */
  int64_t time;            /* seconds since 1970, for the manifest */
  int64_t sequence_length; /* for config.yaml; 0: the model's, at most 1024 */
} tsr_hf_import_options;

/* `out` must not be there; after an error it is not. Missing, surplus and misshapen tensors are all
 * named in one run; what old files have beside the weights (masks, rotary tables, a copy of the
 * tied embedding) is left out. Beside the file's pages in memory it needs some megabytes. */
bool tsr_hf_import(
    tsr_arena *arena, const char *folder, const char *out, const tsr_hf_import_options *options,
    tsr_diags *diags);

#endif
