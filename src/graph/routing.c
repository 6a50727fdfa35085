// SPDX-License-Identifier: Apache-2.0
#include "graph/routing.h"

static bool is_choice(const tsr_node *n) {
  return n->op == TSR_OP_CHOOSE_EXPERTS && n->section == TSR_FORWARD && !n->again;
}

/* How many choices before a node have its name. */
static int count_before(const tsr_graph *g, int node) {
  int count = 0;
  for (int i = 0; i < node; i++)
    count += is_choice(&g->nodes[i]) && !strcmp(g->nodes[i].name, g->nodes[node].name);
  return count;
}

static tsr_routing_layer layer_of(const tsr_graph *g, int node) {
  const tsr_node *n = &g->nodes[node];
  const tsr_value *scores = &g->values[n->inputs[0]], *chosen = &g->values[n->outputs[0]];
  int before = count_before(g, node);
  return (tsr_routing_layer){
      .name = before ? tsr_arena_printf(g->arena, "%s.%d", n->name, before + 1) : n->name,
      .node = node,
      .tokens = tsr_value_elements(chosen) / chosen->shape[chosen->ndim - 1],
      .k = chosen->shape[chosen->ndim - 1],
      .experts = scores->shape[scores->ndim - 1]};
}

int tsr_graph_routing(const tsr_graph *g, tsr_routing_layer **ret) {
  int count = 0;
  for (int i = 0; i < g->nodes_count; i++) count += is_choice(&g->nodes[i]);
  *ret = tsr_arena_array(g->arena, tsr_routing_layer, count + 1);
  count = 0;
  for (int i = 0; i < g->nodes_count; i++)
    if (is_choice(&g->nodes[i])) (*ret)[count++] = layer_of(g, i);
  return count;
}

void tsr_graph_replay_routing(tsr_graph *g) {
  tsr_routing_layer *layers;
  int count = tsr_graph_routing(g, &layers);
  for (int i = 0; i < count; i++) {
    tsr_node *n = &g->nodes[layers[i].node];
    const tsr_value chosen = g->values[n->outputs[0]];
    int *inputs = tsr_arena_array(g->arena, int, n->inputs_count + 1);
    memcpy(inputs, n->inputs, sizeof *inputs * (size_t)n->inputs_count);
    inputs[n->inputs_count++] = tsr_graph_input(
        g, tsr_arena_printf(g->arena, TSR_ROUTING_INPUT "%s", layers[i].name), TSR_I32, chosen.ndim,
        chosen.shape, n->location);
    n->inputs = inputs;
    n->attr.choose_experts.replay = true;
  }
}
