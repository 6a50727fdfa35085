// SPDX-License-Identifier: Apache-2.0
/* What each op costs, one rule per op (ops.def, cost column), in floating-point operations on one
 * rank. */
#include "plan/plan.h"
#include "schedule/geometry.h"
#include <assert.h>
#include <math.h>

typedef double cost_rule(const tsr_task *t);

static double elements(const tsr_tensor *t) { return (double)tsr_tensor_elements(t); }
static double last(const tsr_tensor *t) { return (double)t->shape[t->ndim - 1]; }

/* 2 R K N for each product that the task is made of. */
static double cost_linear(const tsr_task *t) {
  if (t->op == TSR_OP_LINEAR) return 2 * elements(&t->outputs[0]) * last(&t->inputs[0]);
  if (t->op == TSR_OP_LINEAR_DW) return 2 * elements(&t->inputs[0]) * last(&t->inputs[1]);
  double flops = 0;
  for (int i = 0; i < t->inputs_count; i += 2)
    flops += 2 * elements(&t->outputs[0]) * last(&t->inputs[i]);
  return flops;
}

/* Of as many rows as a balanced choice would give a rank, where it has room for more. */
static double cost_expert_linear(const tsr_task *t) {
  const tsr_tensor *rows = &t->inputs[0], *y = &t->outputs[0];
  const tsr_expert_rows *e = t->experts;
  double balanced = e ? (double)(e->tokens * e->choices) * (double)e->here / (double)e->experts
                      : (double)rows->shape[0]; /* of a graph without placements */
  if (t->op == TSR_OP_EXPERT_LINEAR_DW && t->inputs_count == 3) return balanced * last(rows);
  if (t->op == TSR_OP_EXPERT_LINEAR_DW) return 2 * balanced * last(rows) * last(&t->inputs[1]);
  return 2 * balanced * last(rows) * last(y);
}

/* a (…, M, K) holds M K, the result M N: 2 M N K. */
static double cost_matmul(const tsr_task *t) {
  const tsr_tensor *a = &t->inputs[0], *b = &t->inputs[1], *y = &t->outputs[0];
  double batch = elements(y) / (last(y) * (double)y->shape[y->ndim - 2]);
  double mk = elements(a) / batch, kn = elements(b) / batch, mn = elements(y) / batch;
  return 2 * mn * sqrt(mk * kn / mn) * batch;
}

static double cost_elementwise(const tsr_task *t) {
  double most = 0;
  for (int i = 0; i < t->inputs_count; i++)
    if (elements(&t->inputs[i]) > most) most = elements(&t->inputs[i]);
  return most;
}

/* The product B A, and its sum with W. */
static double cost_adapted_squares(const tsr_task *t) {
  return (2 * (double)t->inputs[1].shape[0] + 4) * elements(&t->inputs[0]);
}

static double cost_bytes(const tsr_task *t) {
  (void)t;
  return 0;
}

static double cost_collective(const tsr_task *t) {
  return tsr_op_sums_members(t->op) ? elements(&t->inputs[0]) : 0;
}

/* Two products over the pairs of positions (half of them when causal; the products are counted
 * whole, as is the field's custom): 2 B T T H (D + Dv). */
static double cost_attention(const tsr_task *t) {
  const tsr_tensor *q = &t->inputs[0], *k = &t->inputs[1], *out = &t->outputs[0];
  return 2 * (elements(q) + elements(out)) * (double)k->shape[1];
}
/* Of documents the gradient may be that of some of the positions. */
static double cost_attention_dx(const tsr_task *t) {
  const tsr_tensor *dout = &t->inputs[0], *q = &t->inputs[1];
  return 2 * (3 * elements(q) + 2 * elements(dout)) * (double)t->outputs[0].shape[1];
}

/* A step sees one member's part of the other side: the same products over T of its positions. Pass
 * 1 makes three products of the five that the gradient has, pass 2 four, since both make the
 * scores. */
