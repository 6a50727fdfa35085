// SPDX-License-Identifier: Apache-2.0
/* From a checkpoint of ours to a folder that transformers loads: config.json, model.safetensors (or
 * shards of it with their index), and the tokenizer's files. */
#ifndef TSR_CHECKPOINT_HF_EXPORT_H
#define TSR_CHECKPOINT_HF_EXPORT_H
#include "base/diag.h"
#include "config/config.h"
#include <stdint.h>

/* What a parameter becomes: other values, or the sum of its own and an adapter's, W + scale B A;
 * with DoRA's magnitudes m each row of it is scaled to that length. */
typedef struct {
  const char *param;
  const float *values;    /* all of it; NULL: it has an adapter */
  const float *a, *b, *m; /* (r, in), (out, r), (out) or NULL */
  int64_t rank, out, in;
  float scale;
} tsr_hf_change;

typedef struct {
  const char *graphs_folder;
  const char *dtype;            /* "f32", "bf16", "f16"; NULL: as stored */
  int64_t shard_bytes;          /* a file's tensors have at most so many, or are one; 0: 5 GB */
  const tsr_hf_change *changes; /* of parameters, which are merged into the model */
  int changes_count;
  const tsr_config *config; /* of the model that they make; NULL: the checkpoint's own */
} tsr_hf_export_options;

/* `checkpoint`: a checkpoint, or a run's folder of them (the newest is taken). `out` must not be
 * there; after an error it is not. Every byte of the checkpoint is compared with its hash before.
 * Needs some megabytes, and the memory of one tensor where those are stored transposed (GPT-2). */
bool tsr_hf_export(
    tsr_arena *arena, const char *checkpoint, const char *out, const tsr_hf_export_options *options,
    tsr_diags *diags);

#endif
