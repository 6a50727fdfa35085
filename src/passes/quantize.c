// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph, with adapters where there are any
 * produces: the same graph with weights of linear layers in a quantised dtype
 * invalidates: nothing
 *
 * What stays: the output layer, routers of experts, whose choices a small error would change, and
 * what something else reads. */
#include "graph/graph.h"
#include "passes/passes.h"

static int param_of(const tsr_graph *g, int value) {
  return g->values[value].kind == TSR_VALUE_PARAM ? g->values[value].param : -1;
}

/* The linear layer that a value is computed from, but for ops with one operand of its own shape. */
static int layer_of(const tsr_graph *g, int value) {
  for (int node = g->values[value].node; node >= 0; node = g->values[value].node) {
    if (g->nodes[node].op == TSR_OP_LINEAR) return node;
    if (!g->nodes[node].inputs_count) return -1;
    value = g->nodes[node].inputs[0];
  }
  return -1;
}

static void keep_layer(const tsr_graph *g, int value, bool *quantized) {
  int layer = layer_of(g, value), param = layer < 0 ? -1 : param_of(g, g->nodes[layer].inputs[1]);
  if (param >= 0) quantized[param] = false;
}

bool *tsr_graph_inner_weights(const tsr_graph *g) {
  bool *quantized = tsr_arena_array(g->arena, bool, g->params_count + 1);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    int param = n->op == TSR_OP_LINEAR ? param_of(g, n->inputs[1]) : -1;
    if (param >= 0) quantized[param] = g->params[param].ndim == 2 && !g->params[param].is_adapter;
  }
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    for (int k = 0; k < n->inputs_count; k++) {
      int param = param_of(g, n->inputs[k]);
      if (param >= 0 && (n->op != TSR_OP_LINEAR || k != 1)) quantized[param] = false;
    }
    if (n->op == TSR_OP_CHOOSE_EXPERTS || n->op == TSR_OP_CE_STATS)
      keep_layer(g, n->inputs[0], quantized);
  }
  int logits = tsr_graph_find_output(g, "logits");
  if (logits >= 0) keep_layer(g, logits, quantized);
  return quantized;
}

void tsr_pass_quantize(tsr_graph *g, tsr_dtype dtype) {
  const bool *quantized = tsr_graph_inner_weights(g);
  for (int v = 0; v < g->values_count; v++) {
    int param = param_of(g, v);
    if (param < 0 || !quantized[param]) continue;
    g->params[param].is_frozen = true;
    g->params[param].dtype = g->values[v].dtype = dtype;
  }
}

/* A block is TSR_QUANTIZED_BLOCK neighbours of a row, in a unit of tp. */
static bool check_blocks(const tsr_graph *g, const tsr_param *p, tsr_diags *diags) {
  tsr_placement tp = p->placement[TSR_TP];
  int64_t units = tp.kind == TSR_SHARD && g->units.tp > 1 ? g->units.tp : 1;
  int64_t across = units > 1 && tp.dim == 1 ? units : 1, cols = p->shape[1];
  bool padded = p->padding.real < p->shape[p->padding.dim];
  if (!padded && cols % (across * TSR_QUANTIZED_BLOCK) == 0) return true;
  tsr_diag_error(
      diags, p->location, "'%s' cannot be quantised to %s, whose blocks are %d elements of a row",
      p->name, p->dtype == TSR_NF4 ? "NF4" : "INT8", TSR_QUANTIZED_BLOCK);
  if (padded)
    tsr_diag_hint(
        diags, "its %lld features do not divide over the %lld units of tp",
        (long long)p->padding.real, (long long)p->padding.blocks);
  else if (across > 1)
    tsr_diag_hint(
        diags,
        "its rows are %lld elements in %lld units of tp, of which each needs a multiple of %d",
        (long long)cols, (long long)across, TSR_QUANTIZED_BLOCK);
  else tsr_diag_hint(diags, "its rows are %lld elements", (long long)cols);
  return false;
}

bool tsr_pass_check_blocks(const tsr_graph *g, tsr_diags *diags) {
  const tsr_param *refused = NULL; /* the last one: blocks of a model are alike */
  for (int p = 0; p < g->params_count; p++) {
    const tsr_param *q = &g->params[p];
    bool again = refused && refused->location.line >= q->location.line;
    if (tsr_dtype_is_quantized(q->dtype) && !again && !check_blocks(g, q, diags)) refused = q;
  }
  return !refused;
}
