// SPDX-License-Identifier: Apache-2.0
/* A run's data: which files the configuration means, and which sample a step's row is. */
#ifndef TSR_TRAIN_RUN_DATA_H
#define TSR_TRAIN_RUN_DATA_H
#include "config/config.h"
#include "data/dataset.h"
#include "runtime/process.h"
#include <stdatomic.h>

/* The first token outside the vocabulary that a sample had; file NULL: none so far. */
typedef struct {
  _Atomic(const tsr_token_file *) file;
  _Atomic int64_t token;
} tsr_run_data_fault;

typedef struct {
  tsr_dataset dataset;
  const tsr_config *config;
  int64_t sequence;           /* of text */
  const char *tokenizer_file; /* that the tokenizer was read from, or NULL */
  tsr_run_data_fault *fault;
} tsr_run_data;

/* What a graph takes from the data, by the names of its inputs: tokens with targets, or with labels
 * of documents, and where it keeps documents apart their positions (graph/documents.h), or features
 * with labels or values. */
typedef struct {
  bool text, labels;
  int64_t sequence, vocab; /* of text; vocab: the least that an embedding or a loss knows */
  int64_t features;        /* of rows */
  int64_t classes;         /* that labels tell apart, or the number of values */
} tsr_run_data_needs;
/* Errors: an input of another name, inputs of which no data has all. */
bool tsr_run_data_needs_of(const tsr_graph *graph, tsr_run_data_needs *ret_needs, tsr_diags *diags);

/* Texts, token files, a CSV table or a folder of MNIST's IDX files; of `needs` only text and labels
 * matter. data_sources are texts and token files.
 * Paths as the configuration's other paths. */
bool tsr_run_data_open(
    tsr_arena *arena, const tsr_config *config, const tsr_run_data_needs *needs,
    tsr_run_data *ret_source, tsr_diags *diags);
/* The tokenizer of the configuration alone, without data: bytes, what tokenizer_path holds, or else
 * the numbers of the model's vocabulary. */
bool tsr_run_data_open_tokenizer(
    tsr_arena *arena, const tsr_config *config, tsr_run_data *ret_source, tsr_diags *diags);
/* Whether data_path is given and there. */
bool tsr_run_data_exist(tsr_arena *arena, const tsr_config *config);
/* The tokens of a sample, once they are known; of conversations samples exist from then on. */
void tsr_run_data_set_sequence(tsr_arena *arena, tsr_run_data *data, int64_t sequence);
/* Both parts are long enough, and tokens and features fit what is needed. */
bool tsr_run_data_check(
    const tsr_run_data *data, const tsr_run_data_needs *needs, tsr_diags *diags);
/* Data with labels are for a model that reads them, and the other way round; each is one of its
 * classes. */
bool tsr_run_data_check_labels(
    const tsr_run_data *data, const tsr_run_data_needs *needs, tsr_diags *diags);
/* An error where a graph fixes another number of positions than `sequence_length`. */
bool tsr_run_data_check_sequence(
    const tsr_config *config, const tsr_run_data_needs *needs, tsr_diags *diags);
/* end_of_text is a token of the model's, as far as its vocabulary is known. */
bool tsr_run_data_check_end_of_text(
    const tsr_config *config, const tsr_run_data_needs *needs, tsr_diags *diags);
/* eval_config.prompt can be encoded. */
bool tsr_run_data_check_prompt(tsr_arena *arena, const tsr_run_data *data, tsr_diags *diags);

/* The context of tsr_run_data_fill: one step of one part. */
typedef struct {
  const tsr_run_data *data;
  tsr_split split;
  int64_t first;   /* position of the step's sample 0 in the global order */
  int64_t samples; /* of the step; rows beyond them are padding, whose targets are ignored */
} tsr_run_data_step;
/* The data set's number of a sample of the step. */
int64_t tsr_run_data_index(const tsr_run_data_step *step, int64_t sample);
void tsr_run_data_fill(void *context, const char *input, int64_t sample, void *row);
/* After a step: an error for a token outside the vocabulary that a sample of it had (only what was
 * not looked at when the data was opened, data/sources.h, can have one), or for a file that was cut
 * while it was read. */
bool tsr_run_data_check_used(const tsr_run_data *data, tsr_diags *diags);
/* Targets of a step that count (are not ignore_index). */
int64_t tsr_run_data_targets(const tsr_run_data_step *step, int64_t samples);

#endif
