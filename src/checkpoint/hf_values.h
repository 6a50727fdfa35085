// SPDX-License-Identifier: Apache-2.0
/* Values of config.json's keys by their kind: from JSON, and as text. */
#ifndef TSR_CHECKPOINT_HF_VALUES_H
#define TSR_CHECKPOINT_HF_VALUES_H
#include "base/json.h"
#include "checkpoint/hf_class.h"

/* Where a value comes from, for messages and for the vocabulary. */
typedef struct {
  tsr_arena *arena;
  const char *path, *name;
  tsr_scope *keys; /* that have been read */
  tsr_diags *diags;
} tsr_hf_item;

/* Errors: another kind, or a number that is too small. A key with `values` has no limits. */
bool tsr_hf_item_read(
    const tsr_hf_item *source, const tsr_hf_key *key, const cJSON *item, tsr_eval *ret_value);
/* Whether `min` or `above` of the key forbids a number. */
bool tsr_hf_is_below(const tsr_hf_key *key, double number);

/* As messages and JSON have it: "'silu'", "0.5", "true"; words in single quotes. */
const char *tsr_hf_eval_text(tsr_arena *arena, tsr_hf_kind kind, const tsr_eval *value);
/* "'default', 'llama3'" */
const char *tsr_hf_values_text(tsr_arena *arena, const tsr_hf_key *key);
/* A scalar of a graph file. */
tsr_eval tsr_hf_yaml_value(const tsr_yaml *node);
/* The shortest digits that are this number again; never those of a whole number, because readers
 * may tell 1 from 1.0. */
const char *tsr_hf_real_text(tsr_arena *arena, double value);

#endif
