// SPDX-License-Identifier: Apache-2.0
/* Mixture of experts, by definition. Rows of experts are those of all experts, by (expert, token);
 * a plan (rows, 2) has of each its slot, token * k + choice, and its expert. */
#include "interpreter/rule.h"
#include "graph/routing.h"
#include <assert.h>
#include <math.h>

/* ---- the choice ---- */

/* The key by which expert e of a token is chosen. */
static double key_of(const tsr_interpreted *n, const double *scores, int64_t e) {
  return scores[e] + (tsr_choice_has_bias(n->node) ? n->in[1][e] : 0);
}

/* The index of the largest key that is not taken, the first of equal ones; -1: all are taken. */
static int64_t largest(const double *keys, const bool *taken, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; i++)
    if (!taken[i] && (best < 0 || keys[i] > keys[best])) best = i;
  return best;
}

enum { EXPERTS_MAX = 4096 };

/* Marks the experts that cannot be chosen: those of groups that are not kept. */
static void
drop_groups(const tsr_choose_experts_attrs *a, const double *keys, int64_t experts, bool *taken) {
  double of_group[EXPERTS_MAX];
  bool kept[EXPERTS_MAX] = {false};
  int64_t each = experts / a->groups;
  for (int64_t g = 0; g < a->groups; g++) {
    bool added[EXPERTS_MAX] = {false};
    of_group[g] = 0;
    for (int64_t i = 0; i < a->group_top && i < each; i++) {
      int64_t e = largest(keys + g * each, added, each);
      added[e] = true;
      of_group[g] += keys[g * each + e];
    }
  }
  for (int64_t i = 0; i < a->kept_groups; i++) kept[largest(of_group, kept, a->groups)] = true;
  for (int64_t e = 0; e < experts; e++) taken[e] = !kept[e / each];
}

static void forward_choice_of_token(const tsr_interpreted *n, int64_t token) {
  const tsr_choose_experts_attrs *a = &n->node->attr.choose_experts;
  int64_t experts = tsr_interpreted_columns(n, 0), count = 0;
  double keys[EXPERTS_MAX];
  bool out_of[EXPERTS_MAX] = {false}, chosen[EXPERTS_MAX] = {false};
  int recorded = tsr_choice_recorded(n->node);
  for (int64_t i = 0; recorded >= 0 && i < a->k; i++)
    n->out[token * a->k + i] = n->in[recorded][token * a->k + i];
  if (recorded >= 0) return;
  assert(experts <= EXPERTS_MAX);
  for (int64_t e = 0; e < experts; e++) keys[e] = key_of(n, n->in[0] + token * experts, e);
  if (a->groups > 1) drop_groups(a, keys, experts, out_of);
  for (int64_t i = 0; i < a->k; i++) {
    int64_t e = largest(keys, out_of, experts);
    out_of[e] = chosen[e] = true;
  }
  for (int64_t e = 0; e < experts; e++)
    if (chosen[e]) n->out[token * a->k + count++] = (double)e;
}

/* Whether a slot is one of the first `slots` of its batch unit's for that expert: by position, or
 * by the largest priority. */
static bool has_row(const tsr_interpreted *n, int64_t slot, int64_t expert) {
  tsr_routed r = n->out_type->routed;
  const double *priority = n->node->inputs_count > 2 ? n->in[1] : NULL;
  int64_t each = r.unit_tokens * r.choices, begin = slot / (each ? each : 1) * each, before = 0;
  for (int64_t other = begin; r.slots && other < begin + each; other++) {
    if ((int64_t)n->in[0][other] != expert || other == slot) continue;
    bool first = !priority ? other < slot
                           : priority[other] > priority[slot] ||
                                 (priority[other] == priority[slot] && other < slot);
    before += first;
  }
  return !r.slots || before < r.slots;
}

/* (slot, expert) of each row, by expert and slot; behind the last -1 and -1. Inputs are the choices
 * (…, k), with a capacity what decides, and a weight. */
static void forward_plan(const tsr_interpreted *n) {
  int64_t row = 0, rows = n->out_type->shape[0];
  for (int64_t e = 0; e < n->out_type->routed.experts; e++)
    for (int64_t slot = 0; slot < tsr_interpreted_size(n, 0); slot++) {
      if ((int64_t)n->in[0][slot] != e || !has_row(n, slot, e)) continue;
      n->out[2 * row] = (double)slot;
      n->out[2 * row++ + 1] = (double)e;
    }
  for (; row < rows; row++) n->out[2 * row] = n->out[2 * row + 1] = -1;
}

