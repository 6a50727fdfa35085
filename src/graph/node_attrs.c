// SPDX-License-Identifier: Apache-2.0
/* Attributes that several ops have, in whichever set. */
#include "graph/graph.h"

int64_t tsr_loss_samples(const tsr_node *loss) {
  return loss->op == TSR_OP_SQUARED_ERROR ? loss->attr.squared_error.samples
                                          : loss->attr.ce_loss.samples;
}

double tsr_node_dropout(const tsr_node *n) {
  if (n->op == TSR_OP_DROPOUT) return n->attr.dropout.p;
  bool attention = n->op == TSR_OP_ATTENTION || n->op == TSR_OP_DOCUMENT_ATTENTION;
  return attention ? n->attr.attention.dropout : 0;
}

int tsr_node_sinks(const tsr_node *n) {
  int sinks = n->op == TSR_OP_ATTENTION ? 3 : 4;
  return n->inputs_count > sinks ? sinks : -1;
}

int tsr_node_updated_input(const tsr_node *n) {
  bool has_rate = n->op == TSR_OP_CHOOSE_EXPERTS && n->attr.choose_experts.bias_rate > 0;
  if (has_rate && n->inputs_count > 1) return 1;
  return n->op == TSR_OP_BALANCE_LOSS && n->inputs_count == 3 ? 2 : -1;
}

bool tsr_param_is_input(const tsr_graph *g, const tsr_param *param, tsr_op op, int input) {
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op != op || n->inputs_count <= input) continue;
    const tsr_value *v = &g->values[n->inputs[input]];
    if (v->kind == TSR_VALUE_PARAM && &g->params[v->param] == param) return true;
  }
  return false;
}

bool tsr_param_is_load(const tsr_graph *g, const tsr_param *param) {
  return tsr_param_is_input(g, param, TSR_OP_BALANCE_LOSS, 2) ||
         tsr_param_is_input(g, param, TSR_OP_EXPERT_LOAD, 0);
}

int64_t tsr_node_value_head(const tsr_node *n) {
  const tsr_attrs *a = &n->attr; /* but with a cache, the sets begin alike */
  bool cached = n->op == TSR_OP_ATTENTION_CACHED;
  int64_t given = cached ? a->attention_cached.v_head_dim : a->attention.v_head_dim;
  return given ? given : a->attention.head_dim;
}

bool tsr_node_accumulates(const tsr_node *n) {
  if (n->op == TSR_OP_ALL_REDUCE) return n->attr.move.accumulate;
  if (n->op == TSR_OP_REDUCE_SCATTER) return n->attr.scatter.accumulate;
  if (n->op == TSR_OP_REDUCE) return n->attr.reduce.accumulate;
  if (n->op == TSR_OP_EXPERT_LINEAR_DW) return n->attr.expert_linear_dw.accumulate;
  return n->op == TSR_OP_ACCUMULATE;
}

/* NULL: the op has no transport. */
static const tsr_attr_field *transport_of(tsr_op op) {
  const tsr_attr_set *set = tsr_op_attrs(op);
  for (int i = 0; i < set->count; i++)
    if (set->fields[i].type == TSR_ATTR_transport) return &set->fields[i];
  return NULL;
}

bool tsr_node_needs_nccl(const tsr_node *n) {
  const tsr_attr_field *field = transport_of(n->op);
  return field && tsr_attr_number(field, &n->attr) == TSR_OP_TRANSPORT_NCCL;
}

const tsr_node *tsr_graph_find_nccl(const tsr_graph *g) {
  for (int i = 0; i < g->nodes_count; i++)
    if (tsr_node_needs_nccl(&g->nodes[i])) return &g->nodes[i];
  return NULL;
}

void tsr_node_require_nccl(tsr_node *n) {
  const tsr_attr_field *field = transport_of(n->op);
  if (field && tsr_op_facts(n->op) & TSR_FACT_COLLECTIVE)
    tsr_attr_set_number(field, &n->attr, TSR_OP_TRANSPORT_NCCL);
}
