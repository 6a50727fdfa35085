// SPDX-License-Identifier: Apache-2.0
#include "interpreter/interpreter.h"
#include "interpreter/rule.h"
#include <assert.h>
#include <string.h>

struct tsr_interpreter {
  int values_count, nodes_count, params_count, loss;
  tsr_value *values;
  tsr_node *nodes;
  int *params; /* the value of each */
  double **data, **gradients;
  tsr_interpreted *calls; /* per node */
  tsr_interpreter_step step;
};

/* Ops that only passes make: those without a gradient. */
static const tsr_interpreter_rule tsr_interpret_none = {0};

/* An op that a forward graph can have has a gradient, and its rule here has that gradient's name:
 * one that was forgotten does not compile. */
static const tsr_interpreter_rule *rule_of(tsr_op op) {
  static const tsr_interpreter_rule *const rules[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, ...)                        \
  &tsr_interpret_##gradient,
#include "graph/ops.def"
#undef OP
  };
  return rules[op];
}

/* ---- memory ---- */

static bool has_data(const tsr_interpreter *t, const tsr_value *v) {
  if (v->kind == TSR_VALUE_NODE)
    return v->output == 0 && !rule_of(t->nodes[v->node].op)->statistics;
  return v->kind == TSR_VALUE_INPUT || v->kind == TSR_VALUE_CONST || v->kind == TSR_VALUE_PARAM;
}

/* A value has one dimension. */
static void fill_padding_mask(double *x, const tsr_value *v) {
  tsr_padding p = {0, (int64_t)v->init->a, (int64_t)v->init->b};
  for (int64_t i = 0; i < v->shape[0]; i++) x[i] = 0;
  for (tsr_real_run run = {0}; tsr_padding_next(&p, v->shape[0], 0, v->shape[0], &run);)
    for (int64_t i = 0; i < run.size; i++) x[run.at + i] = 1;
}

static void add_value(tsr_interpreter *t, tsr_arena *arena, int value) {
  const tsr_value *v = &t->values[value];
  if (v->kind == TSR_VALUE_PARAM) t->params[v->param] = value;
  if (!has_data(t, v)) return;
  t->data[value] = tsr_arena_array(arena, double, tsr_value_elements(v));
  if (v->dtype != TSR_I32)
    t->gradients[value] = tsr_arena_array(arena, double, tsr_value_elements(v));
  if (v->kind == TSR_VALUE_CONST && v->init->kind == TSR_INIT_PADDING_MASK)
    fill_padding_mask(t->data[value], v);
  else if (v->kind == TSR_VALUE_CONST) tsr_interpreter_rope_table(t->data[value], v);
}

static void add_node(tsr_interpreter *t, tsr_arena *arena, int node) {
  const tsr_node *n = &t->nodes[node];
  const tsr_interpreter_rule *rule = rule_of(n->op);
  assert(n->section == TSR_FORWARD && n->inputs_count <= TSR_CALL_INPUTS_MAX);
  assert((rule->forward || rule->statistics) && "an op that only passes make");
  int out = n->outputs[0];
  tsr_interpreted *c = &t->calls[node];
  *c = (tsr_interpreted){.node = n, .step = &t->step, .out_type = &t->values[out]};
  c->all = t->calls;
  c->all_count = t->nodes_count;
  c->out = t->data[out];
  c->d_out = t->gradients[out];
  for (int i = 0; i < n->inputs_count; i++) {
    c->type[i] = &t->values[n->inputs[i]];
    c->in[i] = t->data[n->inputs[i]];
    c->d_in[i] = t->gradients[n->inputs[i]];
  }
  if (rule->saved) c->saved = tsr_arena_array(arena, double, rule->saved(c));
  if (!rule->mask_shape) return;
  double p;
  int64_t shape[TSR_DIMS_MAX], size = 1;
  int ndim = rule->mask_shape(c, &p, shape);
  for (int d = 0; d < ndim; d++) size *= shape[d];
  if (p > 0) c->mask = tsr_arena_array(arena, double, size);
}

tsr_interpreter *tsr_interpreter_new(tsr_arena *arena, const tsr_graph *forward) {
  tsr_interpreter *t = tsr_arena_alloc(arena, sizeof *t);
  t->values_count = forward->values_count;
  t->nodes_count = forward->nodes_count;
  t->params_count = forward->params_count;
  t->loss = forward->loss;
  t->values = tsr_arena_array(arena, tsr_value, t->values_count);
  t->nodes = tsr_arena_array(arena, tsr_node, t->nodes_count);
  t->params = tsr_arena_array(arena, int, t->params_count);
  t->data = tsr_arena_array(arena, double *, t->values_count);
  t->gradients = tsr_arena_array(arena, double *, t->values_count);
  t->calls = tsr_arena_array(arena, tsr_interpreted, t->nodes_count);
  for (int v = 0; v < t->values_count; v++) t->values[v] = forward->values[v];
  for (int i = 0; i < t->nodes_count; i++) t->nodes[i] = forward->nodes[i];
  for (int v = 0; v < t->values_count; v++) add_value(t, arena, v);
  for (int i = 0; i < t->nodes_count; i++) add_node(t, arena, i);
  return t;
}

