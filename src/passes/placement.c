/* needs: a whole graph (forward, backward, updates), sizes and units of the axes
 * gives: a graph in which every value has its placement on every axis and every node's inputs are
 * what its rule wants, by inserted collectives breaks: indices; the new graph has its own */
#include "graph/infer.h"
#include "passes/passes.h"
#include "passes/rules.h"
#include <string.h>

/* Where in the step a node is put. */
typedef struct {
  tsr_section section;
  int stage, block;
} where;

/* A value that another one was made into: over an axis, or by one of the moves below. */
enum { UNITS_SUMMED = -1, RECEIVED = -2, BATCH_SUMMED = -3 };
typedef struct moved {
  struct moved *next;
  int axis, value;
  tsr_placement to;
  where at;
} moved;

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  const tsr_placing *placing;
  tsr_diags *diags;
  int *map;     /* old value → new value */
  moved **done; /* per new value: the redistributions that exist */
  int done_capacity;
  bool *of_batch;        /* per old value: whether it depends on an input */
  tsr_placement *wanted; /* per old value: what ZeRO makes of a gradient over dp; else whole */
  bool ok;
} placer;

static bool is_active(const tsr_placing *p, int axis) {
  return p->size[axis] > 1 || p->units[axis] > 1 || (axis == TSR_TP && p->sequence_units > 1);
}

static const tsr_placement whole = {TSR_REPLICATE, 0};

/* A dimension must divide by the ranks, and where units cut it (tp, cp) by the units. */
static int64_t parts(const tsr_placing *p, int axis) {
  bool cut = axis == TSR_TP || axis == TSR_CP;
  return cut && p->units[axis] > p->size[axis] ? p->units[axis] : p->size[axis];
}

