/* needs: a whole graph (forward, backward, updates), sizes and units of the axes
 * gives: a graph in which every value has its placement on every axis and every node's inputs are
 * what its rule wants, by inserted collectives breaks: indices; the new graph has its own */
#include "graph/infer.h"
#include "passes/passes.h"
#include "passes/rules.h"
#include <string.h>

typedef struct moved {
  struct moved *next;
  int axis, value;
  tsr_placement to;
} moved;

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  const tsr_placing *placing;
  tsr_diags *diags;
  int *map;     /* old value → new value */
  moved **done; /* per new value: the redistributions that exist */
  int done_capacity;
  bool ok;
} placer;

static bool is_active(const tsr_placing *p, int axis) {
  return p->size[axis] > 1 || p->units[axis] > 1 || (axis == TSR_TP && p->sequence_units > 1);
}

/* A dimension must divide by the ranks, and where units cut it (tp) by the units. */
static int64_t parts(const tsr_placing *p, int axis) {
  return axis == TSR_TP && p->units[axis] > p->size[axis] ? p->units[axis] : p->size[axis];
}

static void check_divides(placer *p, const tsr_value *v) {
  for (int a = 0; a < TSR_AXES; a++) {
    if (v->placement[a].kind != TSR_SHARD) continue;
    int64_t size = v->shape[v->placement[a].dim], n = parts(p->placing, a);
    for (int b = a + 1; b < TSR_AXES; b++)
      if (tsr_placement_equal(v->placement[a], v->placement[b]) && p->placing->size[a] > 1 &&
          p->placing->size[b] > 1)
        p->ok = tsr_diag_error(
            p->diags, v->place, "'%s' %s cannot be split along dimension %d over both %s and %s",
            v->name, tsr_shape_text(v->ndim, v->shape), v->placement[a].dim, tsr_axis_name(a),
            tsr_axis_name(b));
    if (size % n == 0) continue;
    p->ok = tsr_diag_error(
        p->diags, v->place,
        "'%s' %s cannot be split over %s: dimension %d has %lld, which %lld does not divide",
        v->name, tsr_shape_text(v->ndim, v->shape), tsr_axis_name(a), v->placement[a].dim,
        (long long)size, (long long)n);
  }
}

static void place_source(placer *p, int old) {
  tsr_value v = p->old->values[old];
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement asked = v.placement[a];
    v.placement[a] = (tsr_placement){TSR_REPLICATE, 0};
    if (!is_active(p->placing, a)) continue;
    if (v.kind == TSR_VALUE_PARAM || v.kind == TSR_VALUE_STATE) v.placement[a] = asked;
    if (v.kind == TSR_VALUE_INPUT && asked.kind == TSR_SHARD) v.placement[a] = asked;
    else if (v.kind == TSR_VALUE_INPUT && a == TSR_DP && v.shape[0] % p->placing->size[a] == 0)
      v.placement[a] = (tsr_placement){TSR_SHARD, 0};
  }
  check_divides(p, &v);
  p->map[old] = tsr_graph_copy_value(p->g, &v);
}

/* ---- redistribution ---- */

static int add_moved(
    placer *p, tsr_op op, tsr_section section, int value, const char *suffix, const double *attr) {
  const tsr_value v = p->g->values[value];
  const char *name = tsr_arena_printf(p->g->arena, "%s.%s", v.name, suffix);
  int id = tsr_graph_add_shaped(p->g, op, section, name, v.place, 1, &value, attr, v.ndim, v.shape);
  tsr_value *out = &p->g->values[id];
  memcpy(out->placement, v.placement, sizeof v.placement);
  out->units = v.units;
  out->dtype = v.dtype;
  return id;
}

static moved **find_moved(placer *p, int value) {
  if (value >= p->done_capacity) {
    int capacity = value * 2 + 64;
    moved **grown = tsr_arena_array(p->g->arena, moved *, capacity);
    if (p->done) memcpy(grown, p->done, sizeof *grown * (size_t)p->done_capacity);
    p->done = grown;
    p->done_capacity = capacity;
  }
  return &p->done[value];
}

