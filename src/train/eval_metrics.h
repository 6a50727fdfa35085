// SPDX-License-Identifier: Apache-2.0
/* What the scores of an evaluation set amount to, with standard errors. */
#ifndef TSR_TRAIN_EVAL_METRICS_H
#define TSR_TRAIN_EVAL_METRICS_H
#include "train/eval_scores.h"

typedef struct {
  const char *name;
  double value, error; /* error: the standard error; NaN of a single item */
} tsr_eval_metric;

/* What one item came to. */
typedef struct {
  const double *log_likelihoods;         /* of its choices; of a text their one sum over windows */
  int chosen, chosen_norm, chosen_bytes; /* of choices: the largest; for a character; for a byte */
  bool is_right;        /* `chosen` is the answer; of a completion: every token is greedy */
  int64_t words, bytes; /* of a text */
} tsr_eval_outcome;

/* An outcome for each item, in the arena. `requests` are those of the set in order. */
tsr_eval_outcome *tsr_eval_outcomes(
    tsr_arena *arena, const tsr_eval_set *set, const tsr_eval_request *requests, int count,
    const tsr_eval_score *scores);

/* The metrics, named and computed as in lm-evaluation-harness:
 *
 *   choice      acc, acc_norm (log-probabilities divided by characters), acc_bytes (by bytes)
 *   completion  acc (greedy match), perplexity (of completions: exp of minus the mean)
 *   text        word_perplexity, byte_perplexity, bits_per_byte
 *
 * Of several choices with one largest score the first counts. The error of an accuracy is the
 * sample's standard deviation (divisor n - 1) over sqrt(n). The others are estimated by the delta
 * method: of exp(-m), m a mean with standard error s, it is s exp(-m); of a quotient of sums r =
 * a / b, sqrt(n / (n - 1) sum (a_i - r b_i)^2) / b. (The harness resamples perplexity, and has no
 * error of the metrics of texts.) */
enum { TSR_EVAL_METRICS_MAX = 3 };
int tsr_eval_metrics(
    const tsr_eval_set *set, const tsr_eval_outcome *outcomes,
    tsr_eval_metric ret_metrics[TSR_EVAL_METRICS_MAX]);

#endif
