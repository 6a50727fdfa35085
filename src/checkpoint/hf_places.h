// SPDX-License-Identifier: Apache-2.0
/* Where config.json has what a key of a class names: at the top level, in objects, and for rotary
 * positions in one of the places that transformers reads. */
#ifndef TSR_CHECKPOINT_HF_PLACES_H
#define TSR_CHECKPOINT_HF_PLACES_H
#include "base/json.h"
#include "checkpoint/hf_class.h"

typedef struct {
  tsr_arena *arena;
  const char *path; /* what errors call config.json */
  const cJSON *root;
  const cJSON *rope;     /* rope_parameters, or rope_scaling if it is not empty; NULL: neither */
  const char *rope_name; /* of the two */
} tsr_hf_document;

/* Errors: both objects, and different ones; what is no object; objects in it that no key of the
 * class names, and for a class with such keys what is none of them. */
bool tsr_hf_document_open(
    tsr_arena *arena, const char *path, const cJSON *root, const tsr_hf_class *class,
    tsr_hf_document *ret_document, tsr_diags *diags);

/* Equal, of two that have less than 4096 values. */
bool tsr_hf_is_same(const cJSON *a, const cJSON *b);

/* NULL where it is missing; `ret_name`: as messages call it. */
const cJSON *
tsr_hf_document_get(const tsr_hf_document *document, const char *place, const char **ret_name);

#endif
