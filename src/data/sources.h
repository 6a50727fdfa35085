// SPDX-License-Identifier: Apache-2.0
/* The tokens of a data set: texts and token files, several sources with weights. */
#ifndef TSR_DATA_SOURCES_H
#define TSR_DATA_SOURCES_H
#include "data/dataset.h"

typedef struct {
  const char *path; /* or a pattern */
  tsr_token_format format;
  double weight; /* above 0; of all inputs or of none: 0 */
  tsr_location location;
} tsr_data_input;

typedef struct {
  const tsr_data_input *inputs;
  int inputs_count;                 /* 1 to TSR_MIX_SOURCES_MAX */
  const tsr_data_input *validation; /* NULL: none of its own */
  tsr_tokenizer tokenizer;          /* char without `chars`: of the texts of `inputs` */
  int64_t vocab_size;               /* the model's; 0: the tokenizer's */
  int64_t stride;                   /* 0: 1 in texts, T in token files */
  bool separate;
  int64_t end_of_text; /* -1: the tokenizer's, if it has one */
} tsr_data_options;

/* Opens all of them. Errors stand at the inputs' places: files that cannot be read or are damaged,
 * a pattern of texts and token files at once, tokens outside the vocabulary in the first
 * TSR_DATA_SCAN_BYTES of a file (the rest is checked as it is used), separate documents of which
 * nothing says where they end. */
#define TSR_DATA_SCAN_BYTES ((int64_t)1 << 30)
bool tsr_dataset_tokens(
    tsr_arena *arena, const tsr_data_options *options, tsr_dataset *ret_dataset, tsr_diags *diags);

/* The file that a sample's window is in, and the window's first token there. */
const tsr_token_file *tsr_dataset_find_window(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int64_t *ret_begin);

/* A token of the window outside the vocabulary: its place in its file, or -1. */
int64_t tsr_dataset_find_outside(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T,
    const tsr_token_file **ret_file);

#endif
