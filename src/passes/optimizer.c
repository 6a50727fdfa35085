// SPDX-License-Identifier: Apache-2.0
/* requires: gradients (after autodiff)
 * produces: the gradients' norm, clipping, one update a parameter
 * invalidates: nothing
 *
 * Each gradient's part of the norm, and where no update waits for the norm each update, needs that
 * gradient alone, so that a schedule may put it right behind it (schedule/sink_updates.c). */
#include "passes/passes.h"
#include "graph/routing.h"
#include <assert.h>

typedef struct {
  tsr_graph *g;
  const tsr_optimizer *o;
  int clip; /* the norm's result, an input of the updates; -1: none */
} updates;

static int state(const updates *u, int param, const char *what) {
  const char *name = tsr_arena_printf(u->g->arena, "%s.%s", u->g->params[param].name, what);
  return tsr_graph_state(u->g, name, param);
}

/* What rounding has lost of a parameter that is stored in bf16; the last input. */
static int add_compensation(const updates *u, int param, int count, int *inputs) {
  if (u->o->store != TSR_STORE_KAHAN) return count;
  inputs[count] = state(u, param, "compensation");
  u->g->values[inputs[count]].dtype = TSR_BF16;
  return count + 1;
}

static const char *update_name(const updates *u, int param) {
  return tsr_arena_printf(u->g->arena, "update.%s", u->g->params[param].name);
}

static void add_adamw(const updates *u, int param, int weight, int grad) {
  const tsr_optimizer *o = u->o;
  double decay = u->g->params[param].decay ? o->weight_decay : 0;
  tsr_attrs attr = {.adamw = {o->beta1, o->beta2, o->eps, decay, o->amsgrad, o->store, o->coupled}};
  int count = 5,
      inputs[8] = {
          weight, grad, state(u, param, "m"), state(u, param, "v"), tsr_graph_step_scalars(u->g)};
  if (u->clip >= 0) inputs[count++] = u->clip;
  if (o->amsgrad) inputs[count++] = state(u, param, "v_max");
  count = add_compensation(u, param, count, inputs);
  tsr_graph_add(
      u->g, TSR_OP_ADAMW, TSR_UPDATE, update_name(u, param), u->g->params[param].location, count,
      inputs, &attr);
}

static void add_sgd(const updates *u, int param, int weight, int grad) {
  const tsr_optimizer *o = u->o;
  double decay = u->g->params[param].decay ? o->weight_decay : 0;
  tsr_attrs attr = {.sgd = {o->momentum, o->dampening, decay, o->nesterov, o->store}};
  int count = 3, inputs[6] = {weight, grad, tsr_graph_step_scalars(u->g)};
  if (u->clip >= 0) inputs[count++] = u->clip;
  if (o->momentum != 0) inputs[count++] = state(u, param, "momentum");
  count = add_compensation(u, param, count, inputs);
  tsr_graph_add(
      u->g, TSR_OP_SGD, TSR_UPDATE, update_name(u, param), u->g->params[param].location, count,
      inputs, &attr);
}

static void add_update(const updates *u, int weight) {
  int param = u->g->values[weight].param;
  if (u->o->kind == TSR_RULE_ADAMW) add_adamw(u, param, weight, u->g->grads[param]);
  if (u->o->kind == TSR_RULE_SGD) add_sgd(u, param, weight, u->g->grads[param]);
}

/* One gradient's sums of squares. */
static int add_stats(const updates *u, int param) {
  const tsr_param *p = &u->g->params[param];
  const char *name = tsr_arena_printf(u->g->arena, "norm_stats.%s", p->name);
  return tsr_graph_add(
      u->g, TSR_OP_NORM_STATS, TSR_UPDATE, name, p->location, 1, &u->g->grads[param], NULL);
}

/* The norm over all gradients (parameters in their order) and the factor that clips it. */
static int add_clip(const updates *u, const int *stats, int count) {
  int all = tsr_graph_add(
      u->g, TSR_OP_NORM_JOIN, TSR_UPDATE, "norm_stats", TSR_NOWHERE, count, stats, NULL);
  tsr_attrs attr = {.clip = {u->o->clip_max_norm}};
  return tsr_graph_add(u->g, TSR_OP_CLIP, TSR_UPDATE, "clip", TSR_NOWHERE, 1, &all, &attr);
}

/* ---- what balances experts ---- */

