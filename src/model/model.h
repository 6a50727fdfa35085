// SPDX-License-Identifier: Apache-2.0
/* Reads a graph file with a model's sizes into a Graph (forward only; no collectives but those that
 * the file writes out; no ranks).
 *
 * Which file: `model_config: {graph: FILE}` of the user's, else configs/graphs/<model_type>.yaml in
 * `graphs_folder`. docs/graph_files.md describes the format. */
#ifndef TSR_MODEL_MODEL_H
#define TSR_MODEL_MODEL_H
#include "config/config.h"
#include "graph/graph.h"

typedef struct {
  int64_t batch;          /* global samples of a microbatch */
  int64_t sequence;       /* 0: the model's own max_sequence_length */
  int64_t vocab_detected; /* of a character tokenizer, for a vocab_size of 0 or none; 0: unknown */
  int64_t
      vocab_assumed;  /* taken with a warning when vocab_size is 0 and none is detected; 0: none */
  bool training;      /* false: dropout is left out */
  bool loss;          /* false: stop at the logits (generation) */
  int64_t drop_units; /* of the graph */
  tsr_units units;    /* the vocabulary is padded for units.tp */
  const char *graphs_folder;
} tsr_model_options;

/* A key of the model's map, and its value where it is left out, as text. */
typedef struct {
  const char *key, *value;
} tsr_model_default;

typedef struct {
  tsr_graph *graph;
  /* sizes the trainer needs; 0 where the model has none */
  int64_t vocab_size, vocab_padded, max_sequence_length, sequence, features, classes;
  int64_t num_labels; /* above 0: logits are scores of a document's classes, not of tokens */
  const tsr_model_default *defaults; /* of those sizes that have one and are no lists */
  int defaults_count;
  bool reads_batch;   /* an expression of the graph file has the batch in it */
  const char *source; /* hash of what the graph was read from, whatever its comments and spaces */
} tsr_model;

/* All errors of model and graph file in one run, with their places. */
bool tsr_model_read(
    tsr_arena *arena, const tsr_config *config, const tsr_model_options *options,
    tsr_model **ret_model, tsr_diags *diags);

#endif