double *tsr_interpreter_value(tsr_interpreter *t, int value) {
  assert(value >= 0 && value < t->values_count);
  return t->data[value];
}

double *tsr_interpreter_param(tsr_interpreter *t, int param) {
  assert(param >= 0 && param < t->params_count);
  return t->data[t->params[param]];
}

const double *tsr_interpreter_gradient(const tsr_interpreter *t, int param) {
  assert(param >= 0 && param < t->params_count);
  return t->gradients[t->params[param]];
}

double tsr_interpreter_loss(const tsr_interpreter *t) {
  assert(t->loss >= 0);
  return t->data[t->loss][0];
}

double tsr_interpreter_added_loss(const tsr_interpreter *t) {
  double sum = 0;
  for (int i = 0; i < t->nodes_count; i++) {
    const tsr_interpreter_rule *rule = rule_of(t->nodes[i].op);
    if (rule->loss) sum += rule->loss(&t->calls[i]);
  }
  return sum;
}

/* ---- forward and backward ---- */

static void fill_mask(const tsr_interpreted *c) {
  if (!c->mask) return;
  double p;
  int64_t shape[TSR_DIMS_MAX];
  int ndim = rule_of(c->node->op)->mask_shape(c, &p, shape);
  assert(c->step->mask && "dropout needs a mask");
  c->step->mask(c->step->mask_context, c->node, ndim, shape, c->mask);
}

static void round_result(const tsr_interpreter *t, int node, bool gradient) {
  int value = t->nodes[node].outputs[0];
  double *x = gradient ? t->gradients[value] : t->data[value];
  if (!(t->step.rounding > 0) || !x) return;
  uint64_t which = 8 * (uint64_t)value + (gradient ? TSR_ROUND_GRADIENT : TSR_ROUND_RESULT);
  for (int64_t i = 0; i < tsr_value_elements(&t->values[value]); i++)
    x[i] = tsr_interpreter_round(&t->step, which, i, x[i]);
}

/* The gradients of several readers of a value are summed; large parts may cancel out later. */
static void round_sums(const tsr_interpreter *t, int node) {
  const tsr_node *n = t->calls[node].node;
  for (int k = 0; k < n->inputs_count && t->step.rounding > 0; k++) {
    int value = n->inputs[k];
    double *x = t->gradients[value];
    uint64_t which = 8 * (uint64_t)value + TSR_ROUND_SUM + ((uint64_t)node << 20);
    for (int64_t i = 0; x && i < tsr_value_elements(&t->values[value]); i++)
      x[i] = tsr_interpreter_round(&t->step, which, i, x[i]);
  }
}

void tsr_interpreter_forward(tsr_interpreter *t, const tsr_interpreter_step *step) {
  t->step = *step;
  if (!t->step.microbatches) t->step.microbatches = 1;
  for (int i = 0; i < t->nodes_count; i++) {
    const tsr_interpreter_rule *rule = rule_of(t->nodes[i].op);
    if (rule->statistics) continue;
    fill_mask(&t->calls[i]);
    rule->forward(&t->calls[i]);
    round_result(t, i, false);
  }
}

static void zero_gradients(tsr_interpreter *t, bool params) {
  for (int v = 0; v < t->values_count; v++)
    if (t->gradients[v] && params == (t->values[v].kind == TSR_VALUE_PARAM))
      memset(t->gradients[v], 0, sizeof(double) * (size_t)tsr_value_elements(&t->values[v]));
}

void tsr_interpreter_zero_gradients(tsr_interpreter *t) { zero_gradients(t, true); }

void tsr_interpreter_backward(tsr_interpreter *t) {
  assert(t->loss >= 0);
  zero_gradients(t, false);
  t->gradients[t->loss][0] = 1;
  for (int i = t->nodes_count - 1; i >= 0; i--) {
    const tsr_interpreter_rule *rule = rule_of(t->nodes[i].op);
    if (rule->statistics) continue;
    round_result(t, i, true);
    rule->vjp(&t->calls[i]);
    round_sums(t, i);
  }
}
