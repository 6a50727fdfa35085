// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph, with adapters where there are any
 * produces: the same graph, whose linear layers quantise their operands to FP8
 * invalidates: nothing
 *
 * As in DeepSeek-V3 (section 3.3.1) the output layer, routers, embeddings, norms and attention stay
 * in bf16. */
#include "graph/graph.h"
#include "passes/passes.h"

/* The parameter that the weight of a node is, or (of experts) is made of; -1: it is neither. */
static int weight_of(const tsr_graph *g, const tsr_node *n) {
  if (n->op != TSR_OP_LINEAR && n->op != TSR_OP_EXPERT_LINEAR) return -1;
  const tsr_value *w = &g->values[n->inputs[1]];
  while (n->op == TSR_OP_EXPERT_LINEAR && w->kind == TSR_VALUE_NODE &&
         g->nodes[w->node].inputs_count)
    w = &g->values[g->nodes[w->node].inputs[0]];
  return w->kind == TSR_VALUE_PARAM && !tsr_dtype_is_quantized(w->dtype) ? w->param : -1;
}

bool *tsr_graph_fp8_weights(const tsr_graph *g) {
  bool *weights = tsr_graph_inner_weights(g);
  for (int i = 0; i < g->nodes_count; i++) {
    int param = weight_of(g, &g->nodes[i]);
    if (param >= 0 && g->nodes[i].op == TSR_OP_EXPERT_LINEAR) weights[param] = true;
  }
  return weights;
}

bool tsr_pass_fp8(tsr_graph *g, tsr_fp8_recipe recipe, const bool *chosen) {
  bool any = false;
  for (int i = 0; i < g->nodes_count; i++) {
    int param = weight_of(g, &g->nodes[i]);
    if (param < 0 || !chosen[param]) continue;
    g->nodes[i].attr.linear.fp8 = recipe;
    any = true;
  }
  return any;
}
