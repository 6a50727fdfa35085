// SPDX-License-Identifier: Apache-2.0
/* What of a configuration fixes a run's bits: its recipe. A checkpoint keeps it, and only a run
 * with the same one resumes from there. The mesh, orders, recompute, intervals of reports are none
 * of it; a key that is not listed is. */
#ifndef TSR_CONFIG_RECIPE_KEYS_H
#define TSR_CONFIG_RECIPE_KEYS_H
#include "base/hash.h"
#include "base/text.h"
#include "config/config.h"

typedef struct {
  const char *key, *value; /* value: as --print-config shows it */
} tsr_recipe_entry;

/* Recipes of older checkpoints do not have these. */
#define TSR_RECIPE_GRAPH "graph_source"
#define TSR_RECIPE_WEIGHTS "initial_weights"
#define TSR_RECIPE_ADAPTER "initial_adapter"
#define TSR_RECIPE_ROUTING "replayed_routing"
#define TSR_RECIPE_ISA "numerics.isa"
/* Of a run that was resumed at another level: "x86-64-v4 to step 6", the levels before the last. */
#define TSR_RECIPE_ISA_BEFORE "numerics.isa.before"
/* The rows that the vocabulary is stored in, where these are more than its units need. Runs of
 * versions that padded it for units alone do not have it; of one that was resumed from such a run:
 * "50257 rows to step 6". */
#define TSR_RECIPE_VOCAB "vocab_padded"
#define TSR_RECIPE_VOCAB_BEFORE "vocab_padded.before"

/* Facts that the configuration alone does not contain. */
typedef struct {
  int64_t samples_per_step, sequence, total_steps;
  int64_t units_batch, units_sequence, units_tp;
  int64_t units_expert;         /* 0: the model has no experts */
  const char *units_order;      /* of the batch units where it is the mesh's own, else "" */
  const char *isa, *isa_before; /* isa_before: NULL: there was no other */
  int64_t vocab_padded;         /* 0: for the units alone, or there is no vocabulary */
  const char *vocab_before;     /* NULL: it was never another one */
  const char *initial_weights;  /* hash of those of a checkpoint; NULL: they are the seed's */
  const char *initial_adapter;  /* hash of the adapters of a folder; NULL: they are the seed's */
  const char *routing; /* hash of what is replayed; NULL: each step chooses experts itself */
  const char *graph;   /* hash of the file or sections that the model's graph was read from */
  const char *data;    /* fingerprint of what samples are drawn from */
} tsr_recipe_facts;

/* Whether a key can be part of a recipe: what it says is normative, what others say is about where
 * and how fast a run computes the same. */
struct tsr_field;
bool tsr_recipe_has_key(const struct tsr_field *field);

/* Rising by key; in `arena`. */
void tsr_config_recipe(
    tsr_arena *arena, const tsr_config *config, const tsr_recipe_facts *facts,
    tsr_recipe_entry **ret_entries, int *ret_count);
/* XXH3-128 over the recipe. */
void tsr_recipe_hash(const tsr_recipe_entry *entries, int count, char ret_text[TSR_HASH_TEXT]);

/* The value of a key; NULL: the recipe does not have it. */
const char *tsr_recipe_find(const tsr_recipe_entry *entries, int count, const char *key);
/* Appends a line for each key whose values differ, "recipe KEY: A | B"; how many there are. */
int tsr_recipe_diff(
    const tsr_recipe_entry *a, int a_count, const tsr_recipe_entry *b, int b_count, tsr_text *text);

/* Values that the configuration does not name are those of the recipe (but for units, levels and
 * trees, which tsr_resume_recipe_fill has set), also the samples of a step; `file`, where the
 * recipe stands, is their place from then on. Sizes of the model and data are none of them. */
void tsr_config_fill(
    tsr_arena *arena, tsr_config *config, const tsr_recipe_entry *entries, int count,
    const char *file);

#endif