static void check_divides(placer *p, const tsr_value *v) {
  for (int a = 0; a < TSR_AXES; a++) {
    if (v->placement[a].kind != TSR_SHARD) continue;
    int64_t size = v->shape[v->placement[a].dim], n = parts(p->placing, a);
    if (v->placement[a].groups > 1) n = tsr_placement_blocks(v->placement[a], (int)n);
    for (int b = a + 1; b < TSR_AXES; b++)
      if (tsr_placement_equal(v->placement[a], v->placement[b]) && p->placing->size[a] > 1 &&
          p->placing->size[b] > 1 && !(a == TSR_CP && b == TSR_TP)) /* tp cuts what cp leaves */
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

int tsr_zero_dim(int ndim, tsr_placement tp) {
  if (tp.kind != TSR_SHARD || tp.dim > 0) return 0;
  return ndim == 2 ? 1 : -1;
}

/* Where ZeRO keeps a parameter, its state and its gradient over dp. */
static tsr_placement zero_placement(const placer *p, int param) {
  const tsr_param *q = &p->old->params[param];
  tsr_placement tp = is_active(p->placing, TSR_TP) ? q->placement[TSR_TP] : whole;
  int dim = tsr_zero_dim(q->ndim, tp);
  int groups = p->placing->zero_groups > 1 ? p->placing->zero_groups : 0;
  tsr_placement shard = {TSR_SHARD, dim, groups};
  if (!p->placing->zero || p->placing->size[TSR_DP] == 1 || dim < 0) return whole;
  return q->shape[dim] % tsr_placement_blocks(shard, p->placing->size[TSR_DP]) ? whole : shard;
}

/* Of which the sums of one microbatch are made. */
static int64_t units_of_microbatch(const placer *p, int axis) {
  bool several = axis == TSR_DP && p->old->microbatches > 1;
  return p->placing->units[axis] / (several ? p->old->microbatches : 1);
}

static void place_source(placer *p, int old) {
  tsr_value v = p->old->values[old];
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement asked = v.placement[a];
    v.placement[a] = (tsr_placement){TSR_REPLICATE, 0};
    if (!is_active(p->placing, a)) continue;
    if (v.kind == TSR_VALUE_PARAM || v.kind == TSR_VALUE_STATE) v.placement[a] = asked;
    if (v.kind == TSR_VALUE_INPUT && asked.kind == TSR_SHARD) v.placement[a] = asked;
    else if (v.kind == TSR_VALUE_INPUT && a == TSR_DP && v.shape[0] % units_of_microbatch(p, a) == 0)
      v.placement[a] = (tsr_placement){TSR_SHARD, 0};
    else if (v.kind == TSR_VALUE_INPUT && a == TSR_CP && v.ndim == 2 && v.dtype == TSR_I32)
      v.placement[a] = (tsr_placement){TSR_SHARD, 1};
    else if (v.kind == TSR_VALUE_CONST && a == TSR_CP && v.init.kind == TSR_INIT_ROPE)
      v.placement[a] = (tsr_placement){TSR_SHARD, 0};
  }
  tsr_placement zero = v.param < 0 ? whole : zero_placement(p, v.param);
  if (zero.kind == TSR_SHARD) v.placement[TSR_DP] = zero;
  check_divides(p, &v);
  p->map[old] = tsr_graph_copy_value(p->g, &v);
}

/* ---- redistribution ---- */

static int
add_moved(placer *p, tsr_op op, where at, int value, const char *suffix, const double *attr) {
  const tsr_value v = p->g->values[value];
  const char *name = tsr_arena_printf(p->g->arena, "%s.%s", v.name, suffix);
  int id =
      tsr_graph_add_shaped(p->g, op, at.section, name, v.place, 1, &value, attr, v.ndim, v.shape);
  p->g->nodes[p->g->nodes_count - 1].stage = at.stage;
  p->g->nodes[p->g->nodes_count - 1].block = at.block;
  tsr_value *out = &p->g->values[id];
  memcpy(out->placement, v.placement, sizeof v.placement);
  out->units = v.units;
  out->units_of_sequence = v.units_of_sequence;
  out->batch_units = v.batch_units;
  out->dtype = v.dtype;
  out->completes_to = v.completes_to;
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

static void remember(placer *p, int value, moved m) {
  moved *fresh = tsr_arena_alloc(p->g->arena, sizeof *fresh), **list = find_moved(p, value);
  *fresh = m;
  fresh->next = *list;
  *list = fresh;
}

/* A weight's gradient may be the first to ask for what other nodes of the backward pass need as
 * well, and those run before it. */
static where not_late(const placer *p, int value, where at) {
  const tsr_value *v = &p->g->values[value];
  bool late = v->kind == TSR_VALUE_NODE && p->g->nodes[v->node].section == TSR_WEIGHTS;
  if (at.section == TSR_WEIGHTS && !late) at.section = TSR_BACKWARD;
  return at;
}

/* What is added to complete a value is added where the value is. Another stage's backward pass needs
 * it before this one's begins, so what the forward pass made is completed there. */
static where home(const placer *p, int value, where at) {
  at = not_late(p, value, at);
  const tsr_value *v = &p->g->values[value];
  int stage = tsr_value_stage(p->g, value);
  bool forward = v->kind == TSR_VALUE_NODE && p->g->nodes[v->node].section == TSR_FORWARD;
  if (stage >= 0 && stage != at.stage && forward && at.section == TSR_BACKWARD)
    at.section = TSR_FORWARD;
  if (stage >= 0) at.stage = stage;
  return at;
}

/* Partial over the axes that split positions. */
static bool is_split_sum(const tsr_value *v) {
  return v->placement[TSR_CP].kind == TSR_PARTIAL || v->placement[TSR_TP].kind == TSR_PARTIAL;
}

static int sum_units(placer *p, int value, where at) {
  if (!p->g->values[value].units) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == UNITS_SUMMED) return m->value;
  int sum = add_moved(p, TSR_OP_SUM_UNITS, home(p, value, at), value, "units", NULL);
  p->g->values[sum].units = 0;
  p->g->values[sum].units_of_sequence &= is_split_sum(&p->g->values[sum]);
  remember(p, value, (moved){.axis = UNITS_SUMMED, .value = sum});
  return sum;
}

/* What cp has completed of each batch unit of this rank's microbatch becomes one. */
static int sum_batch(placer *p, int value, where at) {
  if (!p->g->values[value].batch_units) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == BATCH_SUMMED) return m->value;
  int sum = add_moved(p, TSR_OP_SUM_UNITS, home(p, value, at), value, "batch", NULL);
  p->g->values[sum].batch_units = 0;
  remember(p, value, (moved){.axis = BATCH_SUMMED, .value = sum});
  return sum;
}

/* The value on another stage of the pipeline. What is there before the first microbatch is sent
 * then. */
