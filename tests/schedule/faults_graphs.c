// SPDX-License-Identifier: Apache-2.0
/* Faults in the placed graph and the recipe, from which programs are lowered anew. */
#include "faults.h"

/* A value that a forward node of the op makes; -1: none. */
static int some_value(mutant *m, tsr_op op) {
  int task = mutant_pick_op(m, op);
  return task < 0 ? -1 : m->p->tasks[task].outputs[0].value;
}

/* What cp and dp split changes places: the parts have the same size. */
static bool swap_placements(mutant *m) {
  int x = some_value(m, TSR_OP_RMSNORM);
  tsr_placement *p = mutant_graph(m)->values[x].placement, dp = p[TSR_DP];
  p[TSR_DP] = p[TSR_CP];
  p[TSR_CP] = dp;
  return mutant_lower(m, &m->p->lowering), true;
}
static bool forget_partial(mutant *m) {
  int x = some_value(m, TSR_OP_LINEAR_DW);
  mutant_graph(m)->values[x].placement[TSR_DP] = (tsr_placement){TSR_REPLICATE, 0, 0};
  return mutant_lower(m, &m->p->lowering), true;
}
static bool halve_samples(mutant *m) {
  int x = some_value(m, TSR_OP_RMSNORM);
  mutant_graph(m)->values[x].shape[0] /= 2;
  return mutant_lower(m, &m->p->lowering), true;
}
static bool owe_more(mutant *m) {
  int x = some_value(m, TSR_OP_DROPOUT);
  mutant_graph(m)->values[x].placement[TSR_DP] = (tsr_placement){TSR_PARTIAL, 0, 0};
  return mutant_lower(m, &m->p->lowering), true;
}
/* Every rank keeps its part of what it has summed itself. */
static bool split_partial(mutant *m) {
  int task = mutant_pick_op(m, TSR_OP_REDUCE_SCATTER);
  if (task < 0) return false;
  mutant_graph(m)->nodes[m->p->tasks[task].node].op = TSR_OP_SCATTER;
  return mutant_lower(m, &m->p->lowering), true;
}
/* The node that adds a value up over microbatches; -1: none. */
static int adder_of(const tsr_graph *g, int value) {
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].op == TSR_OP_ACCUMULATE && g->nodes[i].inputs[0] == value) return i;
  return -1;
}
/* A gradient comes to another rank than the one that owns its parameter. */
static bool reduce_elsewhere(mutant *m) {
  int task = mutant_pick_op(m, TSR_OP_REDUCE);
  if (task < 0) return false;
  tsr_graph *g = mutant_graph(m);
  tsr_node *n = &g->nodes[m->p->tasks[task].node];
  int adder = adder_of(g, n->outputs[0]), owner = 1 - (int)n->attr.broadcast.root;
  if (adder < 0) return false;
  n->attr.broadcast.root = owner;
  g->values[n->outputs[0]].placement[TSR_DP].owner = owner;
  g->values[g->nodes[adder].outputs[0]].placement[TSR_DP].owner = owner;
  return mutant_lower(m, &m->p->lowering), true;
}
/* A copy of the parameter is updated, and the parameter stays what it is. */
static bool update_copy(mutant *m) {
  int task = mutant_pick_op(m, TSR_OP_ADAMW);
  if (task < 0) return false;
  tsr_node *n = &mutant_graph(m)->nodes[m->p->tasks[task].node];
  n->inputs[0] = n->inputs[1];
  return mutant_lower(m, &m->p->lowering), true;
}
/* Three pieces of what two ranks hold halves of. */
static bool split_pieces(mutant *m) {
  int x = some_value(m, TSR_OP_NORM_STATS);
  if (x < 0) return false;
  mutant_graph(m)->values[x].shape[0] = 3;
  return mutant_lower(m, &m->p->lowering), true;
}
/* The second half of the pieces has no room where all gradients' are joined. */
static bool shorten_join(mutant *m) {
  int x = some_value(m, TSR_OP_NORM_JOIN);
  if (x < 0) return false;
  tsr_value *v = &mutant_graph(m)->values[x];
  if (v->shape[0] < 2) return false;
  v->shape[0] /= 2;
  return mutant_lower(m, &m->p->lowering), true;
}

/* ---- the recipe ---- */