static void forward_choice(const tsr_interpreted *n) {
  if (n->node->op == TSR_OP_EXPERT_PLAN) {
    forward_plan(n);
    return;
  }
  for (int64_t t = 0; t < tsr_interpreted_rows(n, 0); t++) forward_choice_of_token(n, t);
}

/* A choice has no gradient. */
static void vjp_choice(const tsr_interpreted *n) { (void)n; }
const tsr_interpreter_rule tsr_interpret_choice = {.forward = forward_choice, .vjp = vjp_choice};

/* ---- weights: of the chosen scores s, scale * s / sum(s), or their softmax ---- */

static double sum_of(const double *x, int64_t k) {
  double sum = 0;
  for (int64_t j = 0; j < k; j++) sum += x[j];
  return sum;
}

/* The chosen scores of a token. */
static void take_chosen(const tsr_interpreted *n, int64_t token, int64_t k, double *ret) {
  int64_t experts = tsr_interpreted_columns(n, 0);
  for (int64_t j = 0; j < k; j++)
    ret[j] = n->in[0][token * experts + (int64_t)n->in[1][token * k + j]];
}

enum { TINY_EXPONENT = -20 }; /* of ten: what is added to a sum that may be 0 */

static double divisor_of(const double *chosen, int64_t k) {
  return sum_of(chosen, k) + pow(10, TINY_EXPONENT);
}

static void forward_weights(const tsr_interpreted *n) {
  const tsr_expert_weights_attrs *a = &n->node->attr.expert_weights;
  int64_t k = tsr_interpreted_columns(n, 1);
  for (int64_t t = 0; t < tsr_interpreted_rows(n, 1); t++) {
    double *w = n->out + t * k;
    take_chosen(n, t, k, w);
    if (a->softmax) tsr_interpreter_softmax(w, w, k);
    double divisor = a->normalize ? divisor_of(w, k) : 1;
    for (int64_t j = 0; j < k; j++) w[j] = a->scale * w[j] / divisor;
  }
}

static void vjp_weights(const tsr_interpreted *n) {
  const tsr_expert_weights_attrs *a = &n->node->attr.expert_weights;
  int64_t k = tsr_interpreted_columns(n, 1), experts = tsr_interpreted_columns(n, 0);
  double s[EXPERTS_MAX], ds[EXPERTS_MAX];
  for (int64_t t = 0; t < tsr_interpreted_rows(n, 1); t++) {
    const double *dw = n->d_out + t * k;
    take_chosen(n, t, k, s);
    if (a->softmax) tsr_interpreter_softmax(s, s, k);
    double divisor = a->normalize ? divisor_of(s, k) : 1, dot = 0;
    for (int64_t j = 0; j < k; j++) dot += a->scale * dw[j] * s[j] / divisor;
    for (int64_t j = 0; j < k; j++) ds[j] = (a->scale * dw[j] - (a->normalize ? dot : 0)) / divisor;
    double inner = 0;
    for (int64_t j = 0; j < k; j++) inner += ds[j] * s[j];
    for (int64_t j = 0; j < k; j++)
      n->d_in[0][t * experts + (int64_t)n->in[1][t * k + j]] +=
          a->softmax ? s[j] * (ds[j] - inner) : ds[j];
  }
}
const tsr_interpreter_rule tsr_interpret_expert_weights = {
    .forward = forward_weights, .vjp = vjp_weights};

/* ---- rows ---- */

/* Rows in use. */
static int64_t rows_in(const double *plan, int64_t rows) {
  while (rows > 0 && plan[2 * (rows - 1)] < 0) rows--;
  return rows;
}
static int64_t slot_of(const double *plan, int64_t row) { return (int64_t)plan[2 * row]; }
static int64_t expert_of(const double *plan, int64_t row) { return (int64_t)plan[2 * row + 1]; }

/* x (…, C), plan → rows (R, C) */
static void forward_permute(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 0), k = n->type[1]->routed.choices;
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++) n->out[i] = 0;
  for (int64_t r = 0; r < rows_in(n->in[1], n->out_type->shape[0]); r++)
    for (int64_t i = 0; i < C; i++) n->out[r * C + i] = n->in[0][slot_of(n->in[1], r) / k * C + i];
}