static int receive(placer *p, int value, where at) {
  int from = tsr_value_stage(p->g, value);
  if (from < 0 || at.stage < 0 || from == at.stage) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == RECEIVED && m->at.stage == at.stage) return m->value;
  const tsr_value *v = &p->g->values[value];
  bool early = v->kind != TSR_VALUE_NODE || p->g->nodes[v->node].section == TSR_PROLOGUE;
  if (early && at.section != TSR_UPDATE) at.section = TSR_PROLOGUE;
  at = not_late(p, value, at);
  const char *suffix = tsr_arena_printf(p->g->arena, "stage%d", at.stage);
  int there = add_moved(p, TSR_OP_RECEIVE, at, value, suffix, NULL);
  remember(p, value, (moved){.axis = RECEIVED, .value = there, .at = at});
  return there;
}

/* What is gathered is gathered again where it is needed in another pass or on another stage, rather
 * than kept. */
static bool is_found(const moved *m, int axis, tsr_placement from, tsr_placement to, where at) {
  if (m->axis != axis || !tsr_placement_equal(m->to, to)) return false;
  return from.kind != TSR_SHARD || (m->at.section == at.section && m->at.stage == at.stage);
}

static bool is_complete(const tsr_value *v) {
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_PARTIAL) return false;
  return v->units == 0 && v->batch_units == 0;
}

/* Summands stay in f32; their sum is rounded once, so its bits do not depend on where they were. */
static int round_complete(placer *p, int value, where at) {
  const tsr_value v = p->g->values[value];
  if (v.completes_to == TSR_F32 || !is_complete(&v)) return value;
  int id = add_moved(p, TSR_OP_CAST, at, value, tsr_dtype_name(v.completes_to), NULL);
  p->g->values[id].dtype = v.completes_to;
  p->g->values[id].completes_to = TSR_F32;
  return id;
}

static int redistribute(placer *p, int value, int axis, tsr_placement to, where at);

static bool is_partial(const placer *p, int value, int axis) {
  return p->g->values[value].placement[axis].kind == TSR_PARTIAL;
}

/* Partial sums over several axes are completed in the order of the units: what a batch unit's
 * positions make before the batch units, but where positions are kept apart those come last, and
 * of them those that tp splits before those that cp does. */
static int complete_before(placer *p, int value, int axis, where at) {
  const tsr_value *v = &p->g->values[value];
  if (!v->units_of_sequence) {
    bool first = axis == TSR_DP || (v->batch_units && axis != TSR_CP);
    if (first && is_partial(p, value, TSR_CP)) value = redistribute(p, value, TSR_CP, whole, at);
    return first ? sum_batch(p, value, at) : value;
  }
  if (axis != TSR_CP) return value;
  if (is_partial(p, value, TSR_DP)) value = redistribute(p, value, TSR_DP, whole, at);
  if (is_partial(p, value, TSR_TP)) return redistribute(p, value, TSR_TP, whole, at);
  return sum_units(p, value, home(p, value, at));
}

/* A member's positions in zigzag order are no block of a tensor: what moves them goes by the whole. */
static bool goes_by_whole(const placer *p, int axis, tsr_placement from, tsr_placement to) {
  return axis == TSR_CP && p->placing->zigzag && to.kind == TSR_SHARD &&
         from.kind != TSR_REPLICATE;
}

/* Two axes cannot split one dimension. */
static bool is_cut_alike(const placer *p, int value, int axis, tsr_placement to) {
  tsr_placement is = p->g->values[value].placement[axis];
  return to.kind == TSR_SHARD && is.kind == TSR_SHARD && is.dim == to.dim;
}

