// SPDX-License-Identifier: Apache-2.0
/* What a model that tells classes of documents apart predicts, beside the labels of an evaluation's
 * batch. */
#ifndef TSR_TRAIN_LABEL_SCORES_H
#define TSR_TRAIN_LABEL_SCORES_H
#include "runtime/process.h"
#include "train/compile.h"

typedef struct {
  int32_t label, predicted; /* predicted: of the largest logit, the first of equal ones */
  double log_likelihood;    /* nats, of the label */
} tsr_label_score;

typedef struct {
  int64_t count, right;
} tsr_accuracy;

/* Of the program of an evaluation (TSR_COMPILE_EVALUATE), which keeps such a model's logits. */
typedef struct {
  const tsr_executable *executable;
  int logits; /* the value; -1: the model is none of these, and no score is read */
  int64_t T;
  int classes;
  float *row; /* (classes) */
} tsr_label_scorer;

tsr_label_scorer tsr_label_scorer_new(
    tsr_arena *arena, const tsr_compiled *evaluation, const tsr_executable *executable);
/* Of each label of a sample of the batch that has been evaluated last; `labels` (T): below 0 where
 * a token has none. Returns how many; `ret_scores` has room for T. Collective. */
int64_t tsr_label_scorer_read(
    const tsr_label_scorer *scorer, int64_t sample, const int32_t *labels,
    tsr_label_score *ret_scores);

void tsr_accuracy_add(tsr_accuracy *accuracy, const tsr_label_score *scores, int64_t count);
double tsr_accuracy_value(const tsr_accuracy *accuracy);
/* The standard error: the sample's standard deviation (divisor n - 1) over sqrt(n); NaN of one. */
double tsr_accuracy_error(const tsr_accuracy *accuracy);
/* "0.75 ± 0.25 (3 of 4)" with so many digits, on the standard output; of one no standard error. */
void tsr_accuracy_print(const tsr_accuracy *accuracy, int digits);

#endif
