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
  bool tokens; /* a file of AUTO is a token file whatever its name */
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

/* Makes the mixture of the sources by their weights. */
void tsr_dataset_mix(tsr_arena *arena, tsr_dataset *dataset);

/* What a part consists of: the tokens [begin, end) of a file, or packs of documents. */
typedef struct {
  const tsr_data_source *source;
  const tsr_token_file *file;
  int64_t begin, end;
  const tsr_packs *packs; /* NULL: of a file */
} tsr_data_range;
/* All of a part, in `arena`, in the order of its samples; how many there are. */
int tsr_dataset_ranges(
    tsr_arena *arena, const tsr_dataset *dataset, tsr_split split, tsr_data_range **ret_ranges);

/* A window of a file as the data set's documents are. */
tsr_window
tsr_dataset_window(const tsr_dataset *dataset, const tsr_token_file *file, int64_t begin);

/* Of a sample, by which its tokens are filled in. */
tsr_window
tsr_dataset_find_window(const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T);

/* A token of a sample's window outside the vocabulary: its place in its file, or -1 (of
 * conversations always). */
int64_t tsr_dataset_find_outside(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T,
    const tsr_token_file **ret_file);

#endif
