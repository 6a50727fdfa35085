// SPDX-License-Identifier: Apache-2.0
/* Rows of experts: every task's record against the graph, its placements and the recipe.
 *   - the operands of a task have the rows of the same experts, and these are shared out over the
 *     same axes as the weights;
 *   - a rank's experts are a subtree of the tree over all; verify_structure.c checks that it has
 *     room for every row that their tokens can have;
 *   - the sum of a token over its experts is partial over the axes that share them out, and over no
 *     others; ranks add it in the binary tree over all experts, those of an inner axis first, whose
 *     experts are neighbours in it;
 *   - the gradient of a weight is made of the recipe's units, and a rank has whole ones; that its
 *     chain continues in the order of microbatches is checked as of any sum (verify_memory.c). */
#include "schedule/verify_checks.h"

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  int task;
  const tsr_node *n;
  const tsr_expert_rows *r;
} check;

static const tsr_value *value(const check *c, int id) { return &c->v->graph->values[id]; }
static bool is_rows(const check *c, int id) { return tsr_routed_is_rows(value(c, id)->routed); }

/* The rows, or the plan, by which the others are checked. */
static int first_rows(const check *c) {
  for (int o = 0; o < c->n->outputs_count; o++)
    if (is_rows(c, c->n->outputs[o])) return c->n->outputs[o];
  for (int i = 0; i < c->n->inputs_count; i++)
    if (is_rows(c, c->n->inputs[i])) return c->n->inputs[i];
  return -1;
}

static bool is_shared(const check *c, int rows, int axis) {
  return value(c, rows)->placement[axis].kind == TSR_ROUTED && c->s->p->lowering.size[axis] > 1;
}

/* A value of a task over an axis: rows, or weights whose experts the axis splits like rows. */
static void check_operand(const check *c, int rows, int axis, int id) {
  const tsr_value *x = value(c, id);
  tsr_placement p = x->placement[axis];
  bool shared = is_shared(c, rows, axis);
  bool splits = p.kind == TSR_SHARD && p.dim == 0 && tsr_routed_is_weights(x->routed);
  bool differs =
      is_rows(c, id) ? is_shared(c, id, axis) != shared : x->routed.experts && splits != shared;
  if (differs)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1, "%s shares out the experts of only one of '%s' and '%s'",
        tsr_axis_name(axis), value(c, rows)->name, x->name);
}

/* An input that is there for its shape alone may be placed otherwise. */
static void check_shared(const check *c, int rows) {
  int shape = tsr_op_shape_input(c->n->op, c->n->inputs_count);
  for (int a = 0; a < TSR_AXES; a++) {
    bool many = c->s->p->lowering.size[a] > 1 && a != TSR_DP;
    for (int i = 0; many && i < c->n->inputs_count; i++)
      if (i != shape) check_operand(c, rows, a, c->n->inputs[i]);
    for (int o = 0; many && o < c->n->outputs_count; o++)
      check_operand(c, rows, a, c->n->outputs[o]);
    if (c->r->shared[a] != (value(c, rows)->placement[a].kind == TSR_ROUTED))
      tsr_verify_say_task(
          c->v, c->s, c->task, -1, "its record and '%s' differ in whether %s shares experts out",
          value(c, rows)->name, tsr_axis_name(a));
  }
}

static void check_counts(const check *c, int rows) {
  const tsr_value *v = value(c, rows);
  const tsr_lowering *l = &c->s->p->lowering;
  int64_t here = v->routed.experts, tokens = v->routed.tokens;
  bool subtrees = true; /* also what the ranks of inner axes have together */
  for (int a = 0; a < TSR_AXES; a++) {
    if (v->placement[a].kind == TSR_ROUTED) here /= l->size[a];
    subtrees &= tsr_tree_is_subtree(v->routed.experts, here);
    if (v->placement[a].kind == TSR_SHARD && v->placement[a].dim == 0) tokens /= l->size[a];
  }
  if (c->r->here != here || c->r->tokens != tokens || c->r->experts != v->routed.experts ||
      c->r->choices != v->routed.choices || c->r->slots != v->routed.slots || !subtrees)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1,
        "its record has %lld experts and %lld tokens here; '%s' has %lld of %lld, a subtree, and "
        "%lld",
        (long long)c->r->here, (long long)c->r->tokens, v->name, (long long)here,
        (long long)v->routed.experts, (long long)tokens);
}

/* What a token's experts are added to. */
static void check_partial(const check *c, int rows) {
  bool sums = c->n->op == TSR_OP_COMBINE_EXPERTS || c->n->op == TSR_OP_PERMUTE_EXPERTS_DX;
  const tsr_value *out = value(c, c->n->outputs[0]);
  for (int a = 0; a < TSR_AXES && sums; a++) {
    bool partial = out->placement[a].kind == TSR_PARTIAL;
    if (c->s->p->lowering.size[a] > 1 && partial != is_shared(c, rows, a))
      tsr_verify_say_task(
          c->v, c->s, c->task, -1, "'%s' %s partial over %s, which %s the experts of '%s' out",
          out->name, partial ? "is" : "is not", tsr_axis_name(a),
          is_shared(c, rows, a) ? "shares" : "does not share", value(c, rows)->name);
  }
}

