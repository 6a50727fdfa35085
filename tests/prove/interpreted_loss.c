// SPDX-License-Identifier: Apache-2.0
/* The interpreter's loss of the forward graph, with and without what a mutation of the placed graph
 * has made of one node. */
#include "interpreter/interpreter.h"
#include "mutations.h"
#include <math.h>

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x2545f4914f6cdd1du;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t hash_of(const char *text) {
  uint64_t h = 3;
  while (*text) h = mix(h, (uint64_t)(unsigned char)*text++);
  return h;
}

static double unit_of(uint64_t x) { return (double)(x >> 11) / 4503599627370496.0 - 1; }

/* ---- the node in both graphs ---- */

/* The value before it was moved, cast or received. */
static int before_moves(const tsr_graph *g, int value) {
  for (;;) {
    const tsr_value *v = &g->values[value];
    if (v->kind != TSR_VALUE_NODE) return value;
    const tsr_node *n = &g->nodes[v->node];
    bool moves = tsr_op_moves(n->op) || n->op == TSR_OP_RECEIVE || n->op == TSR_OP_CAST ||
                 n->op == TSR_OP_REDUCE;
    if (!moves) return value;
    value = n->inputs[0];
  }
}

static int find_value(const tsr_graph *g, const char *name) {
  for (int v = 0; v < g->values_count; v++)
    if (!strcmp(g->values[v].name, name)) return v;
  return -1;
}

static int find_node(const tsr_graph *g, const char *name) {
  for (int i = 0; i < g->nodes_count; i++)
    if (!strcmp(g->nodes[i].name, name)) return i;
  return -1;
}

/* The forward graph with the node as it is in the placed graph; NULL: it has other inputs there. */
static tsr_graph *change_node(const bug *b, const tsr_graph *forward, int node) {
  const tsr_node *placed = &b->g->nodes[b->node];
  tsr_graph *g = tsr_arena_alloc(b->arena, sizeof *g);
  *g = *forward;
  g->nodes = tsr_arena_array(b->arena, tsr_node, g->nodes_count + 1);
  memcpy(g->nodes, forward->nodes, sizeof *g->nodes * (size_t)g->nodes_count);
  tsr_node *n = &g->nodes[node];
  if (n->inputs_count != placed->inputs_count) return NULL;
  n->inputs = tsr_arena_array(b->arena, int, n->inputs_count + 1);
  n->op = placed->op;
  n->attr = placed->attr;
  for (int i = 0; i < n->inputs_count; i++) {
    n->inputs[i] = find_value(g, b->g->values[before_moves(b->g, placed->inputs[i])].name);
    bool later = n->inputs[i] >= 0 && g->values[n->inputs[i]].kind == TSR_VALUE_NODE &&
                 g->values[n->inputs[i]].node >= node;
    if (n->inputs[i] < 0 || later) return NULL;
  }
  return g;
}

/* ---- the loss ---- */

static void
mask(void *context, const tsr_node *node, int ndim, const int64_t *shape, double *ret_mask) {
  int64_t count = 1;
  double p = tsr_node_dropout(node);
  (void)context;
  for (int d = 0; d < ndim; d++) count *= shape[d];
  for (int64_t i = 0; i < count; i++) {
    double u = (unit_of(mix(hash_of(node->stream), (uint64_t)i)) + 1) / 2;
    ret_mask[i] = u < p ? 0 : 1 / (1 - p);
  }
}

static void fill(tsr_interpreter *t, const tsr_graph *g, const tsr_synthetic *limits) {
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    if (value->kind != TSR_VALUE_INPUT) continue;
    double *x = tsr_interpreter_value(t, v);
    int64_t row = tsr_value_elements(value) / value->shape[0];
    for (int64_t i = 0; i < tsr_value_elements(value); i++) {
      uint64_t r = mix(hash_of(value->name), (uint64_t)i);
      x[i] = value->dtype != TSR_I32 ? unit_of(r) : (double)(r % (uint64_t)limits->tokens);
      if (!strcmp(value->name, TSR_DOCUMENT_POSITIONS)) x[i] = (double)(i % row % 3);
    }
  }
  for (int p = 0; p < g->params_count; p++) {
    int64_t count = 1;
    for (int d = 0; d < g->params[p].ndim; d++) count *= g->params[p].shape[d];
    for (int64_t i = 0; i < count; i++)
      tsr_interpreter_param(t, p)[i] = 0.7 * unit_of(mix(hash_of(g->params[p].name), (uint64_t)i));
  }
}

static double loss_of(const bug *b, const tsr_graph *g) {
  tsr_interpreter *t = tsr_interpreter_new(b->arena, g);
  tsr_interpreter_step step = {.inv_count = 0.01, .microbatches = 1, .mask = mask};
  proof p = b->base->p;
  tsr_synthetic limits = proof_data(&p, &b->plan.mesh);
  fill(t, g, &limits);
  tsr_interpreter_forward(t, &step);
  return tsr_interpreter_loss(t);
}

/* A program makes the logits' part of a loss in the node before it. */
mutation_loss mutation_interpret(const bug *b) {
  const tsr_prove_run *run = &b->base->plan.mesh;
  tsr_model_options options =
      tsr_compile_model(&run->options, TSR_COMPILE_TRAIN, run->compiled.batch);
  tsr_model *model;
  if (tsr_op_facts(b->g->nodes[b->node].op) & TSR_FACT_LOSS) return LOSS_UNKNOWN;
  tsr_diags *diags = tsr_diags_new(b->arena);
  if (!tsr_compile_read_model(b->arena, run->config, &options, &model, diags)) abort();
  int node = find_node(model->graph, b->g->nodes[b->node].name);
  tsr_graph *changed = node < 0 ? NULL : change_node(b, model->graph, node);
  if (!changed) return LOSS_UNKNOWN;
  double sound = loss_of(b, model->graph), other = loss_of(b, changed);
  double distance = fabs(sound - other) / fabs(sound);
  return distance == 0 ? LOSS_SAME : distance > 1e-5 || isnan(other) ? LOSS_DIFFERS : LOSS_UNKNOWN;
}
