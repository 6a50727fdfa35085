// SPDX-License-Identifier: Apache-2.0
/* Hugging Face's config.json and the sizes of our graph files, both ways, by what the graph files
 * declare of transformers' classes (hf_class.h).
 *
 * Of every class is refused by name, because it would compute something else: is_causal: false, a
 * transformers_weights but model.safetensors, a per_layer_config, and quantized weights but those
 * of hf_quantized.h. */
#ifndef TSR_CHECKPOINT_HF_CONFIG_H
#define TSR_CHECKPOINT_HF_CONFIG_H
#include "base/json.h"
#include "checkpoint/hf_class_find.h"
#include "checkpoint/hf_labels.h"
#include "checkpoint/hf_quantized.h"
#include "config/config.h"

/* A size that the class sets. */
typedef struct {
  const tsr_size_decl *decl;
  tsr_eval value;
} tsr_hf_size_value;

/* What a config.json says. */
typedef struct {
  const char *graph; /* the name of a graph file */
  tsr_hf_class class;
  tsr_hf_size_value *sizes; /* in the graph file's order */
  int sizes_count;
  int64_t prediction_blocks; /* behind the last, which predict further tokens; imports drop them */
  bool has_labels;      /* a key of the class is of the kind `labels`, so the model has classes */
  tsr_hf_labels labels; /* their names */
  tsr_hf_quantization quantization; /* of the weights beside config.json */
} tsr_hf_config;

/* From config.json's text, which errors call `path`. All errors in one call. */
bool tsr_hf_config_read(
    tsr_arena *arena, const char *graphs_folder, const char *path, const char *text, size_t length,
    tsr_hf_config *ret_config, const cJSON **ret_json, tsr_diags *diags);

/* A size that is a whole number; 0 where the class does not set it. */
int64_t tsr_hf_config_size(const tsr_hf_config *config, const char *name);

/* Appends our section `transformer_config: …`: all sizes but those that are off by default (0, -1,
 * false, an empty list) and stay so. Of a model with classes also the section `data`. */
void tsr_hf_config_yaml(const tsr_hf_config *config, tsr_text *text);

/* A config.json to be written. */
typedef struct {
  const char *key, *json; /* its value as text */
} tsr_hf_member;
typedef struct {
  const char *model_type, *architecture;
  tsr_hf_member *members; /* "a.b": member b of the object a */
  int members_count;
} tsr_hf_export_config;

/* By the sizes of a configuration of ours, with the defaults of its graph file; `vocab_stored`: of
 * the embedding, for a vocab_size that the data decides; `padding_token`: what expressions have
 * under this name, below 0: it is not known, and 0 is taken with a warning. Errors: a model that
 * transformers has no class for. */
bool tsr_hf_config_of(
    tsr_arena *arena, const tsr_config *config, int64_t vocab_stored, int64_t padding_token,
    const char *graphs_folder, tsr_hf_export_config *ret_config, tsr_diags *diags);

/* Appends a config.json for transformers; `dtype`: "float32", …; `ids`: an object that may have
 * bos_token_id, eos_token_id and pad_token_id, or NULL. */
void tsr_hf_config_json(
    const tsr_hf_export_config *config, const char *dtype, const cJSON *ids, tsr_text *text);

#endif
