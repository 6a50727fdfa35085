// SPDX-License-Identifier: Apache-2.0
/* Over the last dimension: norms and the softmax. */
#include "interpreter/rule.h"
#include <math.h>

static double mean_of(const double *x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i];
  return sum / (double)count;
}

/* y = z w (+ b), z = (x - mean) rstd; the mean of an RMS norm is 0. */
typedef struct {
  double mean, rstd;
} moments;

static moments moments_of(const double *x, int64_t count, bool centered, double eps) {
  double mean = centered ? mean_of(x, count) : 0, variance = 0;
  for (int64_t i = 0; i < count; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)count;
  return (moments){mean, 1 / sqrt(variance + eps)};
}

/* What feature i is multiplied by. */
static double weight(const tsr_interpreted *n, int64_t i) {
  bool minus_1 = n->node->op == TSR_OP_RMSNORM && n->node->attr.rmsnorm.zero_centered;
  return n->in[1][i] + (minus_1 ? 1 : 0);
}

static void forward_norm(const tsr_interpreted *n, bool centered) {
  int64_t C = tsr_interpreted_columns(n, 0);
  bool has_bias = n->node->inputs_count == 3;
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++) {
    const double *x = n->in[0] + r * C;
    moments m = moments_of(x, C, centered, n->node->attr.norm.eps);
    m.mean = tsr_interpreted_round(n, 0, r, m.mean);
    for (int64_t i = 0; i < C; i++)
      n->out[r * C + i] = (x[i] - m.mean) * m.rstd * weight(n, i) + (has_bias ? n->in[2][i] : 0);
  }
}

/* With dz = dy w: dx = rstd (dz - z mean(dz z)), less rstd mean(dz) where x is centered. */
static void vjp_norm(const tsr_interpreted *n, bool centered) {
  int64_t C = tsr_interpreted_columns(n, 0);
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++) {
    const double *x = n->in[0] + r * C, *dy = n->d_out + r * C;
    moments m = moments_of(x, C, centered, n->node->attr.norm.eps);
    m.mean = tsr_interpreted_round(n, 0, r, m.mean);
    double mean_dz = 0, mean_dz_z = 0;
    for (int64_t i = 0; i < C; i++) {
      mean_dz += dy[i] * weight(n, i) / (double)C;
      mean_dz_z += dy[i] * weight(n, i) * (x[i] - m.mean) * m.rstd / (double)C;
    }
    mean_dz = tsr_interpreted_round(n, 1, r, mean_dz);
    mean_dz_z = tsr_interpreted_round(n, 2, r, mean_dz_z);
    for (int64_t i = 0; i < C; i++) {
      double z = (x[i] - m.mean) * m.rstd;
      n->d_in[0][r * C + i] +=
          m.rstd * (dy[i] * weight(n, i) - z * mean_dz_z - (centered ? mean_dz : 0));
      n->d_in[1][i] += dy[i] * z;
      if (n->node->inputs_count == 3) n->d_in[2][i] += dy[i];
    }
  }
}

static void forward_layernorm(const tsr_interpreted *n) { forward_norm(n, true); }
static void vjp_layernorm(const tsr_interpreted *n) { vjp_norm(n, true); }
const tsr_interpreter_rule tsr_interpret_layernorm = {
    .forward = forward_layernorm, .vjp = vjp_layernorm};

static void forward_rmsnorm(const tsr_interpreted *n) { forward_norm(n, false); }
static void vjp_rmsnorm(const tsr_interpreted *n) { vjp_norm(n, false); }
const tsr_interpreter_rule tsr_interpret_rmsnorm = {.forward = forward_rmsnorm, .vjp = vjp_rmsnorm};

double tsr_interpreter_softmax(double *y, const double *x, int64_t n) {
  double max = x[0], sum = 0;
  for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
  for (int64_t i = 0; i < n; i++) sum += y[i] = exp(x[i] - max);
  for (int64_t i = 0; i < n; i++) y[i] /= sum;
  return max + log(sum);
}

static void forward_softmax(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 0);
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++)
    tsr_interpreter_softmax(n->out + r * C, n->in[0] + r * C, C);
}

static void vjp_softmax(const tsr_interpreted *n) {
  int64_t C = tsr_interpreted_columns(n, 0);
  for (int64_t r = 0; r < tsr_interpreted_rows(n, 0); r++) {
    const double *y = n->out + r * C, *dy = n->d_out + r * C;
    double dot = 0;
    for (int64_t i = 0; i < C; i++) dot += y[i] * dy[i];
    dot = tsr_interpreted_round(n, 0, r, dot);
    for (int64_t i = 0; i < C; i++) n->d_in[0][r * C + i] += y[i] * (dy[i] - dot);
  }
}
const tsr_interpreter_rule tsr_interpret_softmax = {.forward = forward_softmax, .vjp = vjp_softmax};
