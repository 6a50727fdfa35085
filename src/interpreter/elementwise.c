// SPDX-License-Identifier: Apache-2.0
/* Element by element. Where the second input has only the last dimensions of the first, its index
 * goes round. */
#include "interpreter/rule.h"
#include <assert.h>
#include <math.h>

static int64_t size(const tsr_interpreted *n) { return tsr_interpreted_size(n, 0); }
static int64_t size2(const tsr_interpreted *n) { return tsr_interpreted_size(n, 1); }

static void forward_add(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->out[i] = n->in[0][i] + n->in[1][i % size2(n)];
}
static void vjp_add(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) {
    n->d_in[0][i] += n->d_out[i];
    n->d_in[1][i % size2(n)] += n->d_out[i];
  }
}
const tsr_interpreter_rule tsr_interpret_add = {.forward = forward_add, .vjp = vjp_add};

static void forward_sub(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->out[i] = n->in[0][i] - n->in[1][i];
}
static void vjp_sub(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) {
    n->d_in[0][i] += n->d_out[i];
    n->d_in[1][i] -= n->d_out[i];
  }
}
const tsr_interpreter_rule tsr_interpret_sub = {.forward = forward_sub, .vjp = vjp_sub};

static void forward_mul(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->out[i] = n->in[0][i] * n->in[1][i % size2(n)];
}
static void vjp_mul(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) {
    n->d_in[0][i] += n->d_out[i] * n->in[1][i % size2(n)];
    n->d_in[1][i % size2(n)] += n->d_out[i] * n->in[0][i];
  }
}
const tsr_interpreter_rule tsr_interpret_mul = {.forward = forward_mul, .vjp = vjp_mul};

static void forward_scale(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->out[i] = n->in[0][i] * n->node->attr.scale.factor;
}
static void vjp_scale(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->d_in[0][i] += n->d_out[i] * n->node->attr.scale.factor;
}
const tsr_interpreter_rule tsr_interpret_scale = {.forward = forward_scale, .vjp = vjp_scale};

/* ---- functions of one number: unary_<op>, and its derivative slope_<op>. y: the function's value
 * at x, which has been rounded where roundings are measured: of tanh and sigmoid little may be left
 * of the difference to 1 ---- */

static const double pi = 3.14159265358979323846;

static double unary_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double slope_sigmoid(double x, double y) {
  (void)x;
  return y * (1 - y);
}

static double unary_silu(double x) { return x * unary_sigmoid(x); }
static double slope_silu(double x, double y) {
  (void)y;
  return unary_sigmoid(x) * (1 + x * (1 - unary_sigmoid(x)));
}

/* x times the normal distribution function by its tanh approximation (Hendrycks, Gimpel, 2016). */
static double unary_gelu(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}
static double slope_gelu(double x, double y) {
  (void)y;
  double t = tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
}

static double normal_cdf(double x) { return 0.5 * (1 + erf(x / sqrt(2))); }
static double normal_pdf(double x) { return exp(-x * x / 2) / sqrt(2 * pi); }

static double unary_gelu_erf(double x) { return x * normal_cdf(x); }
static double slope_gelu_erf(double x, double y) {
  (void)y;
  return normal_cdf(x) + x * normal_pdf(x);
}

static double unary_relu(double x) { return x > 0 ? x : 0; }
static double slope_relu(double x, double y) {
  (void)y;
  return x > 0;
}

/* Primer's (So et al. 2021). */
static double unary_relu2(double x) { return x > 0 ? x * x : 0; }
static double slope_relu2(double x, double y) {
  (void)y;
  return x > 0 ? 2 * x : 0;
}

static double unary_tanh(double x) { return tanh(x); }
static double slope_tanh(double x, double y) {
  (void)x;
  return 1 - y * y;
}

