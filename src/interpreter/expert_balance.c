// SPDX-License-Identifier: Apache-2.0
/* Losses that nodes of a mixture of experts add to the step's, and their gradients, by definition:
 * their results are their first inputs.
 *
 * balance_loss: over the T tokens that are counted, with counts c of each of E experts, k choices a
 * token, and scores s (of a distribution: s / sum(s) where it normalizes),
 *     L = coefficient * sum over e of f_e P_e,  f_e = E / (k T) c_e,  P_e = 1 / T sum of s_e
 * (Fedus et al. 2021; of sequences DeepSeek-V3's, the mean over them). Hugging Face's
 * load_balancing_loss_func has no 1 / k, and counts the tokens of all layers as T.
 * router_z_loss: L = coefficient * mean of logsumexp(logits)^2 (Zoph et al. 2022). */
#include "interpreter/rule.h"
#include <math.h>

static int64_t experts_of(const tsr_interpreted *n) { return tsr_interpreted_columns(n, 0); }
static int64_t tokens_of(const tsr_interpreted *n) { return tsr_interpreted_rows(n, 0); }
static double tokens_of_step(const tsr_interpreted *n) {
  return (double)(tokens_of(n) * n->step->microbatches);
}

/* How many of the tokens [begin, end) of a node chose an expert. */
static double count(const tsr_interpreted *n, int64_t begin, int64_t end, int64_t expert) {
  int64_t k = tsr_interpreted_columns(n, 1);
  double found = 0;
  for (int64_t slot = begin * k; slot < end * k; slot++) found += (int64_t)n->in[1][slot] == expert;
  return found;
}

static bool is_forward(const tsr_interpreted *n) {
  return n->node->op == TSR_OP_BALANCE_LOSS &&
         n->node->attr.balance_loss.per == TSR_BALANCE_FORWARD;
}

/* The weight of a token's score of an expert in the loss. */
static double slope(const tsr_interpreted *n, int64_t token, int64_t expert) {
  const tsr_balance_loss_attrs *a = &n->node->attr.balance_loss;
  double E = (double)experts_of(n), k = (double)tsr_interpreted_columns(n, 1);
  double all = tokens_of_step(n);
  if (a->per == TSR_BALANCE_SEQUENCE) {
    int64_t T = n->type[0]->shape[1], begin = token / T * T;
    return a->coefficient * E / (k * (double)T) * count(n, begin, begin + T, expert) / all;
  }
  if (a->per == TSR_BALANCE_STEP) return a->coefficient * E / (k * all) * n->in[2][expert] / all;
  double chosen = 0, tokens = 0;
  for (int i = 0; i < n->all_count; i++)
    if (is_forward(&n->all[i])) {
      chosen += count(&n->all[i], 0, tokens_of(&n->all[i]), expert);
      tokens += (double)tokens_of(&n->all[i]);
    }
  return a->coefficient * E * chosen / (tokens * tokens);
}

static double row_sum(const tsr_interpreted *n, int64_t token) {
  double sum = 0;
  if (!n->node->attr.balance_loss.normalize) return 1;
  for (int64_t e = 0; e < experts_of(n); e++) sum += n->in[0][token * experts_of(n) + e];
  return sum;
}

static void forward_same(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++) n->out[i] = n->in[0][i];
}

static double balance_of_token(const tsr_interpreted *n, int64_t token) {
  double sum = 0;
  for (int64_t e = 0; e < experts_of(n); e++)
    sum += slope(n, token, e) * n->in[0][token * experts_of(n) + e] / row_sum(n, token);
  return sum;
}

static double balance_loss(const tsr_interpreted *n) {
  double sum = 0;
  for (int64_t t = 0; t < tokens_of(n); t++) sum += balance_of_token(n, t);
  return sum;
}

static void vjp_balance(const tsr_interpreted *n) {
  bool normalizes = n->node->attr.balance_loss.normalize;
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++) n->d_in[0][i] += n->d_out[i];
  for (int64_t t = 0; t < tokens_of(n); t++) {
    double sum = row_sum(n, t), inner = normalizes ? balance_of_token(n, t) : 0;
    for (int64_t e = 0; e < experts_of(n); e++)
      n->d_in[0][t * experts_of(n) + e] += (slope(n, t, e) - inner) / sum;
  }
}
const tsr_interpreter_rule tsr_interpret_balance_loss = {
    .forward = forward_same, .vjp = vjp_balance, .loss = balance_loss};

static double log_sum(const double *x, int64_t n) {
  double max = x[0], sum = 0;
  for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
  for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
  return max + log(sum);
}

static double z_loss(const tsr_interpreted *n) {
  double sum = 0, factor = n->node->attr.router_z_loss.coefficient / tokens_of_step(n);
  for (int64_t t = 0; t < tokens_of(n); t++)
    sum += factor * pow(log_sum(n->in[0] + t * experts_of(n), experts_of(n)), 2);
  return sum;
}

static void vjp_z_loss(const tsr_interpreted *n) {
  double factor = 2 * n->node->attr.router_z_loss.coefficient / tokens_of_step(n);
  for (int64_t t = 0; t < tokens_of(n); t++) {
    const double *x = n->in[0] + t * experts_of(n);
    double z = log_sum(x, experts_of(n));
    for (int64_t e = 0; e < experts_of(n); e++)
      n->d_in[0][t * experts_of(n) + e] +=
          n->d_out[t * experts_of(n) + e] + factor * z * exp(x[e] - z);
  }
}
const tsr_interpreter_rule tsr_interpret_router_z_loss = {
    .forward = forward_same, .vjp = vjp_z_loss, .loss = z_loss};
