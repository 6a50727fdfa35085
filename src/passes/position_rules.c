// SPDX-License-Identifier: Apache-2.0
#include "passes/position_rules.h"
#include "passes/placement_rules.h"

tsr_positions tsr_positions_new(const tsr_graph *g, int64_t length) {
  tsr_positions p = {
      .g = g, .length = length, .dim = tsr_arena_array(g->arena, int, g->values_count)};
  for (int v = 0; v < g->values_count; v++) p.dim[v] = -1;
  return p;
}

const char *tsr_positions_describe(const tsr_positions *p, const tsr_node *n) {
  return tsr_arena_printf(p->g->arena, "%s '%s'", tsr_op_title(n->op), n->name);
}

bool tsr_positions_refuse(tsr_positions *p, const tsr_node *n, const char *what) {
  p->why = tsr_arena_printf(p->g->arena, "%s %s", tsr_positions_describe(p, n), what);
  return false;
}

bool tsr_positions_reads_rows(const tsr_node *n) {
  return tsr_op_facts(n->op) & TSR_FACT_ROUTED || n->op == TSR_OP_EXPERT_PLAN;
}

bool tsr_positions_has(const tsr_positions *p, const tsr_node *n) {
  for (int i = 0; i < n->inputs_count; i++)
    if (p->dim[n->inputs[i]] >= 0) return true;
  return false;
}

/* As a rule sees a value with positions: where ops of experts read or write it, batch and positions
 * are one dimension, of tokens. */
static tsr_placement split_of(const tsr_node *n, int dim) {
  bool rows = tsr_positions_reads_rows(n);
  return (tsr_placement){dim < 0 ? TSR_REPLICATE : TSR_SHARD, dim < 0 || rows ? 0 : dim};
}

/* Which dimension of an output are positions, or rows of tokens. */
static int dim_of(const tsr_positions *p, const tsr_node *n, int output, tsr_placement is) {
  if (is.kind != TSR_SHARD) return -1;
  if (!tsr_positions_reads_rows(n)) return is.dim;
  return tsr_routed_is_rows(p->g->values[n->outputs[output]].routed) ? 0 : 1;
}

/* Asks the rule what becomes of positions that are split to single ones; in: what it requires. */
static bool ask_rule(tsr_positions *p, const tsr_node *n, tsr_placement *in) {
  tsr_placement_rule_call call = {
      .g = p->g, .node = n, .axis = TSR_CP, .parts = p->length, .in = in};
  bool adds = p->adds && tsr_op_facts(n->op) & TSR_FACT_LOSS;
  if (tsr_positions_reads_rows(n)) call.axis = TSR_DP;
  call.placed = p->g;
  call.inputs = n->inputs;
  for (int i = 0; i < n->inputs_count; i++) in[i] = split_of(n, p->dim[n->inputs[i]]);
  tsr_placement_rule_apply(&call);
  if (call.error) return p->why = call.error, false;
  for (int o = 0; o < n->outputs_count; o++) {
    p->dim[n->outputs[o]] = dim_of(p, n, o, call.out[o]);
    if (call.out[o].kind == TSR_PARTIAL && !adds)
      return tsr_positions_refuse(p, n, "adds up positions");
  }
  return true;
}

/* The rule's answer for an input: that it stays as it is, or that a table's rows are to be looked
 * up. */
static bool classify(
    tsr_positions *p, const tsr_node *n, int i, tsr_placement wanted, tsr_position_input *ret) {
  const tsr_value *v = &p->g->values[n->inputs[i]];
  int dim = p->dim[n->inputs[i]];
  tsr_placement as = split_of(n, dim);
  bool rope = n->op == TSR_OP_ROPE && i == 1, adds = n->op == TSR_OP_ADD || n->op == TSR_OP_MUL;
  *ret = TSR_POSITIONS_KEPT;
  if (wanted.kind == as.kind && (dim < 0 || wanted.dim == as.dim)) return true;
  if (dim < 0 && rope) return *ret = TSR_POSITIONS_ROPE, true;
  const tsr_value *first = &p->g->values[n->inputs[0]];
  bool rows = wanted.kind == TSR_SHARD && wanted.dim == 0;
  if (dim < 0 && adds && i == 1 && v->ndim == 2 && rows && first->ndim == 3 &&
      p->dim[n->inputs[0]] == 1)
    return *ret = TSR_POSITIONS_TABLE, true;
  return tsr_positions_refuse(
      p, n, tsr_arena_printf(p->g->arena, "takes '%s' of other positions", v->name));
}

static bool check_rows(tsr_positions *p, const tsr_node *n) {
  for (int i = 0; i < n->inputs_count; i++) {
    const tsr_value *v = &p->g->values[n->inputs[i]];
    int dim = p->dim[n->inputs[i]];
    if (dim >= 0 && dim != (tsr_routed_is_rows(v->routed) ? 0 : 1))
      return tsr_positions_refuse(
          p, n, tsr_arena_printf(p->g->arena, "takes '%s' transposed", v->name));
  }
  return true;
}

static bool is_attention(const tsr_positions *p, const tsr_node *n) {
  for (int i = 0; i < 3; i++)
    if (p->dim[n->inputs[i]] != 1) return false;
  return true;
}

bool tsr_positions_inputs(tsr_positions *p, const tsr_node *n, tsr_position_input *ret_inputs) {
  tsr_placement *in = tsr_arena_array(p->g->arena, tsr_placement, n->inputs_count);
  if (!p->adds && tsr_op_facts(n->op) & TSR_FACT_RANDOM && n->op != TSR_OP_ATTENTION)
    return tsr_positions_refuse(p, n, "draws random numbers");
  if (n->op == TSR_OP_ATTENTION && !is_attention(p, n))
    return tsr_positions_refuse(p, n, "is not of the text's positions");
  if (tsr_positions_reads_rows(n) && !check_rows(p, n)) return false;
  if (!ask_rule(p, n, in)) return false;
  for (int i = 0; i < n->inputs_count; i++)
    if (!classify(p, n, i, in[i], &ret_inputs[i])) return false;
  return true;
}

int tsr_positions_table(const tsr_graph *g, int value, int64_t *ret_begin) {
  const tsr_value *v = &g->values[value];
  const tsr_node *made = v->kind == TSR_VALUE_NODE ? &g->nodes[v->node] : NULL;
  *ret_begin = 0;
  if (!made || made->op != TSR_OP_SLICE || made->attr.slice.dim != 0) return value;
  *ret_begin = made->attr.slice.begin;
  return made->inputs[0];
}