/* Of unary ops. */
static const struct {
  double (*value)(double x);
  double (*slope)(double x, double y);
} functions[TSR_OPS] = {
#define OP(...)
#define UNARY(id, name) [TSR_OP_##id] = {unary_##name, slope_##name},
#define GATED(...)
#define GATED_DX(...)
#include "graph/ops.def"
#undef OP
};

static void forward_unary(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->out[i] = functions[n->node->op].value(n->in[0][i]);
}
static void vjp_unary(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++)
    n->d_in[0][i] += n->d_out[i] * functions[n->node->op].slope(n->in[0][i], n->out[i]);
}
const tsr_interpreter_rule tsr_interpret_unary = {.forward = forward_unary, .vjp = vjp_unary};

static void forward_gated(const tsr_interpreted *n) {
  tsr_op f = tsr_op_function(n->node->op);
  for (int64_t i = 0; i < size(n); i++) n->out[i] = functions[f].value(n->in[0][i]) * n->in[1][i];
}
static void vjp_gated(const tsr_interpreted *n) {
  tsr_op f = tsr_op_function(n->node->op);
  for (int64_t i = 0; i < size(n); i++) {
    double gate = n->in[0][i], up = n->in[1][i], y = functions[f].value(gate);
    n->d_in[0][i] += n->d_out[i] * functions[f].slope(gate, y) * up;
    n->d_in[1][i] += n->d_out[i] * y;
  }
}
const tsr_interpreter_rule tsr_interpret_gated = {.forward = forward_gated, .vjp = vjp_gated};

static double least(double a, double b) { return a < b ? a : b; }

/* gate and up, clamped, of element i. */
typedef struct {
  double gate, up, sigmoid; /* of alpha * gate */
} clamped;

static clamped clamped_at(const tsr_interpreted *n, int64_t i) {
  const tsr_clamped_swiglu_attrs *a = &n->node->attr.clamped_swiglu;
  clamped c = {least(n->in[0][i], a->limit), -least(-least(n->in[1][i], a->limit), a->limit), 0};
  c.sigmoid = 1 / (1 + exp(-a->alpha * c.gate));
  return c;
}

static void forward_clamped_swiglu(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) {
    clamped c = clamped_at(n, i);
    n->out[i] = c.gate * c.sigmoid * (c.up + 1);
  }
}
static void vjp_clamped_swiglu(const tsr_interpreted *n) {
  const tsr_clamped_swiglu_attrs *a = &n->node->attr.clamped_swiglu;
  for (int64_t i = 0; i < size(n); i++) {
    clamped c = clamped_at(n, i);
    double slope = c.sigmoid * (1 + a->alpha * c.gate * (1 - c.sigmoid));
    if (n->in[0][i] <= a->limit) n->d_in[0][i] += n->d_out[i] * slope * (c.up + 1);
    if (fabs(n->in[1][i]) <= a->limit) n->d_in[1][i] += n->d_out[i] * c.gate * c.sigmoid;
  }
}
const tsr_interpreter_rule tsr_interpret_clamped_swiglu = {
    .forward = forward_clamped_swiglu, .vjp = vjp_clamped_swiglu};

static int dropout_mask(const tsr_interpreted *n, double *ret_p, int64_t ret_shape[TSR_DIMS_MAX]) {
  *ret_p = tsr_node_dropout(n->node);
  for (int d = 0; d < n->out_type->ndim; d++) ret_shape[d] = n->out_type->shape[d];
  return n->out_type->ndim;
}
static void forward_dropout(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->out[i] = n->in[0][i] * (n->mask ? n->mask[i] : 1);
}
static void vjp_dropout(const tsr_interpreted *n) {
  for (int64_t i = 0; i < size(n); i++) n->d_in[0][i] += n->d_out[i] * (n->mask ? n->mask[i] : 1);
}
const tsr_interpreter_rule tsr_interpret_dropout = {
    .forward = forward_dropout, .vjp = vjp_dropout, .mask_shape = dropout_mask};
