// SPDX-License-Identifier: Apache-2.0
/* Rows of experts: every task's record against the graph, its placements and the recipe.
 *   - the operands of a task have the rows of the same experts, and these are shared out over the
 *     same axes as the weights;
 *   - a rank's experts are a subtree of the tree over all; verify_structure.c checks that it has
 *     room for every row that their tokens can have;
 *   - the sum of a token over its experts is partial over the axes that share them out, and over no
 *     others;
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

static void check_shared(const check *c, int rows) {
  for (int a = 0; a < TSR_AXES; a++) {
    bool shared = is_shared(c, rows, a), many = c->s->p->lowering.size[a] > 1;
    for (int i = 0; i < c->n->inputs_count; i++) {
      const tsr_value *x = value(c, c->n->inputs[i]);
      tsr_placement p = x->placement[a];
      bool splits = p.kind == TSR_SHARD && p.dim == 0 && tsr_routed_is_weights(x->routed);
      bool differs = is_rows(c, c->n->inputs[i]) ? is_shared(c, c->n->inputs[i], a) != shared
                                                 : x->routed.experts && splits != shared;
      if (many && differs && a != TSR_DP)
        tsr_verify_say_task(
            c->v, c->s, c->task, -1, "%s shares out the experts of only one of '%s' and '%s'",
            tsr_axis_name(a), value(c, rows)->name, x->name);
    }
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
  for (int a = 0; a < TSR_AXES; a++) {
    if (v->placement[a].kind == TSR_ROUTED) here /= l->size[a];
    if (v->placement[a].kind == TSR_SHARD && v->placement[a].dim == 0) tokens /= l->size[a];
  }
  if (c->r->here != here || c->r->tokens != tokens || c->r->experts != v->routed.experts ||
      c->r->choices != v->routed.choices || c->r->slots != v->routed.slots ||
      !tsr_tree_is_subtree(v->routed.experts, here))
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
  if (batch % leaves == 0 && r->leaf_units == batch / leaves && r->leaves * blocks == leaves &&
      tsr_tree_of_is_subtree(u->tree, leaves, r->leaves) && dp &&
      r->unit_tokens * batch == v->routed.tokens * microbatches &&
      r->tokens * ranks == v->routed.tokens)
    return;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1,
      "it sums %lld leaves of %lld batch units of %lld tokens here, the recipe has %lld leaves of "
      "%lld units",
      (long long)r->leaves, (long long)r->leaf_units, (long long)r->unit_tokens, (long long)leaves,
      (long long)(batch / leaves));
}

void tsr_verify_experts(tsr_verify *v, const tsr_verify_subject *s, int task) {
  const tsr_task *t = &s->p->tasks[task];
  check c = {v, s, task, &v->graph->nodes[t->node], t->experts};
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
