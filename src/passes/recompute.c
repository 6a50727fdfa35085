// SPDX-License-Identifier: Apache-2.0
/* requires: forward and backward nodes with their stages, before placement
 * produces: a graph whose backward pass reads copies of forward nodes, made when it first needs
 * them, instead of what would have been kept
 * invalidates: indices; the new graph has its own
 *
 * A block's copies read what the block was given, which is kept, and where a stage begins inside
 * the block what that stage was sent; they draw the same random numbers, since those are a function
 * of the forward node's name. (Chen et al. 2016; selective: Korthikanti et al. 2022) */
#include "passes/passes.h"
#include <string.h>

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  tsr_recomputing how;
  int *map, *again; /* per old value: the new one; its copy in the backward pass, or -1 */
  int *node_map;    /* per old node */
  bool *classifier; /* per old node: whether it computes logits that are not kept */
} recompute;

/* Whether what a forward node makes is made again rather than kept. Routing is kept: its few
 * integers decide which rows the backward pass has, so it must be the forward pass's own. */
static bool is_chosen(const recompute *r, int node) {
  const tsr_node *n = &r->old->nodes[node];
  unsigned facts = tsr_op_facts(n->op);
  if (r->classifier[node]) return true;
  if (n->section != TSR_FORWARD || n->block < 0 || facts & TSR_FACT_LOSS) return false;
  if (n->op == TSR_OP_CHOOSE_EXPERTS || n->op == TSR_OP_EXPERT_PLAN) return false;
  if (r->how.kind == TSR_RECOMPUTE_ATTENTION)
    return n->op == TSR_OP_ATTENTION || n->op == TSR_OP_DOCUMENT_ATTENTION;
  if (r->how.kind == TSR_RECOMPUTE_BLOCKS && n->block % r->how.every == 0) return true;
  return facts & TSR_FACT_CHEAP && !(facts & TSR_FACT_STATISTICS && r->how.keeps_norms);
}

static void find_classifiers(recompute *r) {
  const tsr_graph *g = r->old;
  r->classifier = tsr_arena_array(g->arena, bool, g->nodes_count + 1);
  for (int i = 0; i < g->nodes_count; i++) {
    if (g->nodes[i].op != TSR_OP_CE_STATS) continue;
    int node = g->values[g->nodes[i].inputs[0]].node;
    if (node < 0 || g->nodes[node].op != TSR_OP_LINEAR || g->nodes[node].section != TSR_FORWARD)
      continue;
    const tsr_value *w = &g->values[g->nodes[node].inputs[1]]; // (V, C)
    r->classifier[node] = r->how.logits && w->shape[0] / r->how.logits > w->shape[1];
  }
}

static void copy_outputs(const recompute *r, int old, int *map) {
  const tsr_node *from = &r->old->nodes[old], *to = &r->g->nodes[r->g->nodes_count - 1];
  for (int o = 0; o < from->outputs_count; o++) map[from->outputs[o]] = to->outputs[o];
}

/* The value as `reader`, a node of the backward pass or a copy, reads it. */
static int read_back(recompute *r, int value, const tsr_node *reader) {
  int node = r->old->values[value].node;
  if (node < 0 || !is_chosen(r, node)) return r->map[value];
  const tsr_node *from = &r->old->nodes[node];
  if (from->block != reader->block || from->stage != reader->stage) return r->map[value];
  if (r->again[value] >= 0) return r->again[value];
  const tsr_node *n = &r->old->nodes[node];
  int *inputs = tsr_arena_array(r->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = read_back(r, n->inputs[i], n);
  tsr_graph_copy_node(r->g, r->old, node, inputs);
  tsr_node *copy = &r->g->nodes[r->g->nodes_count - 1];
  copy->section = TSR_BACKWARD;
  copy->of = r->node_map[node];
  copy->again = true;
  copy->name = tsr_arena_printf(r->g->arena, "recompute.%s", n->name);
  for (int o = 0; o < copy->outputs_count; o++)
    r->g->values[copy->outputs[o]].name =
        tsr_arena_printf(r->g->arena, "recompute.%s", r->old->values[n->outputs[o]].name);
  copy_outputs(r, node, r->again);
  return r->again[value];
}

static void copy_node(recompute *r, int old) {
  const tsr_node *n = &r->old->nodes[old];
  int *inputs = tsr_arena_array(r->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++)
    inputs[i] = n->section == TSR_BACKWARD ? read_back(r, n->inputs[i], n) : r->map[n->inputs[i]];
  tsr_graph_copy_node(r->g, r->old, old, inputs);
  r->node_map[old] = r->g->nodes_count - 1;
  tsr_node *copy = &r->g->nodes[r->g->nodes_count - 1];
  if (copy->of >= 0) copy->of = r->node_map[copy->of];
  copy_outputs(r, old, r->map);
}

tsr_graph *tsr_pass_recompute(const tsr_graph *old, tsr_recomputing how) {
  recompute r = {.old = old, .g = tsr_graph_derive(old), .how = how};
  r.map = tsr_arena_array(old->arena, int, old->values_count);
  r.again = tsr_arena_array(old->arena, int, old->values_count);
  r.node_map = tsr_arena_array(old->arena, int, old->nodes_count);
  find_classifiers(&r);
  for (int v = 0; v < old->values_count; v++) {
    r.again[v] = -1;
    if (old->values[v].kind == TSR_VALUE_NODE) continue;
    r.map[v] = tsr_graph_copy_value(r.g, &old->values[v]);
  }
  for (int i = 0; i < old->nodes_count; i++) copy_node(&r, i);
  tsr_graph_map_ends(r.g, old, r.map);
  return r.g;
}