/* The op that leads from one placement to another, its attributes, and a name for the result. */
static tsr_op collective_for(
    tsr_placement from, tsr_placement to, int axis, double *attr, const char **ret_name) {
  memset(attr, 0, sizeof *attr * TSR_ATTRS_MAX);
  attr[0] = axis;
  if (from.kind == TSR_PARTIAL && to.kind == TSR_REPLICATE)
    return *ret_name = "reduced", TSR_OP_ALL_REDUCE;
  if (from.kind == TSR_PARTIAL)
    return *ret_name = "scattered", attr[1] = to.dim, TSR_OP_REDUCE_SCATTER;
  if (from.kind == TSR_REPLICATE) return *ret_name = "part", attr[1] = to.dim, TSR_OP_SCATTER;
  if (to.kind == TSR_REPLICATE)
    return *ret_name = "gathered", attr[1] = from.dim, TSR_OP_ALL_GATHER;
  attr[1] = from.dim;
  attr[2] = to.dim;
  return *ret_name = "turned", TSR_OP_ALL_TO_ALL;
}

/* Ops that treat every summand alike, so that units may stay apart through them. */
static bool keeps_units(tsr_op op) { return tsr_op_facts(op) & TSR_FACT_SUMMANDS; }

enum { UNITS_SUMMED = -1 }; /* stands for the axis in the list of what exists */

static int sum_units(placer *p, int value, tsr_section section) {
  if (!p->g->values[value].units) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == UNITS_SUMMED) return m->value;
  int at = add_moved(p, TSR_OP_SUM_UNITS, section, value, "units", NULL);
  p->g->values[at].units = 0;
  moved *m = tsr_arena_alloc(p->g->arena, sizeof *m), **list = find_moved(p, value);
  *m = (moved){.next = *list, .axis = UNITS_SUMMED, .value = at};
  *list = m;
  return at;
}

static const tsr_placement whole = {TSR_REPLICATE, 0};

static int redistribute(placer *p, int value, int axis, tsr_placement to, tsr_section section) {
  tsr_placement from = p->g->values[value].placement[axis];
  if (tsr_placement_equal(from, to)) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == axis && tsr_placement_equal(m->to, to)) return m->value;
  bool kept = axis != TSR_TP && from.kind == TSR_PARTIAL && to.kind == TSR_REPLICATE;
  int at = value;
  if (p->g->values[at].units && !kept) {
    if (axis != TSR_TP && from.kind == TSR_PARTIAL) at = redistribute(p, at, axis, whole, section);
    at = sum_units(p, at, section);
    from = p->g->values[at].placement[axis];
  }
  double attr[TSR_ATTRS_MAX];
  const char *suffix;
  tsr_op op = collective_for(from, to, axis, attr, &suffix);
  const char *name = tsr_arena_printf(p->g->arena, "%s_%s", suffix, tsr_axis_name(axis));
  at = add_moved(p, op, section, at, name, attr);
  p->g->values[at].placement[axis] = to;
  check_divides(p, &p->g->values[at]);
  moved *m = tsr_arena_alloc(p->g->arena, sizeof *m);
  moved **list = find_moved(p, value);
  *m = (moved){*list, axis, at, to};
  *list = m;
  return at;
}

/* ---- nodes ---- */

typedef struct {
  tsr_placement out[TSR_OUTPUTS_MAX][TSR_AXES];
  int64_t units; /* kept apart in the outputs */
} placed;

/* Asks the op's rule for every axis, moves the inputs, and says what the outputs will be. */
static bool place_inputs(placer *p, const tsr_node *n, int *inputs, placed *ret) {
  tsr_placement *in = tsr_arena_array(p->g->arena, tsr_placement, n->inputs_count);
  for (int a = 0; a < TSR_AXES; a++) {
    if (!is_active(p->placing, a)) continue;
    for (int i = 0; i < n->inputs_count; i++)
      in[i] = p->g->values[p->map[n->inputs[i]]].placement[a];
    tsr_rule_call call = {
        .g = p->old, .node = n, .axis = a, .parts = parts(p->placing, a), .in = in};
    int64_t microbatches = a == TSR_DP && p->old->microbatches > 1 ? p->old->microbatches : 1;
    call.sum_units = p->placing->units[a] / microbatches;
    call.sequence_parallel = p->placing->sequence_parallel;
    tsr_rule_apply(&call);
    if (call.error) return tsr_diag_error(p->diags, n->place, "%s", call.error);
    for (int i = 0; i < n->inputs_count; i++)
      inputs[i] = redistribute(p, inputs[i], a, in[i], n->section);
    for (int o = 0; o < n->outputs_count; o++) ret->out[o][a] = call.out[o];
    if (call.units) ret->units = call.units;
  }
  if (keeps_units(n->op)) return true;
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = sum_units(p, inputs[i], n->section);
  return true;
}