static void vjp_permute(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 0), k = n->type[1]->routed.choices;
  for (int64_t r = 0; r < rows_in(n->in[1], n->out_type->shape[0]); r++)
    for (int64_t i = 0; i < C; i++)
      n->d_in[0][slot_of(n->in[1], r) / k * C + i] += n->d_out[r * C + i];
}
const tsr_interpreter_rule tsr_interpret_permute_experts = {
    .forward = forward_permute, .vjp = vjp_permute};

/* rows (R, K), w (E, N, K), plan → (R, N) */
static void forward_expert_linear(const tsr_interpreted *n) {
  int64_t K = n->type[1]->shape[2], N = n->type[1]->shape[1];
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++) n->out[i] = 0;
  for (int64_t r = 0; r < rows_in(n->in[2], n->out_type->shape[0]); r++)
    for (int64_t j = 0; j < N; j++) {
      const double *w = n->in[1] + (expert_of(n->in[2], r) * N + j) * K, *x = n->in[0] + r * K;
      double sum = 0;
      for (int64_t k = 0; k < K; k++) sum += x[k] * w[k];
      n->out[r * N + j] = sum;
    }
}

static void vjp_expert_linear(const tsr_interpreted *n) {
  int64_t K = n->type[1]->shape[2], N = n->type[1]->shape[1];
  for (int64_t r = 0; r < rows_in(n->in[2], n->out_type->shape[0]); r++)
    for (int64_t j = 0; j < N; j++) {
      int64_t at = (expert_of(n->in[2], r) * N + j) * K;
      double dy = n->d_out[r * N + j];
      for (int64_t k = 0; k < K; k++) {
        n->d_in[0][r * K + k] += dy * n->in[1][at + k];
        n->d_in[1][at + k] += dy * n->in[0][r * K + k];
      }
    }
}
const tsr_interpreter_rule tsr_interpret_expert_linear = {
    .forward = forward_expert_linear, .vjp = vjp_expert_linear};

/* rows (R, N), b (E, N), plan → (R, N) */
static void forward_expert_add(const tsr_interpreted *n) {
  int64_t N = n->type[1]->shape[1];
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++) n->out[i] = 0;
  for (int64_t r = 0; r < rows_in(n->in[2], n->out_type->shape[0]); r++)
    for (int64_t j = 0; j < N; j++)
      n->out[r * N + j] = n->in[0][r * N + j] + n->in[1][expert_of(n->in[2], r) * N + j];
}

static void vjp_expert_add(const tsr_interpreted *n) {
  int64_t N = n->type[1]->shape[1];
  for (int64_t r = 0; r < rows_in(n->in[2], n->out_type->shape[0]); r++)
    for (int64_t j = 0; j < N; j++) {
      n->d_in[0][r * N + j] += n->d_out[r * N + j];
      n->d_in[1][expert_of(n->in[2], r) * N + j] += n->d_out[r * N + j];
    }
}
const tsr_interpreter_rule tsr_interpret_expert_add = {
    .forward = forward_expert_add, .vjp = vjp_expert_add};

/* rows (R, C), weights (…, k), plan → (…, C) */
static void forward_combine(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 0), k = n->type[2]->routed.choices;
  for (int64_t i = 0; i < tsr_value_elements(n->out_type); i++) n->out[i] = 0;
  for (int64_t r = 0; r < rows_in(n->in[2], n->type[0]->shape[0]); r++) {
    int64_t slot = slot_of(n->in[2], r);
    for (int64_t i = 0; i < C; i++)
      n->out[slot / k * C + i] += n->in[1][slot] * n->in[0][r * C + i];
  }
}

static void vjp_combine(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 0), k = n->type[2]->routed.choices;
  for (int64_t r = 0; r < rows_in(n->in[2], n->type[0]->shape[0]); r++) {
    int64_t slot = slot_of(n->in[2], r);
    for (int64_t i = 0; i < C; i++) {
      double dy = n->d_out[slot / k * C + i];
      n->d_in[0][r * C + i] += dy * n->in[1][slot];
      n->d_in[1][slot] += dy * n->in[0][r * C + i];
    }
  }
}
const tsr_interpreter_rule tsr_interpret_combine_experts = {
    .forward = forward_combine, .vjp = vjp_combine};