static int
add_update_of(const updates *u, tsr_op op, int param, int counts, const tsr_attrs *attr) {
  int inputs[3] = {param, counts, u->clip}, id = u->g->values[param].param;
  return tsr_graph_add(
      u->g, op, TSR_UPDATE, update_name(u, id), u->g->params[id].location,
      u->clip >= 0 && u->o->may_skip ? 3 : 2, inputs, attr);
}

/* The choices of a step's tokens, by expert: an output of the graph. */
static int add_counts(tsr_graph *g, int node, int64_t experts, const char *name) {
  const tsr_node of = g->nodes[node];
  tsr_attrs attrs = {.expert_counts = {experts, false}};
  g->of = node;
  g->block = of.block;
  int counts = tsr_graph_add(
      g, TSR_OP_EXPERT_COUNTS, TSR_BACKWARD, name, of.location, 1, of.outputs, &attrs);
  if (g->microbatches > 1)
    counts = tsr_graph_add(
        g, TSR_OP_ACCUMULATE, TSR_BACKWARD, tsr_arena_printf(g->arena, "sum.%s", name), of.location,
        1, &counts, NULL);
  g->of = g->block = -1;
  tsr_graph_output(g, name, counts);
  return counts;
}

static void update_experts(const updates *u, int node, int counts) {
  tsr_graph *g = u->g;
  const tsr_node of = g->nodes[node];
  const tsr_choose_experts_attrs *a = &of.attr.choose_experts;
  bool has_bias = tsr_choice_has_bias(&of) && a->bias_rate > 0;
  if (has_bias && !g->params[g->values[of.inputs[1]].param].is_frozen)
    add_update_of(
        u, TSR_OP_EXPERT_BIAS, of.inputs[1], counts,
        &(tsr_attrs){.expert_bias = {a->bias_rate, a->bias_centre}});
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op == TSR_OP_BALANCE_LOSS && n->inputs_count == 3 && n->inputs[1] == of.outputs[0])
      add_update_of(u, TSR_OP_EXPERT_LOAD, n->inputs[2], counts, NULL);
  }
}

/* The rows that plans with a capacity have. */
static void add_kept(tsr_graph *g, int node) {
  const tsr_node *n = &g->nodes[node];
  const tsr_value *plan = &g->values[n->outputs[0]];
  if (!plan->routed.slots) return;
  const char *of = g->nodes[g->values[n->inputs[0]].node].name;
  add_counts(g, node, plan->routed.experts, tsr_arena_printf(g->arena, TSR_EXPERT_ROWS "%s", of));
}

static void add_experts(const updates *u) {
  tsr_graph *g = u->g;
  for (int i = 0, nodes = g->nodes_count; i < nodes; i++) {
    const tsr_node n = g->nodes[i];
    if (n.section != TSR_FORWARD) continue;
    if (n.op == TSR_OP_EXPERT_PLAN) add_kept(g, i);
    if (n.op != TSR_OP_CHOOSE_EXPERTS) continue;
    const tsr_value *scores = &g->values[n.inputs[0]];
    const char *name = tsr_arena_printf(g->arena, TSR_EXPERT_COUNTS "%s", n.name);
    update_experts(u, i, add_counts(g, i, scores->shape[scores->ndim - 1], name));
  }
}

void tsr_pass_optimizer(tsr_graph *g, const tsr_optimizer *optimizer) {
  updates u = {.g = g, .o = optimizer, .clip = -1};
  bool waits = optimizer->clip_max_norm > 0 || optimizer->may_skip;
  int *stats = tsr_arena_array(g->arena, int, g->params_count), count = 0;
  int values = g->values_count;
  for (int v = 0; v < values; v++) {
    if (g->values[v].kind != TSR_VALUE_PARAM || g->grads[g->values[v].param] < 0) continue;
    stats[g->values[v].param] = add_stats(&u, g->values[v].param);
    if (!waits) add_update(&u, v);
  }
  for (int p = 0; p < g->params_count; p++)
    if (g->grads[p] >= 0) stats[count++] = stats[p];
  if (count) u.clip = add_clip(&u, stats, count);
  if (count) tsr_graph_output(g, "clip", u.clip);
  add_experts(&u);
  for (int v = 0; v < values && waits; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM && g->grads[g->values[v].param] >= 0)
      add_update(&u, v);
}