static bool lower_units(mutant *m, int64_t of_rank, int64_t of_recipe) {
  tsr_lowering how = m->p->lowering;
  how.batch_units = of_rank;
  mutant_graph(m)->units.batch = of_recipe;
  return mutant_lower(m, &how), true;
}
static bool halve_units(mutant *m) { return lower_units(m, 2, m->programs->graph->units.batch); }
/* Microbatches before ranks. */
static bool add_from_left(mutant *m) {
  tsr_lowering how = m->p->lowering;
  tsr_units *units = &mutant_graph(m)->units;
  units->batch = how.size[TSR_DP] * how.microbatches;
  units->tree = how.tree = TSR_TREE_FLAT;
  how.batch_units = 1;
  how.microbatch_first = true;
  return mutant_lower(m, &how), true;
}
static bool add_in_halves(mutant *m) {
  tsr_lowering how = m->p->lowering;
  mutant_graph(m)->units.tree = how.tree = TSR_TREE_BINARY;
  return mutant_lower(m, &how), true;
}
static bool flip_tree(mutant *m) {
  m->p->lowering.tree = TSR_TREE_FLAT;
  return m->p->lowering.microbatches > 2;
}
static bool flip_samples(mutant *m) {
  m->p->lowering.microbatch_first = false;
  return true;
}
static bool take_six_units(mutant *m) { return lower_units(m, 2, 6); } /* over three ranks */
static bool take_odd_units(mutant *m) { return lower_units(m, 3, 6); } /* of eight samples */

/* A backward task reads what is in the host's memory itself. */
static bool read_from_host(mutant *m) {
  int task = mutant_pick_op(m, TSR_OP_RELOAD);
  if (task < 0) return false;
  const tsr_task *t = &m->p->tasks[task];
  int back = t->outputs[0].value, host = t->inputs[0].value;
  tsr_graph *g = mutant_graph(m);
  for (int i = t->node + 1; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++)
      if (g->nodes[i].inputs[k] == back) g->nodes[i].inputs[k] = host;
  return mutant_lower(m, &m->p->lowering), true;
}

static const char rows[] = "rows, by the length of a unit, which may be 0";
static const rule_fault table[] = {
    {"it sums '%s' and '%s', of which %s splits one along the sum", swap_placements, ON_ZIGZAG,
     EFFECT_NONE, "the tasks are those of the sound graph"},
    {"it sums over %lld of '%s' and %lld of '%s'", halve_samples, ON_ALONE},
    {"it updates '%s', which is no parameter", update_copy, ON_ALONE},
    {"reads '%s' in the %s's memory", read_from_host, ON_OFFLOAD, EFFECT_NONE,
     "the host's memory is that of the device on which it is run"},
    {"'%s' is partial over %s, and the op does not sum", owe_more, ON_TP},
    {"it does not lead from the placement of '%s' over %s to its own", split_partial, ON_ZERO},
    {"reads '%s', which another rank owns", reduce_elsewhere, ON_OWNERS},
    {"its pieces hold %lld of the %lld that the rank from %lld on has of dimension %d of '%s'",
     split_pieces, ON_ZERO},
    {"it has %lld rows of %lld for the %lld pieces of gradient %d", shorten_join, ON_ALONE},
    {"its ranks have %lld units over %s, the recipe %lld", halve_units, ON_ALONE},
    {"it adds its units %s, the recipe %s", flip_tree, ON_PIPE},
    {"its microbatches do not have samples in the order of their units", flip_samples, ON_FLAT},
    {"it adds up microbatches of '%s' before the ranks of each", add_from_left, ON_OVERLAP},
    {"'%s' adds ranks to a sum over microbatches in turn, the recipe does not", add_in_halves,
     ON_FLAT},
    {"%lld of the recipe's %lld units are no subtree of their tree", take_six_units, ON_DP3},
    {"it sums %lld of the %lld of dimension %d of '%s' into %lld of the %lld units of '%s'",
     forget_partial, ON_TP, EFFECT_HARM, NULL, rows},
    {"it sums %lld of the %lld of dimension %d of '%s' into %lld of the %lld units of '%s'",
     take_odd_units, ON_ALONE, EFFECT_UNRUN, "kernels demand units of one size", rows},
};
RULE_FAULTS(faults_of_graphs, table);