static int64_t one(int64_t n) { return n > 1 ? n : 1; }

/* part * parts == whole, of records whose numbers may be anything. */
static bool is_part(int64_t part, int64_t parts, int64_t whole) {
  return whole % parts == 0 && part == whole / parts;
}

static void check_units(const check *c, int rows) {
  const tsr_lowering *l = &c->s->p->lowering;
  const tsr_units *u = &c->v->graph->units;
  const tsr_expert_rows *r = c->r;
  const tsr_value *v = value(c, rows);
  int64_t batch = one(u->batch), leaves = one(u->expert), microbatches = c->v->microbatches;
  bool split = v->placement[TSR_DP].kind == TSR_SHARD;
  int64_t ranks = split ? l->size[TSR_DP] : 1;
  int64_t blocks = ranks * (r->accumulates ? 1 : microbatches);
  /* Where every rank of dp has all samples, those of one microbatch are all in a step. */
  bool dp = split || l->size[TSR_DP] == 1 || microbatches == 1;
  if (is_part(r->leaf_units, leaves, batch) && is_part(r->leaves, blocks, leaves) &&
      tsr_tree_of_is_subtree(u->tree, leaves, r->leaves) && dp &&
      is_part(r->unit_tokens, batch, v->routed.tokens * microbatches) &&
      is_part(r->tokens, ranks, v->routed.tokens))
    return;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1,
      "it sums %lld leaves of %lld batch units of %lld tokens here, the recipe has %lld leaves of "
      "%lld units",
      (long long)r->leaves, (long long)r->leaf_units, (long long)r->unit_tokens, (long long)leaves,
      (long long)(batch / leaves));
}

/* ---- sums over experts on several ranks ---- */

/* An op passes a partial sum on where its output is partial over the same axis. */
static bool passes_on(const tsr_graph *g, const tsr_node *n, int input) {
  const tsr_value *x = &g->values[n->inputs[input]], *y = &g->values[n->outputs[0]];
  for (int a = 0; a < TSR_AXES; a++)
    if (x->placement[a].kind == TSR_PARTIAL && y->placement[a].kind == TSR_PARTIAL) return true;
  return false;
}

const int *tsr_verify_expert_sums(tsr_arena *arena, const tsr_graph *g) {
  int *sums = tsr_arena_array(arena, int, g->values_count + 1);
  for (int i = 0; i < g->values_count; i++) sums[i] = -1;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool made = n->op == TSR_OP_COMBINE_EXPERTS || n->op == TSR_OP_PERMUTE_EXPERTS_DX;
    if (!n->outputs_count) continue;
    if (made) sums[n->outputs[0]] = n->inputs[0]; /* the rows */
    for (int k = 0; k < n->inputs_count && !made; k++)
      if (sums[n->inputs[k]] >= 0 && passes_on(g, n, k)) sums[n->outputs[0]] = sums[n->inputs[k]];
  }
  return sums;
}

/* Of a collective that adds what ranks have of a token's experts. */
static void check_order(const check *c) {
  int axis = tsr_node_axis(c->n), rows = c->v->expert_sums[c->n->inputs[0]];
  const tsr_value *in = value(c, c->n->inputs[0]);
  if (rows < 0 || in->placement[axis].kind != TSR_PARTIAL) return;
  if (c->s->p->tasks[c->task].sum.tree != TSR_TREE_BINARY)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1,
        "it adds the experts of '%s' from left to right, not in the binary tree over all of them",
        value(c, rows)->name);
  for (int inner = axis + 1; inner < TSR_AXES; inner++)
    if (is_shared(c, rows, inner) && in->placement[inner].kind == TSR_PARTIAL)
      tsr_verify_say_task(
          c->v, c->s, c->task, -1, "it adds the experts of '%s' over %s before those over %s",
          value(c, rows)->name, tsr_axis_name(axis), tsr_axis_name(inner));
}

void tsr_verify_experts(tsr_verify *v, const tsr_verify_subject *s, int task) {
  const tsr_task *t = &s->p->tasks[task];
  check c = {v, s, task, &v->graph->nodes[t->node], t->experts};
  if (tsr_op_is_collective(t->op)) check_order(&c);
  bool routed = tsr_op_facts(t->op) & TSR_FACT_ROUTED || t->op == TSR_OP_EXPERT_PLAN;
  if (!routed) return;
  int rows = first_rows(&c);
  if (rows < 0 || !t->experts) {
    tsr_verify_say_task(v, s, task, -1, "it has no record of rows of experts");
    return;
  }
  check_shared(&c, rows);
  check_counts(&c, rows);
  check_partial(&c, rows);
  if (t->op == TSR_OP_EXPERT_LINEAR_DW) check_units(&c, rows);
}