static double cost_ring_attention(const tsr_task *t) {
  const tsr_tensor *q = &t->inputs[0], *k = &t->inputs[1], *v = &t->inputs[2];
  return 2 * elements(q) * (1 + last(v) / last(k)) * (double)k->shape[1];
}
static double cost_ring_dq(const tsr_task *t) {
  const tsr_tensor *dout = &t->inputs[0], *q = &t->inputs[1];
  return 2 * (2 * elements(q) + elements(dout)) * (double)t->inputs[2].shape[1];
}
static double cost_ring_dkv(const tsr_task *t) {
  const tsr_tensor *dout = &t->inputs[0], *q = &t->inputs[1];
  return 4 * (elements(q) + elements(dout)) * (double)t->inputs[3].shape[1];
}

/* As if the cache were full. */
static double cost_attention_cached(const tsr_task *t) {
  double length = (double)t->inputs[5].shape[1] * (double)t->inputs[1].shape[1];
  return 2 * (elements(&t->inputs[0]) + elements(&t->outputs[0])) * length;
}

static cost_rule *const rules[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  cost_##cost,
#include "graph/ops.def"
#undef OP
};

/* Of a node on one rank, by the tensors that its program has. */
static double node_flops(const tsr_program *p, const tsr_node *n) {
  tsr_tensor inputs[TSR_CALL_INPUTS_MAX], outputs[TSR_OUTPUTS_MAX];
  tsr_task t = {.op = n->op, .inputs_count = n->inputs_count, .outputs_count = n->outputs_count};
  assert(n->inputs_count <= TSR_CALL_INPUTS_MAX);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = p->tensors[n->inputs[i]];
  for (int i = 0; i < n->outputs_count; i++) outputs[i] = p->tensors[n->outputs[i]];
  t.inputs = inputs;
  t.outputs = outputs;
  return rules[n->op](&t);
}

double tsr_task_flops(const tsr_program *p, const tsr_task *t) {
  double flops = 0;
  if (!t->fused) return rules[t->op](t);
  for (int i = 0; i < t->nodes_count; i++) flops += node_flops(p, &p->graph->nodes[t->nodes[i]]);
  return flops;
}

/* ---- what a task takes beside operations ---- */

/* The queries of attention and of its gradients, in whatever way they are computed; else NULL. */
static const tsr_tensor *queries_of(const tsr_task *t) {
  switch ((int)t->op) {
  case TSR_OP_ATTENTION:
  case TSR_OP_DOCUMENT_ATTENTION:
  case TSR_OP_RING_ATTENTION:
    return &t->inputs[0];
  case TSR_OP_ATTENTION_DX:
  case TSR_OP_DOCUMENT_ATTENTION_DX:
  case TSR_OP_RING_DQ:
  case TSR_OP_RING_DKV:
    return &t->inputs[1];
  }
  return NULL;
}

bool tsr_task_is_product(const tsr_task *t) {
  return tsr_op_facts(t->op) & TSR_FACT_MATMUL || t->op == TSR_OP_LINEAR_DW;
}

/* Of the GEMMs of a classifier over tiles of rows: each tile has one call for each leaf. */
static double calls_of_classifier(const tsr_task *t) {
  double calls = 0;
  for (int i = 0; i < t->nodes_count; i++)
    if (tsr_task_is_product(&t->covered[i])) calls += (double)tsr_task_leaves(&t->covered[i]);
  return calls;
}

static double calls_of(const tsr_task *t, const tsr_node *n) {
  const tsr_tensor *q = queries_of(t);
  double units = (double)(tsr_reduction_leaves(&t->sum) * tsr_reduction_blocks(&t->sum));
  if (q) return (double)q->shape[0] * last(q) / (double)n->attr.attention.head_dim;
  if (t->covered) return calls_of_classifier(t);
  if (t->op == TSR_OP_LINEAR_DX) return units * t->inputs_count / 2;
  if (tsr_task_is_product(t)) return units;
  const tsr_tensor *x = t->outputs_count ? &t->outputs[0] : &t->inputs[0];
  return x->ndim > 1 ? elements(x) / last(x) : 1;
}

/* A lookup reads the rows that it copies, not the table; what is kept is written in a part; an
 * update writes again what it reads. */
