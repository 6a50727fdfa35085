// SPDX-License-Identifier: Apache-2.0
/* From a checkpoint of ours to a folder that transformers loads: config.json, model.safetensors (or
 * shards of it with their index), and the tokenizer's files. */
#ifndef TSR_CHECKPOINT_HF_EXPORT_H
#define TSR_CHECKPOINT_HF_EXPORT_H
#include "base/diag.h"
#include <stdint.h>

typedef struct {
  const char *graphs_folder;
  const char *dtype;   /* "f32", "bf16", "f16"; NULL: as stored */
  int64_t shard_bytes; /* a file's tensors have at most so many, or are one; 0: 5 GB */
} tsr_hf_export_options;

/* `checkpoint`: a checkpoint, or a run's folder of them (the newest is taken). `out` must not be
 * there; after an error it is not. Every byte of the checkpoint is compared with its hash before.
 * Needs some megabytes, and the memory of one tensor where those are stored transposed (GPT-2). */
bool tsr_hf_export(
    tsr_arena *arena, const char *checkpoint, const char *out, const tsr_hf_export_options *options,
    tsr_diags *diags);

#endif