static int redistribute(placer *p, int value, int axis, tsr_placement to, where at) {
  tsr_placement from = p->g->values[value].placement[axis];
  if (tsr_placement_equal(from, to)) return value;
  if (goes_by_whole(p, axis, from, to)) {
    value = redistribute(p, value, axis, whole, at);
    return redistribute(p, value, axis, to, at);
  }
  if (from.kind == TSR_PARTIAL) value = complete_before(p, value, axis, at);
  if (axis == TSR_DP && is_cut_alike(p, value, TSR_TP, to)) {
    value = redistribute(p, value, TSR_DP, whole, at);
    value = redistribute(p, value, TSR_TP, whole, at);
    from = whole;
  }
  if (axis == TSR_CP && is_cut_alike(p, value, TSR_TP, to)) /* tp's cut is inside cp's */
    value = redistribute(p, value, TSR_TP, whole, at);
  const tsr_placement cp = p->g->values[value].placement[TSR_CP],
                      tp = p->g->values[value].placement[TSR_TP];
  if (axis == TSR_CP && cp.kind == TSR_SHARD && tsr_placement_equal(cp, tp)) /* tp's cut is inside */
    value = redistribute(p, value, TSR_TP, whole, at);
  if (axis == TSR_DP && is_cut_alike(p, value, TSR_CP, to))
    value = redistribute(p, value, TSR_CP, whole, at);
  if (from.kind == TSR_PARTIAL) at = home(p, value, at);
  else value = receive(p, value, at);
  if (from.kind == TSR_REPLICATE) at = not_late(p, value, at); /* others take it from there, too */
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (is_found(m, axis, from, to, at)) return m->value;
  bool kept = axis != TSR_TP && from.kind == TSR_PARTIAL && to.kind == TSR_REPLICATE;
  int id = value;
  if (p->g->values[id].units && !kept) {
    if (axis != TSR_TP && from.kind == TSR_PARTIAL) id = redistribute(p, id, axis, whole, at);
    id = sum_units(p, id, at);
    from = p->g->values[id].placement[axis];
  }
  double attr[TSR_ATTRS_MAX];
  const char *suffix;
  tsr_op op = collective_for(from, to, axis, attr, &suffix);
  const char *name = tsr_arena_printf(p->g->arena, "%s_%s", suffix, tsr_axis_name(axis));
  id = add_moved(p, op, at, id, name, attr);
  p->g->values[id].placement[axis] = to;
  p->g->values[id].units_of_sequence &= p->g->values[id].units || is_split_sum(&p->g->values[id]);
  check_divides(p, &p->g->values[id]);
  id = round_complete(p, id, at);
  remember(p, value, (moved){.axis = axis, .value = id, .to = to, .at = at});
  return id;
}

/* ---- nodes ---- */

typedef struct {
  tsr_placement out[TSR_OUTPUTS_MAX][TSR_AXES];
  int64_t units; /* kept apart in the outputs */
  bool units_of_sequence;
  int64_t batch_units; /* kept apart, too */
} placed;

/* ---- ZeRO ---- */

/* Goes back from the updates to all that is only added up on its way to them. */
static void find_wanted(placer *p) {
  const tsr_graph *g = p->old;
  p->wanted = tsr_arena_array(g->arena, tsr_placement, g->values_count);
  for (int i = g->nodes_count - 1; i >= 0 && p->placing->zero; i--) {
    const tsr_node *n = &g->nodes[i];
    bool update = n->op == TSR_OP_ADAMW || n->op == TSR_OP_SGD;
    bool sum = n->op == TSR_OP_ADD && n->section == TSR_UPDATE;
    if (update) p->wanted[n->inputs[1]] = zero_placement(p, g->values[n->inputs[0]].param);
    if (!sum && n->op != TSR_OP_ACCUMULATE) continue;
    for (int k = 0; k < n->inputs_count; k++) p->wanted[n->inputs[k]] = p->wanted[n->outputs[0]];
  }
}

static int shape_input(const tsr_node *n) { return tsr_op_shape_input(n->op, n->inputs_count); }

/* A parameter, or its working copy, which is where the parameter is. */
static bool is_weight(const placer *p, int value) {
  const tsr_value *v = &p->g->values[value];
  if (v->kind != TSR_VALUE_NODE || p->g->nodes[v->node].op != TSR_OP_CAST)
    return v->kind == TSR_VALUE_PARAM;
  return p->g->values[p->g->nodes[v->node].inputs[0]].kind == TSR_VALUE_PARAM;
}

/* Where ZeRO wants a sum that is on its way to an update to be completed to; whole where the sum
 * cannot go there as it is: split along that dimension by cp or tp, or along another one than the
 * pieces of its norm. The update then takes its part of the complete sum. */
static tsr_placement zero_wanted(const placer *p, int old, const tsr_value *v) {
  tsr_placement wanted = p->wanted[old], cp = v->placement[TSR_CP], tp = v->placement[TSR_TP];
  bool cut = wanted.kind == TSR_SHARD && cp.kind == TSR_SHARD && cp.dim == wanted.dim;
  return cut || tsr_zero_dim(v->ndim, tp) != wanted.dim ? whole : wanted;
}

