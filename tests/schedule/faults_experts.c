// SPDX-License-Identifier: Apache-2.0
/* Faults in the records of rows of experts (schedule/expert_rows.h), in the placements that they
 * follow, and in the order of sums over ep and microbatches. */
#include "faults.h"
#include <string.h>

/* ---- records ---- */

/* Of some task of the op: a copy, to be changed. */
static tsr_expert_rows *some_record(mutant *m, tsr_op op) {
  tsr_task *t = &m->p->tasks[mutant_pick_op(m, op)];
  tsr_expert_rows *r = tsr_arena_alloc(m->arena, sizeof *r);
  *r = *t->experts;
  t->experts = r;
  return r;
}

static bool keep_experts(mutant *m) {
  some_record(m, TSR_OP_EXPERT_PLAN)->shared[TSR_EP] = false;
  return true;
}
static bool halve_experts(mutant *m) {
  some_record(m, TSR_OP_EXPERT_PLAN)->here /= 2;
  return true;
}
static bool join_leaves(mutant *m) {
  tsr_expert_rows *r = some_record(m, TSR_OP_EXPERT_LINEAR_DW);
  r->leaves /= 2;
  r->leaf_units *= 2;
  return true;
}
static bool lose_record(mutant *m) {
  m->p->tasks[mutant_pick_op(m, TSR_OP_EXPERT_LINEAR)].experts = NULL;
  return true;
}

/* ---- placements ---- */

/* What ep and tp split of rows changes places: the parts have the same size. */
static bool swap_rows(mutant *m) {
  int y = m->p->tasks[mutant_pick_op(m, TSR_OP_EXPERT_LINEAR)].outputs[0].value;
  tsr_placement *p = mutant_graph(m)->values[y].placement, ep = p[TSR_EP];
  if (p[TSR_TP].kind != TSR_SHARD) return false;
  p[TSR_EP] = p[TSR_TP];
  p[TSR_TP] = ep;
  return mutant_lower(m, &m->p->lowering), true;
}

/* The node that moves a value on over an axis; -1: none. */
static int move_of(const tsr_graph *g, int value, tsr_op op, int axis) {
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].op == op && g->nodes[i].inputs[0] == value &&
        tsr_node_axis(&g->nodes[i]) == axis)
      return i;
  return -1;
}

/* A token has the sum over a rank's own experts. */
static bool keep_own_sum(mutant *m) {
  int sum = m->p->tasks[mutant_pick_op(m, TSR_OP_COMBINE_EXPERTS)].outputs[0].value;
  tsr_graph *g = mutant_graph(m);
  int node = move_of(g, sum, TSR_OP_REDUCE_SCATTER, TSR_EP);
  if (node < 0) return false;
  g->values[sum].placement[TSR_EP] = (tsr_placement){TSR_REPLICATE, 0, 0, 0};
  g->nodes[node].op = TSR_OP_SCATTER;
  return mutant_lower(m, &m->p->lowering), true;
}

/* ---- the order of sums ---- */

/* The sums of a gradient over ep and over dp change places, the latter being that of microbatches,
 * too. */
static bool add_ep_last(mutant *m) {
  int dw = m->p->tasks[mutant_pick_op(m, TSR_OP_LINEAR_DW)].outputs[0].value;
  tsr_graph *g = mutant_graph(m);
  int first = move_of(g, dw, TSR_OP_ALL_REDUCE, TSR_EP);
  if (first < 0) return false;
  int of_ep = g->nodes[first].outputs[0], sum = -1;
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].op == TSR_OP_ACCUMULATE && g->nodes[i].inputs[0] == of_ep)
      sum = g->nodes[i].outputs[0];
  int last = sum < 0 ? -1 : move_of(g, sum, TSR_OP_ALL_REDUCE, TSR_DP);
  if (last < 0) return false;
  const tsr_placement whole = {TSR_REPLICATE, 0, 0, 0}, partial = {TSR_PARTIAL, 0, 0, 0};
  g->nodes[first].attr.move.axis = TSR_DP;
  g->nodes[last].attr.move.axis = TSR_EP;
  g->values[of_ep].placement[TSR_DP] = g->values[sum].placement[TSR_DP] = whole;
  g->values[of_ep].placement[TSR_EP] = g->values[sum].placement[TSR_EP] = partial;
  return mutant_lower(m, &m->p->lowering), true;
}

