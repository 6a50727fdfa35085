// SPDX-License-Identifier: Apache-2.0
/* The class of transformers that a config.json is of, among those of a folder's graph files. */
#ifndef TSR_CHECKPOINT_HF_CLASS_FIND_H
#define TSR_CHECKPOINT_HF_CLASS_FIND_H
#include "base/json.h"
#include "checkpoint/hf_class.h"

typedef struct {
  tsr_hf_class class;
  const char *graph;    /* the name of a graph file */
  tsr_graph_file *file; /* as read; NULL: the class was not found, or has mistakes */
} tsr_hf_found;

/* By `model_type` and `architectures` of `root`, which errors call `path`. A file counts with the
 * classes that stand in itself, not with those that it has by `extends`. Errors: a type or an
 * architecture that no class has, with those that there are; such an architecture leaves the first
 * class of the type, so that other errors can follow. */
bool tsr_hf_class_find(
    tsr_arena *arena, const char *graphs_folder, const char *path, const cJSON *root,
    tsr_hf_found *ret_found, tsr_diags *diags);

/* As a message shows it: "'silu'", "1.5", "a list". */
const char *tsr_hf_describe(tsr_arena *arena, const cJSON *item);
/* The error "'path': key value is not supported", with the hint "supported: …" unless that is NULL.
 * Returns false. */
bool tsr_hf_unsupported(
    const char *path, const char *key, const char *value, const char *supported, tsr_diags *diags);

#endif