/* A sum over rows is made of equal runs of them, one a batch unit; so the batch must come first.
 * Products sum over a dimension of their own, wherever it is. */
static void check_batch_first(placer *p, const tsr_node *n, const int *inputs, tsr_placement out) {
  bool product = tsr_op_facts(n->op) & TSR_FACT_PRODUCT;
  if (out.kind != TSR_PARTIAL || product || n->section == TSR_UPDATE) return;
  for (int i = 0; i < n->inputs_count; i++) {
    const tsr_value *v = &p->g->values[inputs[i]];
    int64_t before = 1;
    if (v->placement[TSR_DP].kind != TSR_SHARD) continue;
    for (int d = 0; d < v->placement[TSR_DP].dim; d++) before *= v->shape[d];
    if (before == 1) continue;
    p->ok = tsr_diag_error(
        p->diags, n->place, "'%s' adds up the batch, which is not the first dimension of '%s' %s",
        n->name, v->name, tsr_shape_text(v->ndim, v->shape));
    return;
  }
}

static void place_node(placer *p, int index) {
  const tsr_node *n = &p->old->nodes[index];
  int *inputs = tsr_arena_array(p->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = p->map[n->inputs[i]];
  placed out = {0};
  if (!place_inputs(p, n, inputs, &out)) p->ok = false;
  check_batch_first(p, n, inputs, out.out[0][TSR_DP]);
  int64_t units = keeps_units(n->op) ? p->g->values[inputs[0]].units : out.units;
  tsr_graph_copy_node(p->g, p->old, index, inputs);
  const tsr_node *fresh = &p->g->nodes[p->g->nodes_count - 1];
  for (int o = 0; o < fresh->outputs_count; o++) {
    tsr_value *v = &p->g->values[fresh->outputs[o]];
    memcpy(v->placement, out.out[o], sizeof v->placement);
    v->units = units;
    p->map[n->outputs[o]] = fresh->outputs[o];
    check_divides(p, v);
  }
}

/* What the user asked to see is complete: no partial values. */
static int complete(placer *p, int value, tsr_section section) {
  for (int a = 0; a < TSR_AXES; a++)
    if (p->g->values[value].placement[a].kind == TSR_PARTIAL)
      value = redistribute(p, value, a, (tsr_placement){TSR_REPLICATE, 0}, section);
  return sum_units(p, value, section);
}

bool tsr_pass_placement(
    const tsr_graph *old, const tsr_placing *placing, tsr_graph **ret_graph, tsr_diags *diags) {
  placer p = {.old = old, .placing = placing, .diags = diags, .ok = true};
  p.g = tsr_graph_new(old->arena, old->name, old->units);
  p.g->params = old->params;
  p.g->params_count = old->params_count;
  p.g->params_capacity = old->params_count;
  p.map = tsr_arena_array(old->arena, int, old->values_count);
  for (int i = 0; i < old->values_count; i++)
    if (old->values[i].kind != TSR_VALUE_NODE) place_source(&p, i);
  for (int i = 0; i < old->nodes_count; i++) place_node(&p, i);
  tsr_section last = old->nodes_count ? old->nodes[old->nodes_count - 1].section : TSR_FORWARD;
  for (int i = 0; i < old->outputs_count; i++)
    tsr_graph_output(p.g, old->outputs[i].name, complete(&p, p.map[old->outputs[i].value], last));
  if (old->loss >= 0) p.g->loss = complete(&p, p.map[old->loss], last);
  p.g->hyper = old->hyper < 0 ? -1 : p.map[old->hyper];
  if (old->grads) {
    p.g->grads_count = old->grads_count;
    p.g->grads = tsr_arena_array(old->arena, int, old->grads_count);
    for (int i = 0; i < old->grads_count; i++)
      p.g->grads[i] = old->grads[i] < 0 ? -1 : p.map[old->grads[i]];
  }
  *ret_graph = p.g;
  return p.ok;
}
