/* A data set as the step loop sees it: numbered samples in a training and a validation part.
 *
 * text: sample i of a part is the window of T tokens that starts at its token i, and its targets
 * are the same window one token later, so N tokens give N - T samples (stride 1, as tt-train has
 * it). table, images: a sample is a row. */
#ifndef TSR_DATA_DATASET_H
#define TSR_DATA_DATASET_H
#include "data/table.h"
#include "data/tokenizer.h"

typedef enum { TSR_DATASET_TEXT, TSR_DATASET_TABLE, TSR_DATASET_IMAGES } tsr_dataset_kind;
typedef enum { TSR_SPLIT_TRAIN, TSR_SPLIT_VALIDATION } tsr_split;

typedef struct {
  tsr_dataset_kind kind;
  const char *name;        /* for messages: the path, or the first of several */
  tsr_tokenizer tokenizer; /* text */
  const int32_t *tokens;   /* text: (tokens_count) */
  int64_t tokens_count;
  tsr_table table;       /* table, images */
  int64_t validation_at; /* the first token or row of the validation part */
} tsr_dataset;

/* Reads text files (see tsr_text_files_read) and encodes them one after the other. A char tokenizer
 * with `chars` NULL takes its vocabulary from the text; any other is used as given. All of it
 * belongs to the training part at first. */
bool tsr_dataset_text(
    tsr_arena *arena, const char *const *patterns, int count, const tsr_tokenizer *tokenizer,
    tsr_place place, tsr_dataset *ret_dataset, tsr_diags *diags);
bool tsr_dataset_table(
    tsr_arena *arena, const char *path, const tsr_table_columns *columns, tsr_place place,
    tsr_dataset *ret_dataset, tsr_diags *diags);
bool tsr_dataset_images(
    tsr_arena *arena, const char *images_path, const char *labels_path, tsr_place place,
    tsr_dataset *ret_dataset, tsr_diags *diags);

/* Gives the last `fraction` (in [0, 1), rounded down) of the tokens or rows to the validation part.
 * Windows stay inside their part. */
void tsr_dataset_split(tsr_dataset *dataset, double fraction);

/* The samples of a part for sequences of T tokens (T has no meaning for rows); 0 when it is too
 * short. */
int64_t tsr_dataset_samples(const tsr_dataset *dataset, tsr_split split, int64_t T);

/* An error at `place` when the part has no sample for T. */
bool tsr_dataset_check(
    const tsr_dataset *dataset, tsr_split split, int64_t T, tsr_place place, tsr_diags *diags);

/* One sample, `index` in [0, samples): T tokens and T targets (either may be NULL); the features
 * (features); the label; the targets (targets). */
void tsr_dataset_fill_tokens(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int32_t *ret_tokens,
    int32_t *ret_targets);
void tsr_dataset_fill_features(
    const tsr_dataset *dataset, tsr_split split, int64_t index, float *ret_features);
void tsr_dataset_fill_label(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int32_t *ret_label);
void tsr_dataset_fill_targets(
    const tsr_dataset *dataset, tsr_split split, int64_t index, float *ret_targets);

#endif
