// SPDX-License-Identifier: Apache-2.0
/* The loss of a model over a text, each token but the first predicted once; of separate documents
 * each but a document's first. Of documents with labels, that of these, and what is predicted. */
#ifndef TSR_TRAIN_EVALUATE_H
#define TSR_TRAIN_EVALUATE_H
#include "train/label_scores.h"
#include "train/run_data.h"
#include <signal.h>

/* A document with a label, and where it is. */
typedef struct {
  tsr_label_score score;
  const char *path;
  int line;
} tsr_labelled_document;

typedef struct {
  double loss;                      /* nats a token, or a label, the mean over all */
  int64_t tokens;                   /* predicted, or labels */
  tsr_accuracy accuracy;            /* of labels */
  tsr_labelled_document *documents; /* (accuracy.count) of labels, in the order of their lines */
  int64_t bytes;                    /* that they stand for; 0: without a tokenizer */
  int64_t dropped, given;           /* documents of packs: left out as too long, and all */
  double seconds;
} tsr_evaluation;

/* The loss of what the program has evaluated last. `numbers`: room for `batch` of them. */
double tsr_evaluation_loss(
    const tsr_compiled *evaluation, const tsr_executable *executable, float *numbers);

/* Over one part of the data's tokens, in windows that follow each other; the last of a file is
 * shorter. `batch` windows at once, of `evaluation`'s program (TSR_COMPILE_EVALUATE). Which batches
 * there are does not depend on the mesh. Errors: no tokens, or no document
 * in a pack; a token outside the vocabulary; NaN
 * among the scores of a router; `stop`
 * ends it early, with what was seen so far; false, without an error, where that is nothing. */
bool tsr_evaluate(
    tsr_arena *arena, const tsr_run_data *data, tsr_split split, const tsr_compiled *evaluation,
    tsr_executable *executable, int64_t batch, const volatile sig_atomic_t *stop,
    tsr_evaluation *ret_evaluation, tsr_diags *diags);

#endif