/* Whether all that is added up to a gradient in the update can go where ZeRO wants it. */
static bool is_scattered(const placer *p, int old) {
  int node = p->old->values[old].node;
  const tsr_node *n = node < 0 ? NULL : &p->old->nodes[node];
  if (!n || n->op != TSR_OP_ADD || n->section != TSR_UPDATE)
    return zero_wanted(p, old, &p->g->values[p->map[old]]).kind == TSR_SHARD;
  return is_scattered(p, n->inputs[0]) && is_scattered(p, n->inputs[1]);
}

/* What an op's rule is shown of an input over dp, where ZeRO has moved things: parameters come
 * whole to everything but their update and working copy; sums of gradients are added up where they
 * will be needed. From stage 2 on that is done for each microbatch, and then for all that is
 * accumulated. */
static tsr_placement zero_input(const placer *p, const tsr_node *n, int input) {
  const tsr_value *v = &p->g->values[p->map[n->inputs[input]]];
  tsr_placement is = v->placement[TSR_DP], wanted = zero_wanted(p, n->inputs[input], v);
  bool in_parts = n->op == TSR_OP_ADAMW || n->op == TSR_OP_SGD || n->op == TSR_OP_CAST;
  bool adds = n->op == TSR_OP_ADD && n->section == TSR_UPDATE;
  if (!p->placing->zero) return is;
  if (adds && !is_scattered(p, n->outputs[0])) return whole;
  if (is_weight(p, p->map[n->inputs[input]]) && !in_parts) return whole;
  if (is.kind != TSR_PARTIAL) return is;
  if (n->op == TSR_OP_NORM_STATS) return wanted; /* the sum that the update needs, made once */
  if (adds && !v->units) return wanted;
  if (n->op != TSR_OP_ACCUMULATE || p->placing->zero < 2) return is;
  return v->units ? whole : wanted;
}

/* What an op's rule is shown of an input over an axis. What positions owe to a sum over
 * microbatches is added up for each of them. */
static tsr_placement shown_input(const placer *p, const tsr_node *n, int input, int axis) {
  const tsr_value *v = &p->g->values[p->map[n->inputs[input]]];
  if (axis == TSR_DP) return zero_input(p, n, input);
  bool sum = axis == TSR_CP && !v->units_of_sequence &&
             (n->op == TSR_OP_ACCUMULATE || v->batch_units);
  return sum && v->placement[axis].kind == TSR_PARTIAL ? whole : v->placement[axis];
}

/* From stage 2 on a gradient is no longer whole once it is made. */
static void scatter_gradients(placer *p, const tsr_node *n) {
  where at = {n->section, n->stage, n->block};
  for (int o = 0; o < n->outputs_count && p->placing->zero >= 2; o++) {
    const tsr_value *v = &p->g->values[p->map[n->outputs[o]]];
    tsr_placement wanted = zero_wanted(p, n->outputs[o], v);
    if (v->placement[TSR_DP].kind == TSR_PARTIAL && wanted.kind == TSR_SHARD && !v->units)
      redistribute(p, p->map[n->outputs[o]], TSR_DP, wanted, at);
  }
}

/* Parameters are gathered once a step, or with stage 3 where they are needed. */
static where gather_place(const placer *p, const tsr_node *n, int value, where at) {
  if (is_weight(p, value) && p->placing->zero && p->placing->zero < 3 && n->section != TSR_UPDATE)
    at.section = TSR_PROLOGUE;
  return at;
}

/* Where cp splits positions, the batch units of a rank's microbatch stay apart in a sum over both:
 * each is complete only when the members' parts of it have been added. */
static int64_t
kept_batch_units(const placer *p, const tsr_node *n, const int *inputs, const placed *out) {
  bool both = out->out[0][TSR_DP].kind == TSR_PARTIAL && out->out[0][TSR_CP].kind == TSR_PARTIAL;
  if (!both || out->units_of_sequence || p->placing->size[TSR_CP] == 1) return 0;
  for (int i = 0; i < n->inputs_count; i++)
    if (is_partial(p, inputs[i], TSR_CP)) return 0; /* no sum of its own */
  int64_t units = units_of_microbatch(p, TSR_DP) / p->placing->size[TSR_DP];
  return units > 1 ? units : 0;
}

