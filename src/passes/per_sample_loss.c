// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph with stages, whose loss is what cross_entropy or mse gives, with
 *        collectives behind it or none
 * produces: the same with a number for each sample of the batch
 * invalidates: indices; the new graph has its own
 *
 * An evaluation's batch is filled up to what dp divides. A sum over it would depend on how many
 * samples fill it, and on which of them a rank adds first, for not every dp divides the sum's tree.
 * Numbers that stay apart until the host adds the real ones depend on neither. */
#include "passes/passes.h"

static void copy_node(
    tsr_graph *g, const tsr_graph *old, int node, int *map, bool loss, int64_t samples,
    int64_t real) {
  const tsr_node *n = &old->nodes[node];
  int *inputs = tsr_arena_array(g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = map[n->inputs[i]];
  tsr_graph_copy_node(g, old, node, inputs);
  tsr_node *copy = &g->nodes[g->nodes_count - 1];
  for (int o = 0; o < n->outputs_count; o++) map[n->outputs[o]] = copy->outputs[o];
  if (!loss) return;
  if (copy->op == TSR_OP_SQUARED_ERROR)
    copy->attr.squared_error = (tsr_squared_error_attrs){.real = real, .samples = samples};
  else copy->attr.ce_loss.samples = samples;
  g->values[copy->outputs[0]].shape[0] = samples;
}

tsr_graph *tsr_pass_by_sample(const tsr_graph *old, int64_t samples, int64_t real) {
  tsr_graph *g = tsr_graph_derive(old);
  int *map = tsr_arena_array(old->arena, int, old->values_count + 1);
  int loss = tsr_graph_find_loss(old, old->loss);
  bool *behind = tsr_arena_array(old->arena, bool, old->values_count + 1);
  for (int v = 0; v < old->values_count; v++)
    if (old->values[v].kind != TSR_VALUE_NODE) map[v] = tsr_graph_copy_value(g, &old->values[v]);
  behind[loss] = true;
  for (int i = 0; i < old->nodes_count; i++) {
    const tsr_node *n = &old->nodes[i];
    bool gone = false;
    for (int k = 0; k < n->inputs_count; k++) gone |= behind[n->inputs[k]];
    for (int o = 0; o < n->outputs_count && gone; o++) behind[n->outputs[o]] = true;
    if (!gone) copy_node(g, old, i, map, i == old->values[loss].node, samples, real);
  }
  map[old->loss] = map[loss];
  tsr_graph_map_ends(g, old, map);
  return g;
}

bool *tsr_graph_depends_on_inputs(const tsr_graph *g) {
  bool *depends = tsr_arena_array(g->arena, bool, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) depends[v] = g->values[v].kind == TSR_VALUE_INPUT;
  for (int i = 0; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++)
      for (int o = 0; o < g->nodes[i].outputs_count; o++)
        depends[g->nodes[i].outputs[o]] |= depends[g->nodes[i].inputs[k]];
  return depends;
}

bool tsr_graph_joins_samples(const tsr_graph *g) {
  const bool *depends = tsr_graph_depends_on_inputs(g);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (depends[n->outputs[0]] && tsr_node_axis(n) == TSR_DP) return true;
  }
  return false;
}
