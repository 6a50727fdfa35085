// SPDX-License-Identifier: Apache-2.0
/* Losses: one number, this microbatch's part of the step's. */
#include "interpreter/rule.h"
#include <assert.h>

/* For the vocabulary split over ranks; here the loss node makes its own softmax. */
const tsr_interpreter_rule tsr_interpret_ce_stats = {.statistics = true};

/* inputs: logits, statistics, targets, step_scalars. The first `valid` logits of a row are real. */
static int64_t valid_logits(const tsr_interpreted *n) {
  int64_t valid = n->node->attr.ce_loss.valid;
  return valid ? valid : tsr_interpreted_columns(n, 0);
}

/* Of a row; negative: ignored. */
static int64_t target_of(const tsr_interpreted *n, int64_t row) {
  int64_t target = (int64_t)n->in[2][row];
  assert(target < valid_logits(n));
  return target;
}

static void forward_ce_loss(const tsr_interpreted *n) {
  int64_t V = tsr_interpreted_columns(n, 0), valid = valid_logits(n);
  n->out[0] = 0;
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++) {
    const double *x = n->in[0] + r * V;
    double log_sum = tsr_interpreter_softmax(n->saved + r * valid, x, valid);
    int64_t target = target_of(n, r);
    if (target >= 0) n->out[0] += (log_sum - x[target]) * n->step->inv_count;
  }
}

static void vjp_ce_loss(const tsr_interpreted *n) {
  int64_t V = tsr_interpreted_columns(n, 0), valid = valid_logits(n);
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++) {
    int64_t target = target_of(n, r);
    for (int64_t i = 0; i < valid && target >= 0; i++) {
      double p = tsr_interpreted_round(n, 0, r * V + i, n->saved[r * valid + i]);
      n->d_in[0][r * V + i] += n->d_out[0] * n->step->inv_count * (p - (i == target));
    }
  }
}

static int64_t saved_probabilities(const tsr_interpreted *n) {
  return tsr_interpreted_rows(n, 0) * valid_logits(n);
}
const tsr_interpreter_rule tsr_interpret_ce_loss = {
    .forward = forward_ce_loss, .vjp = vjp_ce_loss, .saved = saved_probabilities};

/* All elements of the step. */
static double elements(const tsr_interpreted *n) {
  return (double)(tsr_interpreted_size(n, 0) * n->step->microbatches);
}
static void forward_squared(const tsr_interpreted *n) {
  n->out[0] = 0;
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++) {
    double e = n->in[0][i] - n->in[1][i];
    n->out[0] += e * e / elements(n);
  }
}
static void vjp_squared(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++) {
    double de = 2 * (n->in[0][i] - n->in[1][i]) / elements(n) * n->d_out[0];
    n->d_in[0][i] += de;
    n->d_in[1][i] -= de;
  }
}
const tsr_interpreter_rule tsr_interpret_squared = {.forward = forward_squared, .vjp = vjp_squared};