/* Asks the op's rule for every axis, moves the inputs, and says what the outputs will be. */
static bool place_inputs(placer *p, const tsr_node *n, int *inputs, placed *ret) {
  tsr_placement *in = tsr_arena_array(p->g->arena, tsr_placement, n->inputs_count);
  where at = {n->section, n->stage, n->block};
  for (int a = 0; a < TSR_AXES; a++) {
    if (!is_active(p->placing, a)) continue;
    for (int i = 0; i < n->inputs_count; i++) in[i] = shown_input(p, n, i, a);
    for (int i = 0; i < n->inputs_count && a == TSR_TP && !p->placing->sequence_parallel; i++)
      if (is_cut_alike(p, inputs[i], TSR_CP, in[i])) in[i] = whole; /* positions are cp's */
    tsr_rule_call call = {
        .g = p->old, .node = n, .axis = a, .in = in, .placed = p->g, .inputs = inputs};
    call.sum_units = units_of_microbatch(p, a);
    call.parts = a == TSR_DP ? call.sum_units : parts(p->placing, a);
    call.sequence_parallel = p->placing->sequence_parallel;
    tsr_rule_apply(&call);
    if (call.error) return tsr_diag_error(p->diags, n->place, "%s", call.error);
    for (int i = 0; i < n->inputs_count; i++)
      if (a != TSR_DP || i != shape_input(n) || !p->placing->zero)
        inputs[i] = redistribute(p, inputs[i], a, in[i], gather_place(p, n, inputs[i], at));
    for (int o = 0; o < n->outputs_count; o++) ret->out[o][a] = call.out[o];
    if (call.units) ret->units = call.units;
    ret->units_of_sequence |= call.units_of_sequence;
  }
  ret->batch_units = kept_batch_units(p, n, inputs, ret);
  for (int i = 0; i < n->inputs_count; i++) {
    inputs[i] = sum_batch(p, inputs[i], at);
    if (!keeps_units(n->op)) inputs[i] = sum_units(p, inputs[i], at);
    inputs[i] = receive(p, inputs[i], at);
  }
  return true;
}

/* A sum in half precision that is still owed is kept in f32, and so is what moves such a sum on. */
static void widen_sum(const placer *p, tsr_value *v) {
  const tsr_node *n = &p->g->nodes[v->node];
  const tsr_value *in = &p->g->values[n->inputs[0]];
  bool moves = tsr_op_facts(n->op) & TSR_FACT_KEEPS_DTYPE && in->completes_to != TSR_F32;
  if (!tsr_dtype_is_half(v->dtype) || (is_complete(v) && !moves)) return;
  v->completes_to = v->dtype;
  v->dtype = TSR_F32;
}

/* Numbers that are drawn for a sample depend on which of the step's it is, and only dp's dimension
 * says that. */
static void check_random(placer *p, const tsr_node *n, const placed *out) {
  double chance = n->op == TSR_OP_DROPOUT ? n->attr[0] : n->attr[3];
  bool several = p->old->microbatches > 1 && is_active(p->placing, TSR_DP);
  if (!(tsr_op_facts(n->op) & TSR_FACT_RANDOM) || chance == 0 || !several) return;
  if (!p->of_batch[n->inputs[0]] || out->out[0][TSR_DP].kind == TSR_SHARD) return;
  p->ok = tsr_diag_error(
      p->diags, n->place,
      "%s of '%s', whose samples are not along one dimension, would depend on the number of "
      "microbatches",
      tsr_op_name(n->op), p->old->values[n->inputs[0]].name);
}

/* A sum over a step's samples is made of batch units, which microbatches only group. Where samples
 * are not along one dimension dp does not split them, and each microbatch sums as it likes. */
static void check_accumulated(placer *p, const tsr_node *n) {
  const tsr_value *v = &p->g->values[p->map[n->inputs[0]]];
  if (n->op != TSR_OP_ACCUMULATE || !p->of_batch[n->inputs[0]] || !is_active(p->placing, TSR_DP))
    return;
  if (v->placement[TSR_DP].kind == TSR_PARTIAL) return;
  p->ok = tsr_diag_error(
      p->diags, n->place,
      "'%s' sums over samples that are not along one dimension of each tensor: its bits would depend "
      "on the number of microbatches",
      v->name);
}

