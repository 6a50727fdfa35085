// SPDX-License-Identifier: Apache-2.0
/* requires: a stage's tasks
 * produces: the rows of a call of each GEMM of a classifier
 * invalidates: nothing */
#include "schedule/classifier_calls.h"

/* Whether a node hands its input on: which nodes do so, and which of them are tasks, depends on the
 * mesh. */
static bool passes_on(const tsr_node *n) {
  return n->op == TSR_OP_RESHAPE || n->op == TSR_OP_SUM_UNITS || tsr_node_axis(n) >= 0;
}

/* The linear layer that computes some logits; -1: it is none. */
static int find_linear(const tsr_graph *g, int logits) {
  int node = g->values[logits].node;
  while (node >= 0 && passes_on(&g->nodes[node])) node = g->values[g->nodes[node].inputs[0]].node;
  return node >= 0 && g->nodes[node].op == TSR_OP_LINEAR ? node : -1;
}

/* Whether a node computes with the gradient of logits, for which `rows` has a number. */
static int64_t rows_of_reader(const tsr_node *n, const int64_t *rows) {
  if (n->op == TSR_OP_LINEAR_DW) return rows[n->inputs[0]];
  for (int i = 0; n->op == TSR_OP_LINEAR_DX && i < n->inputs_count; i += 2)
    if (rows[n->inputs[i]]) return rows[n->inputs[i]];
  return 0;
}

static int64_t call_rows(const tsr_graph *g, const tsr_target *target, int logits) {
  const tsr_value *v = &g->values[logits];
  return target->tile_rows(v->shape[v->ndim - 1]);
}

/* Per node: rows of a call; 0: it is no classifier's GEMM. */
static int64_t *find_gemms(const tsr_program *p, const tsr_target *target) {
  const tsr_graph *g = p->graph;
  int64_t *of_node = tsr_arena_array(g->arena, int64_t, g->nodes_count + 1),
          *of_gradient = tsr_arena_array(g->arena, int64_t, g->values_count + 1);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool gradient = n->op == TSR_OP_CE_LOSS_DX;
    if (gradient || n->op == TSR_OP_CE_STATS) {
      int linear = find_linear(g, n->inputs[0]);
      if (linear >= 0) of_node[linear] = call_rows(g, target, n->inputs[0]);
    }
    if (gradient) of_gradient[n->outputs[0]] = call_rows(g, target, n->inputs[0]);
    if (passes_on(n)) of_gradient[n->outputs[0]] = of_gradient[n->inputs[0]];
    int64_t rows = rows_of_reader(n, of_gradient);
    if (rows) of_node[i] = rows;
  }
  return of_node;
}

void tsr_program_split_classifiers(tsr_program *p, const tsr_target *target) {
  if (target->rows_are_alone || !target->tile_rows) return;
  const int64_t *of_node = find_gemms(p, target);
  for (int i = 0; i < p->tasks_count; i++) {
    tsr_task *t = &p->tasks[i];
    if (t->op == p->graph->nodes[t->node].op) t->calls.rows = of_node[t->node];
  }
}
