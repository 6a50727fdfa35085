// SPDX-License-Identifier: Apache-2.0
/* Mutations of nodes of the placed graph, from which the programs are lowered anew. */
#include "mutations.h"

const char *const mutation_kind_names[MUTATION_KINDS] = {"forward graph", "placed graph", "program",
                                                         "collective",    "schedule",     "units"};

typedef bool node_kind(const bug *b, const tsr_node *n);

static bool is_forward(const tsr_node *n) { return n->section == TSR_FORWARD && !n->again; }

static int pick(bug *b, node_kind *wanted) {
  int count = 0, chosen = -1;
  for (int i = 0; i < b->g->nodes_count; i++)
    if (wanted(b, &b->g->nodes[i]) && mutation_below(b, ++count) == 0) chosen = i;
  return b->node = chosen;
}

static bool lower(bug *b) { return bug_lower(b, NULL, NULL), true; }

/* ---- operands ---- */

static bool alike(const tsr_value *a, const tsr_value *b) {
  bool same = a->ndim == b->ndim && a->dtype == b->dtype && a->units == b->units &&
              a->batch_units == b->batch_units && a->kind == b->kind &&
              !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
  for (int axis = 0; axis < TSR_AXES; axis++)
    same &=
        a->placement[axis].kind == b->placement[axis].kind &&
        (a->placement[axis].kind != TSR_SHARD || a->placement[axis].dim == b->placement[axis].dim);
  return same;
}

static int operands(const tsr_node *n) {
  return tsr_op_facts(n->op) & TSR_FACT_SHAPED ? n->inputs_count - 1 : n->inputs_count;
}

static bool has_alike(const bug *b, const tsr_node *n) {
  for (int i = 0; i < operands(n); i++)
    for (int k = 0; k < i; k++)
      if (n->inputs[i] != n->inputs[k] &&
          alike(&b->g->values[n->inputs[i]], &b->g->values[n->inputs[k]]))
        return true;
  return false;
}
static bool forward_pair(const bug *b, const tsr_node *n) {
  return is_forward(n) && has_alike(b, n);
}
static bool other_pair(const bug *b, const tsr_node *n) {
  return !is_forward(n) && has_alike(b, n);
}

static bool swap_operands(bug *b, node_kind *wanted) {
  if (pick(b, wanted) < 0) return false;
  tsr_node *n = &b->g->nodes[b->node];
  for (;;) {
    int i = mutation_below(b, operands(n)), k = mutation_below(b, operands(n)), v = n->inputs[i];
    if (v == n->inputs[k] || !alike(&b->g->values[v], &b->g->values[n->inputs[k]])) continue;
    n->inputs[i] = n->inputs[k];
    n->inputs[k] = v;
    return lower(b);
  }
}
static bool swap_forward(bug *b) { return swap_operands(b, forward_pair); }
static bool swap_other(bug *b) { return swap_operands(b, other_pair); }

static int stage_of(const bug *b, int value) { return tsr_value_stage(b->g, value); }

/* Another value that is made before, of the same stage and section. */
static int find_other(bug *b, int node, int input) {
  const tsr_graph *g = b->g;
  const tsr_node *n = &g->nodes[node];
  const tsr_value *now = &g->values[n->inputs[input]];
  int count = 0, chosen = -1;
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *other = &g->values[v];
    if (v == n->inputs[input] || !alike(now, other)) continue;
    bool before = other->kind != TSR_VALUE_NODE || other->node < node;
    bool near = other->kind != TSR_VALUE_NODE || g->nodes[other->node].section == n->section ||
                (g->nodes[other->node].section == TSR_FORWARD && n->section == TSR_BACKWARD);
    if (before && near && stage_of(b, v) == stage_of(b, n->inputs[input]) &&
        mutation_below(b, ++count) == 0)
      chosen = v;
  }
  return chosen;
}

static bool replace_operand(bug *b, bool forward) {
  for (int tries = 0; tries < 100; tries++) {
    int node = mutation_below(b, b->g->nodes_count);
    tsr_node *n = &b->g->nodes[node];
    if (is_forward(n) != forward || !operands(n)) continue;
    int input = mutation_below(b, operands(n)), other = find_other(b, node, input);
    if (other < 0) continue;
    n->inputs[input] = other;
    b->node = node;
    return lower(b);
  }
  return false;
}
static bool replace_forward(bug *b) { return replace_operand(b, true); }
static bool replace_other(bug *b) { return replace_operand(b, false); }

/* ---- attributes ---- */

static bool is_free(const tsr_attr_field *f) {
  return f->type == TSR_ATTR_i64 || f->type == TSR_ATTR_flag || f->type == TSR_ATTR_positions ||
         f->type == TSR_ATTR_f64 || f->type == TSR_ATTR_nonneg || f->type == TSR_ATTR_positive ||
         f->type == TSR_ATTR_fraction;
}
static bool has_attr(const tsr_node *n) {
  const tsr_attr_set *set = tsr_op_attrs(n->op);
  for (int i = 0; i < set->count; i++)
    if (is_free(&set->fields[i])) return true;
  return false;
}
static bool forward_attr(const bug *b, const tsr_node *n) {
  return (void)b, is_forward(n) && has_attr(n);
}
static bool other_attr(const bug *b, const tsr_node *n) {
  return (void)b, !is_forward(n) && has_attr(n);
}