/* What two moves of a chain do changes places: the first's output is then `between` them. */
static void swap_moves(tsr_graph *g, int first, int second) {
  tsr_node *a = &g->nodes[first], *b = &g->nodes[second];
  tsr_value *between = &g->values[a->outputs[0]];
  const tsr_value *in = &g->values[a->inputs[0]], *out = &g->values[b->outputs[0]];
  tsr_node kept = *a;
  a->op = b->op, a->attr = b->attr;
  b->op = kept.op, b->attr = kept.attr;
  memcpy(between->placement, in->placement, sizeof in->placement);
  int axis = tsr_node_axis(a);
  between->placement[axis] = out->placement[axis];
}

/* A token's experts are added over ep before those that cp shares out inside. */
static bool add_cp_last(mutant *m) {
  int sum = m->p->tasks[mutant_pick_op(m, TSR_OP_COMBINE_EXPERTS)].outputs[0].value;
  tsr_graph *g = mutant_graph(m);
  int cp = move_of(g, sum, TSR_OP_REDUCE_SCATTER, TSR_CP);
  int ep = cp < 0 ? -1 : move_of(g, g->nodes[cp].outputs[0], TSR_OP_REDUCE_SCATTER, TSR_EP);
  if (ep < 0) return false;
  return swap_moves(g, cp, ep), mutant_lower(m, &m->p->lowering), true;
}

/* A token's experts are added over ranks as if these had units. */
static bool add_from_left(mutant *m) {
  const tsr_graph *g = m->p->graph;
  tsr_task *t = &m->p->tasks[mutant_pick_op(m, TSR_OP_REDUCE_SCATTER)];
  const tsr_node *made = &g->nodes[g->values[g->nodes[t->node].inputs[0]].node];
  t->sum.tree = TSR_TREE_FLAT;
  return made->op == TSR_OP_REDUCE_SCATTER; /* over cp: this one is over ep, of four ranks */
}

/* Positions are gathered over cp, and then the slices of them that tp has inside. */
static bool gather_tp_last(mutant *m) {
  const tsr_task *t = &m->p->tasks[mutant_pick_op(m, TSR_OP_ALL_GATHER)];
  int first = t->node;
  tsr_graph *g = mutant_graph(m);
  if (tsr_node_axis(&g->nodes[first]) != TSR_TP) return false;
  int second = move_of(g, g->nodes[first].outputs[0], TSR_OP_ALL_GATHER, TSR_CP);
  if (second < 0) return false;
  return swap_moves(g, first, second), mutant_lower(m, &m->p->lowering), true;
}

static const rule_fault table[] = {
    {"%s shares out the experts of only one of '%s' and '%s'", swap_rows, ON_EXPERTS},
    {"its record and '%s' differ in whether %s shares experts out", keep_experts, ON_EXPERTS},
    {"its record has %lld experts and %lld tokens here; '%s' has %lld of %lld, a subtree, and "
     "%lld",
     halve_experts, ON_EXPERTS},
    {"'%s' %s partial over %s, which %s the experts of '%s' out", keep_own_sum, ON_EXPERTS},
    {"it sums %lld leaves of %lld batch units of %lld tokens here, the recipe has %lld leaves of "
     "%lld units",
     join_leaves, ON_EXPERTS},
    {"it has no record of rows of experts", lose_record, ON_EXPERTS},
    {"it adds up microbatches of '%s' before the ranks of ep", add_ep_last, ON_EXPERTS},
    {"it adds the experts of '%s' from left to right, not in the binary tree over all of them",
     add_from_left, ON_EXPERT_AXES},
    {"it adds the experts of '%s' over %s before those over %s", add_cp_last, ON_EXPERT_AXES},
    {"it moves dimension %d of '%s' over %s, which %s splits inside", gather_tp_last,
     ON_EXPERT_AXES},
};
RULE_FAULTS(faults_of_experts, table);
