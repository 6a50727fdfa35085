// SPDX-License-Identifier: Apache-2.0
/* The sizes of a model at reduced size: which counts split each of them, by the expressions of its
 * graph file, and what remains of it. Sizes that are computed from others follow them. */
#ifndef TSR_PROVE_REDUCED_SIZES_H
#define TSR_PROVE_REDUCED_SIZES_H
#include "config/config.h"
#include "model/model.h"
#include "prove/size_uses.h"

/* Sizes that keep their value, beside those that a check keeps. */
typedef struct {
  const char *name, *why;
} tsr_kept_size;

typedef struct {
  const tsr_config *config;
  tsr_model_options full; /* of the model at full size; vocab_detected is its vocabulary */
  const tsr_model *model; /* at full size */
  tsr_run_splits splits;
  const tsr_kept_size *kept;
  int kept_count;
} tsr_reduced_sizes_request;

typedef struct {
  const char *name;
  const char *full, *reduced; /* a number or a list */
  const char *why;            /* the counts, or why it stays */
  const char *key; /* under which the model's map has or gets it; NULL: it is not the model's */
  tsr_location location;
  bool shrinks;
} tsr_reduced_size;

typedef struct {
  tsr_reduced_size *rows;
  int count;
  int64_t sequence;    /* 0: the model has none */
  int literal_tensors; /* parameters and inputs with dimensions written as numbers */
} tsr_reduced_sizes;

/* Errors are those of the graph file; a model that was compiled before has none. */
bool tsr_reduced_sizes_make(
    tsr_arena *arena, const tsr_reduced_sizes_request *request, tsr_reduced_sizes *ret_sizes,
    tsr_diags *diags);

/* A configuration with the reduced sizes in its model's map; the map is copied. */
bool tsr_reduced_sizes_apply(
    tsr_arena *arena, const tsr_reduced_sizes *sizes, tsr_config *config, tsr_diags *diags);

#endif
