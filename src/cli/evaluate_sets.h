// SPDX-License-Identifier: Apache-2.0
/* `evaluate --eval-set`: questions, completions and texts by their log-probabilities. */
#ifndef TSR_CLI_EVALUATE_SETS_H
#define TSR_CLI_EVALUATE_SETS_H
#include "cli/trained_model.h"
#include "train/eval_metrics.h"

/* A set with what the model makes of it. */
typedef struct {
  tsr_eval_set set;
  tsr_eval_request *requests;
  int requests_count;
  tsr_eval_outcome *outcomes;
  tsr_eval_metric metrics[TSR_EVAL_METRICS_MAX];
  int metrics_count;
} evaluated_set;

typedef struct {
  evaluated_set *sets;
  int count;
  int64_t max_length; /* tokens that the model reads at most */
  int64_t tokens;     /* that it has read */
  double seconds;
} evaluated_sets;

/* Of an opened model: reads the sets, loads the weights, scores, prints and writes the results. */
bool evaluate_sets(trained_model *m);

/* ---- evaluate_sets_report.c ---- */

/* The table on the standard output, and the files of --out and --log-samples. */
bool evaluate_sets_report(const trained_model *m, const evaluated_sets *results);

/* ---- what `evaluate` of labels has, too ---- */

/* What would fail behind all scores: a file in a folder that is none, or that cannot be written. */
bool evaluate_check_output(const app *a, const char *path);

#endif