static double bytes_of(const tsr_task *t) {
  double in = 0, out = 0;
  if (t->op == TSR_OP_SEND || t->op == TSR_OP_WAIT) return 0;
  for (int i = 0; i < t->inputs_count; i++) in += (double)tsr_tensor_bytes(&t->inputs[i]);
  for (int i = 0; i < t->outputs_count; i++) out += (double)tsr_tensor_bytes(&t->outputs[i]);
  if (t->op == TSR_OP_EMBEDDING) return (double)tsr_tensor_bytes(&t->inputs[0]) + 2 * out;
  if (t->op == TSR_OP_KV_CACHE_APPEND) return 2 * (double)tsr_tensor_bytes(&t->inputs[0]);
  if (t->op == TSR_OP_GATHER_ROWS) return 2 * out;
  return t->outputs_count ? in + out : 2 * in;
}

double tsr_attention_share(const tsr_attention_attrs *attr, double length) {
  double window = (double)attr->window;
  if (!attr->causal) return 1;
  if (window == 0 || window >= length) return 0.5;
  return window / length * (1 - window / length / 2);
}

tsr_machine_work tsr_task_work(const tsr_program *p, const tsr_task *t) {
  const tsr_node *n = &p->graph->nodes[t->node];
  const tsr_tensor *q = queries_of(t);
  bool whole = t->op == TSR_OP_ATTENTION || t->op == TSR_OP_ATTENTION_DX ||
               t->op == TSR_OP_DOCUMENT_ATTENTION_DX;
  tsr_machine_work w = {tsr_task_flops(p, t), bytes_of(t), calls_of(t, n)};
  double members = whole ? 1 : (double)p->lowering.size[TSR_CP];
  if (q) w.flops *= tsr_attention_share(&n->attr.attention, (double)q->shape[1] * members);
  return w;
}

static tsr_tensor whole_tensor(const tsr_graph *g, int value) {
  const tsr_value *v = &g->values[value];
  tsr_tensor t = {.value = value, .dtype = v->dtype, .ndim = v->ndim};
  for (int d = 0; d < v->ndim; d++) t.shape[d] = v->shape[d];
  return t;
}

double tsr_node_flops(const tsr_graph *g, int node) {
  const tsr_node *n = &g->nodes[node];
  tsr_tensor outputs[TSR_OUTPUTS_MAX],
      *inputs = tsr_arena_array(g->arena, tsr_tensor, n->inputs_count);
  tsr_task t = {.op = n->op, .inputs_count = n->inputs_count, .outputs_count = n->outputs_count};
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = whole_tensor(g, n->inputs[i]);
  for (int i = 0; i < n->outputs_count; i++) outputs[i] = whole_tensor(g, n->outputs[i]);
  t.inputs = inputs;
  t.outputs = outputs;
  return rules[t.op](&t);
}

double tsr_node_bytes(const tsr_graph *g, int node) {
  double bytes = 0;
  for (int i = 0; i < g->nodes[node].outputs_count; i++) {
    tsr_tensor t = whole_tensor(g, g->nodes[node].outputs[i]);
    bytes += (double)tsr_tensor_bytes(&t);
  }
  return bytes;
}

/* Whether a product of the forward pass is of a weight that has no gradient. */
static bool has_frozen_weight(const tsr_graph *g, const tsr_node *n) {
  for (int i = 0; i < n->inputs_count; i++) {
    int param = g->values[n->inputs[i]].param;
    if (param >= 0 && g->params[param].is_frozen) return true;
  }
  return false;
}

tsr_model_work tsr_model_work_of(const tsr_graph *g, int64_t microbatches) {
  tsr_model_work w = {0};
  double trained = g->loss >= 0 ? 3 : 1, frozen = g->loss >= 0 ? 2 : 1;
  double times = trained * (double)microbatches;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->section > TSR_FORWARD) continue;
    if (tsr_op_facts(n->op) & TSR_FACT_MATMUL) {
      double forward = (double)microbatches * tsr_node_flops(g, i);
      w.forward += forward;
      w.products += (has_frozen_weight(g, n) ? frozen : trained) * forward;
    }
    if (n->op == TSR_OP_ATTENTION || n->op == TSR_OP_DOCUMENT_ATTENTION)
      w.attention +=
          times * tsr_node_flops(g, i) *
          tsr_attention_share(&n->attr.attention, (double)g->values[n->inputs[0]].shape[1]);
  }
  return w;
}
