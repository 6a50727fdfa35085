// SPDX-License-Identifier: Apache-2.0
/* The names of the classes that a model tells apart, as config.json has them: id2label, an object
 * of the numbers from 0 on, and label2id, its inverse. */
#ifndef TSR_CHECKPOINT_HF_LABELS_H
#define TSR_CHECKPOINT_HF_LABELS_H
#include "base/json.h"
#include "base/text.h"

enum { TSR_HF_LABELS_MAX = 65536 };

typedef struct {
  const char **names;
  int count;
} tsr_hf_labels;

/* LABEL_0, LABEL_1, …, as in transformers. */
tsr_hf_labels tsr_hf_labels_default(tsr_arena *arena, int count);

/* Errors, with `name` as the key's: no object, other numbers, a value that is no text or no name, a
 * name twice. */
bool tsr_hf_labels_read(
    tsr_arena *arena, const char *path, const char *name, const cJSON *item, tsr_hf_labels *ret,
    tsr_diags *diags);
/* Whether an object has the number of each name and nothing else. */
bool tsr_hf_labels_are_inverse(const tsr_hf_labels *labels, const cJSON *label2id);

/* As JSON. */
const char *tsr_hf_labels_json(tsr_arena *arena, const tsr_hf_labels *labels);
const char *tsr_hf_label_ids_json(tsr_arena *arena, const tsr_hf_labels *labels);

#endif