static double another(bug *b, tsr_attr_type type, double now) {
  if (type == TSR_ATTR_flag) return now == 0;
  if (type == TSR_ATTR_i64 || type == TSR_ATTR_positions)
    return now > 1 && mutation_below(b, 2) ? (double)((int64_t)now / 2) : now + 1;
  if (type == TSR_ATTR_fraction) return now > 0 ? now / 2 : 0.25;
  return now == 0 ? 0.5 : now * (mutation_below(b, 2) ? 4 : 0.25);
}

static bool change_attr(bug *b, node_kind *wanted) {
  if (pick(b, wanted) < 0) return false;
  tsr_node *n = &b->g->nodes[b->node];
  const tsr_attr_set *set = tsr_op_attrs(n->op);
  const tsr_attr_field *f;
  do f = &set->fields[mutation_below(b, set->count)];
  while (!is_free(f));
  tsr_attr_set_number(f, &n->attr, another(b, f->type, tsr_attr_number(f, &n->attr)));
  return lower(b);
}
static bool change_forward(bug *b) { return change_attr(b, forward_attr); }
static bool change_other(bug *b) { return change_attr(b, other_attr); }

static bool is_norm(const bug *b, const tsr_node *n) {
  return (void)b, is_forward(n) && (n->op == TSR_OP_RMSNORM || n->op == TSR_OP_LAYERNORM);
}
static bool change_eps(bug *b) {
  if (pick(b, is_norm) < 0) return false;
  b->g->nodes[b->node].attr.norm.eps *= mutation_below(b, 2) ? 10 : 0.1;
  return lower(b);
}

/* ---- ops ---- */

static bool is_unary(const bug *b, const tsr_node *n) {
  return (void)b, is_forward(n) && n->inputs_count == 1 && tsr_op_function(n->op) == n->op &&
                      (n->op == TSR_OP_GELU || n->op == TSR_OP_SILU || n->op == TSR_OP_SIGMOID);
}
static bool is_gated(const bug *b, const tsr_node *n) {
  return (void)b, is_forward(n) && (n->op == TSR_OP_SWIGLU || n->op == TSR_OP_GEGLU);
}
static bool change_op(bug *b) {
  if (pick(b, mutation_below(b, 2) ? is_unary : is_gated) < 0) return false;
  tsr_node *n = &b->g->nodes[b->node];
  n->op = n->op == TSR_OP_SWIGLU  ? TSR_OP_GEGLU
          : n->op == TSR_OP_GEGLU ? TSR_OP_SWIGLU
          : n->op == TSR_OP_GELU  ? TSR_OP_GELU_ERF
                                  : TSR_OP_GELU;
  return lower(b);
}

/* ---- more nodes, other random numbers, placements ---- */

static bool is_scalable(const bug *b, const tsr_node *n) {
  const tsr_value *v = n->outputs_count ? &b->g->values[n->outputs[0]] : NULL;
  return v && v->dtype == TSR_F32 && n->op != TSR_OP_RECEIVE &&
         !(tsr_op_facts(n->op) & (TSR_FACT_SIZED | TSR_FACT_UPDATE | TSR_FACT_EVERYWHERE));
}
static bool scale_value(bug *b) {
  static const double factors[] = {0.5, 2, -1, 1.0000001, 1};
  if (pick(b, is_scalable) < 0) return false;
  double factor = factors[mutation_below(b, sizeof factors / sizeof *factors)];
  b->node =
      bug_insert(b, b->g->nodes[b->node].outputs[0], TSR_OP_SCALE, &(tsr_attrs){.scale = {factor}});
  return lower(b);
}

static bool is_random(const bug *b, const tsr_node *n) {
  return (void)b, tsr_op_facts(n->op) & TSR_FACT_RANDOM && tsr_node_dropout(n) > 0;
}
static bool change_stream(bug *b) {
  if (pick(b, is_random) < 0) return false;
  b->g->nodes[b->node].stream = "another";
  return lower(b);
}

static bool is_placed(const bug *b, const tsr_node *n) {
  return n->outputs_count && tsr_op_is_collective(n->op) == false && b->g->nodes_count > 0;
}
static bool change_placement(bug *b) {
  if (pick(b, is_placed) < 0) return false;
  tsr_value *v = &b->g->values[b->g->nodes[b->node].outputs[0]];
  int axis = mutation_below(b, TSR_AXES);
  tsr_placement *p = &v->placement[axis];
  if (b->plan.shape.size[axis] < 2) return false;
  p->kind = p->kind == TSR_REPLICATE ? TSR_PARTIAL : TSR_REPLICATE;
  return lower(b);
}

static const mutation table[] = {
    {MUTATE_FORWARD, "operands swapped", swap_forward, "operands of an op that commutes"},
    {MUTATE_FORWARD, "another operand", replace_forward, "a value with the same numbers"},
    {MUTATE_FORWARD, "another attribute", change_forward,
     "an attribute that is another name of the same, or that the forward pass does not read"},
    {MUTATE_FORWARD, "another epsilon", change_eps, NULL},
    {MUTATE_FORWARD, "another op", change_op, NULL},
    {MUTATE_GRAPH, "operands swapped", swap_other, "operands of an op that commutes"},
    {MUTATE_GRAPH, "another operand", replace_other,
     "a value with the same numbers, as what is recomputed has"},
    {MUTATE_GRAPH, "another attribute", change_other,
     "an attribute that is another name of the same, or that the op does not read here"},
    {MUTATE_GRAPH, "a scale", scale_value, "a factor that rounds to 1, or of what is not read"},
    {MUTATE_GRAPH, "another random stream", change_stream, NULL},
    {MUTATE_GRAPH, "another placement", change_placement,
     "what ranks that compute the same call partial or whole"},
};
const mutation_table graph_mutations = {table, (int)(sizeof table / sizeof *table)};