static void find_of_batch(placer *p) {
  const tsr_graph *g = p->old;
  p->of_batch = tsr_arena_array(g->arena, bool, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) p->of_batch[v] = g->values[v].kind == TSR_VALUE_INPUT;
  for (int i = 0; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++)
      for (int o = 0; o < g->nodes[i].outputs_count; o++)
        p->of_batch[g->nodes[i].outputs[o]] |= p->of_batch[g->nodes[i].inputs[k]];
}

/* The node as it is, or what stands for attention where cp splits its positions. */
static void copy_node(placer *p, int index, const int *inputs, int *ret_outputs) {
  const tsr_node *n = &p->old->nodes[index];
  bool attention = n->op == TSR_OP_ATTENTION || n->op == TSR_OP_ATTENTION_DX;
  if (attention && p->placing->size[TSR_CP] > 1 &&
      p->g->values[inputs[0]].placement[TSR_CP].kind == TSR_SHARD) {
    tsr_pass_ring_attention(
        p->g, p->old, index, inputs, p->placing->size[TSR_CP], ret_outputs);
    return;
  }
  tsr_graph_copy_node(p->g, p->old, index, inputs);
  memcpy(
      ret_outputs, p->g->nodes[p->g->nodes_count - 1].outputs,
      sizeof *ret_outputs * (size_t)n->outputs_count);
}

static void place_node(placer *p, int index) {
  const tsr_node *n = &p->old->nodes[index];
  int *inputs = tsr_arena_array(p->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = p->map[n->inputs[i]];
  placed out = {0};
  check_accumulated(p, n);
  if (!place_inputs(p, n, inputs, &out)) p->ok = false;
  check_random(p, n, &out);
  if (keeps_units(n->op)) {
    out.units = p->g->values[inputs[0]].units;
    out.units_of_sequence = p->g->values[inputs[0]].units_of_sequence;
  }
  int outputs[TSR_OUTPUTS_MAX];
  copy_node(p, index, inputs, outputs);
  for (int o = 0; o < n->outputs_count; o++) {
    tsr_value *v = &p->g->values[outputs[o]];
    memcpy(v->placement, out.out[o], sizeof v->placement);
    v->units = out.units;
    v->units_of_sequence = out.units && out.units_of_sequence;
    v->batch_units = o == 0 ? out.batch_units : 0;
    v->dtype = p->old->values[n->outputs[o]].dtype;
    check_divides(p, v);
    widen_sum(p, v);
    p->map[n->outputs[o]] = round_complete(p, outputs[o], (where){n->section, n->stage, n->block});
  }
  scatter_gradients(p, n);
}

/* What the user asked to see is complete: no partial values. */
static int complete(placer *p, int value, tsr_section section) {
  where at = home(p, value, (where){section, TSR_EVERY_STAGE, -1});
  for (int a = 0; a < TSR_AXES; a++)
    if (p->g->values[value].placement[a].kind == TSR_PARTIAL)
      value = redistribute(p, value, a, (tsr_placement){TSR_REPLICATE, 0}, at);
  return sum_units(p, sum_batch(p, value, at), at);
}

bool tsr_pass_placement(
    const tsr_graph *old, const tsr_placing *placing, tsr_graph **ret_graph, tsr_diags *diags) {
  placer p = {.old = old, .placing = placing, .diags = diags, .ok = true};
  p.g = tsr_graph_derive(old);
  p.map = tsr_arena_array(old->arena, int, old->values_count);
  find_wanted(&p);
  find_of_batch(&p);
  for (int i = 0; i < old->values_count; i++)
    if (old->values[i].kind != TSR_VALUE_NODE) place_source(&p, i);
  for (int i = 0; i < old->nodes_count; i++) place_node(&p, i);
  tsr_section last = old->nodes_count ? old->nodes[old->nodes_count - 1].section : TSR_FORWARD;
  if (last > TSR_FORWARD) last = TSR_UPDATE; /* what microbatches add up is complete then */
  for (int i = 0; i < old->outputs_count; i++)
    p.map[old->outputs[i].value] = complete(&p, p.map[old->outputs[i].value], last);
  if (old->loss >= 0) p.map[old->loss] = complete(&p, p.map[old->loss], last);
  tsr_graph_map_ends(p.g, old, p.map);
  *ret_graph = p.g;
  return p.ok;
}
