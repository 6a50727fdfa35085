// SPDX-License-Identifier: Apache-2.0
/* A data set as the step loop sees it: numbered samples in a training and a validation part.
 *
 * tokens: texts and token files, of one or of several sources with weights (data/sources.h). A
 * sample is the window of T tokens that begins at a token of a file, and its targets are the same
 * window one token later. Windows of a text begin at each token, so N tokens give N - T samples (as
 * tt-train has it); those of a token file every T tokens, (N - 1) / T samples (as llm.c and
 * Megatron have it); a stride of one's own is above both. No window leaves its file; the files of
 * a text count as one. A sample of conversations, or of texts with a label, is a pack of them
 * (data/packing.h). table, images: a sample is a row. */
#ifndef TSR_DATA_DATASET_H
#define TSR_DATA_DATASET_H
#include "data/labelled_text.h"
#include "data/mixture.h"
#include "data/table.h"
#include "data/tokenizer.h"
#include "data/window.h"

typedef enum { TSR_DATASET_TEXT, TSR_DATASET_TABLE, TSR_DATASET_IMAGES } tsr_dataset_kind;
typedef enum { TSR_SPLIT_TRAIN, TSR_SPLIT_VALIDATION } tsr_split;

/* One path or pattern of tokens: a text, token files, or documents of lines. */
typedef struct {
  const char *name; /* the path, or the first of several */
  bool is_text;
  tsr_token_file *files; /* of a text one, in memory */
  int files_count;
  const tsr_masked_documents *documents; /* of lines, instead of files; else NULL */
  tsr_packs packs[2];                    /* of documents: of each part, once it is packed */
  int64_t tokens;                        /* of all files */
  /* The first of the validation part, the files one after the other: a token, or a document. */
  int64_t validation_at;
  double weight; /* 0: none was given, it counts by its tokens */
} tsr_data_source;

typedef struct {
  tsr_dataset_kind kind;
  const char *name;        /* for messages: the path, or the first of several */
  tsr_tokenizer tokenizer; /* of tokens; of token files too */
  tsr_data_source *sources;
  int sources_count;
  const tsr_data_source *validation; /* a source of its own; NULL: the end of each source */
  tsr_mixture mix;                   /* of the sources */
  int64_t vocab_size;                /* what all tokens are below */
  int64_t stride;                    /* of all windows; 0: as above */
  bool separate;                     /* a document's last token has no target */
  int64_t end_of_text;               /* the token that ends a document, where one does; else -1 */
  tsr_packing_rule packing;          /* of documents of lines */
  tsr_label_names labels;            /* of texts with a label */
  tsr_table table;                   /* table, images */
  int64_t validation_at;             /* table, images: the first row of the validation part */
} tsr_dataset;

/* Reads text files (see tsr_text_files_read) and encodes them one after the other. A char tokenizer
 * with `chars` NULL takes its vocabulary from the text; any other is used as given. All of it
 * belongs to the training part at first. */
bool tsr_dataset_text(
    tsr_arena *arena, const char *const *patterns, int count, const tsr_tokenizer *tokenizer,
    tsr_location location, tsr_dataset *ret_dataset, tsr_diags *diags);
bool tsr_dataset_table(
    tsr_arena *arena, const char *path, const tsr_table_columns *columns, tsr_location location,
    tsr_dataset *ret_dataset, tsr_diags *diags);
bool tsr_dataset_images(
    tsr_arena *arena, const char *images_path, const char *labels_path, tsr_location location,
    tsr_dataset *ret_dataset, tsr_diags *diags);
/* Makes the rows of another table, or of other images, the validation part of all that there is. An
 * error at `place` where their columns are others. */
bool tsr_dataset_add_validation(
    tsr_arena *arena, tsr_dataset *dataset, const tsr_dataset *validation, tsr_location location,
    tsr_diags *diags);
/* Unmaps token files; the arena's memory stays. */
void tsr_dataset_close(tsr_dataset *dataset);

/* Gives the last `fraction` (in [0, 1), rounded down) of the rows, or of the tokens or
 * conversations of each source, to the validation part. Windows and packs stay inside their part.
 */
void tsr_dataset_split(tsr_dataset *dataset, double fraction);
/* Packs conversations, where there are any, into samples of T tokens; after the split. From then on
 * T is this one. */
void tsr_dataset_pack(tsr_arena *arena, tsr_dataset *dataset, int64_t T);

/* The samples of a part, of all sources together, for sequences of T tokens (T has no meaning for
 * rows); 0 when it is too short. */
int64_t tsr_dataset_samples(const tsr_dataset *dataset, tsr_split split, int64_t T);

/* An error at `place` when the part, or a source of it, has no sample for T. */
bool tsr_dataset_check(
    const tsr_dataset *dataset, tsr_split split, int64_t T, tsr_location location,
    tsr_diags *diags);

/* The sample at a position (>= 0) of the run: the mix names the source and how many of its samples
 * came before, the order (data/sample_order.h) which one is next. A function of these arguments
 * alone; a source repeats no sample before it has given all. */
int64_t tsr_dataset_sample_at(
    const tsr_dataset *dataset, tsr_split split, int64_t T, uint64_t seed, int64_t position);

/* One sample, `index` in [0, samples): T tokens and T targets (either may be NULL); the features
 * (features); the label; the targets (targets). Targets behind the end of a document are
 * TSR_TARGET_IGNORED when documents are separate. */
void tsr_dataset_fill_tokens(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int32_t *ret_tokens,
    int32_t *ret_targets);
/* The position of each of the sample's T tokens in its document (graph/documents.h). Where
 * documents are packed the sample counts as one. */
void tsr_dataset_fill_positions(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int32_t *ret_positions);
/* How many targets of the sample are neither ignored nor `ignored`. */
int64_t tsr_dataset_count_targets(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int64_t ignored);
void tsr_dataset_fill_features(
    const tsr_dataset *dataset, tsr_split split, int64_t index, float *ret_features);
void tsr_dataset_fill_label(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int32_t *ret_label);
void tsr_dataset_fill_targets(
    const tsr_dataset *dataset, tsr_split split, int64_t index, float *ret_targets);

/* 32 hexadecimal digits (XXH3, 128 bits) of what fixes the samples of the training part, in which
 * order they may come aside: kinds, counts, shares, stride, documents and the content. Files above
 * 64 MiB are read at both ends and in 64 places between. Names of files are no part of it. */
void tsr_dataset_fingerprint(const tsr_dataset *dataset, char ret_text[33]);
/* The same of the tokens of a validation source of its own, which is no part of the above (rows of
 * a table's validation part are); zeros where there is none. */
void tsr_dataset_validation_fingerprint(const tsr_dataset *dataset, char ret_text[33]);

#endif
