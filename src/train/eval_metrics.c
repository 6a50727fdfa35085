// SPDX-License-Identifier: Apache-2.0
#include "train/eval_metrics.h"
#include "base/utf8.h"
#include <math.h>
#include <string.h>

/* ---- texts ---- */

/* Whether Python's regular expressions have it in \s. */
static bool is_space(uint32_t code) {
  return tsr_utf8_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

static int64_t count_characters(const char *text) {
  int64_t count = 0;
  for (; *text; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
  return count;
}

/* The pieces between runs of white space, which may be empty at both ends: len(re.split(r"\s+")).
 */
static int64_t count_words(const char *text) {
  int64_t count = 1;
  bool in_space = false;
  for (size_t at = 0, length = strlen(text); at < length;) {
    uint32_t code = 0;
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    bool space = bytes && is_space(code);
    count += space && !in_space;
    in_space = space;
    at += bytes ? (size_t)bytes : 1;
  }
  return count;
}

/* ---- outcomes ---- */

typedef enum { BY_SUM, BY_CHARACTER, BY_BYTE } divisor;

/* The first of the largest. */
static int choose(const tsr_eval_item *item, const double *scores, divisor by) {
  int best = 0;
  double most = -INFINITY;
  for (int c = 0; c < item->choices_count; c++) {
    double size = by == BY_SUM         ? 1
                  : by == BY_CHARACTER ? (double)count_characters(item->choices[c])
                                       : (double)strlen(item->choices[c]);
    if (scores[c] / size > most) {
      most = scores[c] / size;
      best = c;
    }
  }
  return best;
}

tsr_eval_outcome *tsr_eval_outcomes(
    tsr_arena *arena, const tsr_eval_set *set, const tsr_eval_request *requests, int count,
    const tsr_eval_score *scores) {
  tsr_eval_outcome *outcomes = tsr_arena_array(arena, tsr_eval_outcome, set->count);
  int at = 0;
  for (int i = 0; i < set->count; i++) {
    const tsr_eval_item *item = &set->items[i];
    tsr_eval_outcome *o = &outcomes[i];
    double *sums = tsr_arena_array(arena, double, item->choices_count);
    o->is_right = true;
    for (; at < count && requests[at].item == i; at++) {
      sums[requests[at].choice] += scores[at].log_likelihood;
      o->is_right &= scores[at].is_greedy;
    }
    o->log_likelihoods = sums;
    o->chosen = choose(item, sums, BY_SUM);
    o->chosen_norm = choose(item, sums, BY_CHARACTER);
    o->chosen_bytes = choose(item, sums, BY_BYTE);
    if (set->kind == TSR_EVAL_CHOICE) o->is_right = o->chosen == item->answer;
    o->words = count_words(item->choices[0]);
    o->bytes = (int64_t)strlen(item->choices[0]);
  }
  return outcomes;
}

/* ---- metrics ---- */

typedef double number_of(const tsr_eval_set *set, const tsr_eval_outcome *outcomes, int item);

static double acc(const tsr_eval_set *set, const tsr_eval_outcome *o, int i) {
  (void)set;
  return o[i].is_right;
}
static double acc_norm(const tsr_eval_set *set, const tsr_eval_outcome *o, int i) {
  return o[i].chosen_norm == set->items[i].answer;
}
static double acc_bytes(const tsr_eval_set *set, const tsr_eval_outcome *o, int i) {
  return o[i].chosen_bytes == set->items[i].answer;
}
static double one(const tsr_eval_set *set, const tsr_eval_outcome *o, int i) {
  (void)set, (void)o, (void)i;
  return 1;
}
static double loss(const tsr_eval_set *set, const tsr_eval_outcome *o, int i) {
  (void)set;
  return -o[i].log_likelihoods[0];
}
static double words(const tsr_eval_set *set, const tsr_eval_outcome *o, int i) {
  (void)set;
  return (double)o[i].words;
}
static double bytes(const tsr_eval_set *set, const tsr_eval_outcome *o, int i) {
  (void)set;
  return (double)o[i].bytes;
}

/* The quotient of two sums over the items; with `below` one, a mean. */
static tsr_eval_metric quotient(
    const tsr_eval_set *set, const tsr_eval_outcome *o, const char *name, number_of *above,
    number_of *below) {
  double a = 0, b = 0, squares = 0, n = set->count;
  for (int i = 0; i < set->count; i++) {
    a += above(set, o, i);
    b += below(set, o, i);
  }
  for (int i = 0; i < set->count; i++) {
    double rest = above(set, o, i) - a / b * below(set, o, i);
    squares += rest * rest;
  }
  double error = set->count > 1 ? sqrt(n / (n - 1) * squares) / b : NAN;
  return (tsr_eval_metric){name, a / b, error};
}

static tsr_eval_metric exponential(tsr_eval_metric m) {
  return (tsr_eval_metric){m.name, exp(m.value), m.error * exp(m.value)};
}

static tsr_eval_metric bits(tsr_eval_metric m) {
  return (tsr_eval_metric){m.name, m.value / log(2), m.error / log(2)};
}

int tsr_eval_metrics(
    const tsr_eval_set *set, const tsr_eval_outcome *o,
    tsr_eval_metric ret_metrics[TSR_EVAL_METRICS_MAX]) {
  switch (set->kind) {
  case TSR_EVAL_CHOICE:
    ret_metrics[0] = quotient(set, o, "acc", acc, one);
    ret_metrics[1] = quotient(set, o, "acc_norm", acc_norm, one);
    ret_metrics[2] = quotient(set, o, "acc_bytes", acc_bytes, one);
    return 3;
  case TSR_EVAL_COMPLETION:
    ret_metrics[0] = quotient(set, o, "acc", acc, one);
    ret_metrics[1] = exponential(quotient(set, o, "perplexity", loss, one));
    return 2;
  default:
    ret_metrics[0] = exponential(quotient(set, o, "word_perplexity", loss, words));
    ret_metrics[1] = exponential(quotient(set, o, "byte_perplexity", loss, bytes));
    ret_metrics[2] = bits(quotient(set, o, "bits_per_byte", loss, bytes));
    return 3;
  }
}
