// SPDX-License-Identifier: Apache-2.0
/* The redistributions of the placement pass: what leads a value from one placement over an axis to
 * another one, in the order that the units of its sums demand. */
#include "passes/placer.h"
#include <string.h>

/* A value that another one was made into: over an axis, or by one of the moves below. */
enum { UNITS_SUMMED = -1, RECEIVED = -2, BATCH_SUMMED = -3, PADDED = -4 };
typedef struct tsr_moved {
  struct tsr_moved *next;
  int axis, value;
  tsr_placement to;
  tsr_where at;
} moved;

/* A dimension must divide by the ranks, and where units split it (tp, cp) by the units. */
int64_t tsr_placer_parts(const tsr_placing *p, int axis) {
  bool split = axis == TSR_TP || axis == TSR_CP;
  return split && p->units[axis] > p->size[axis] ? p->units[axis] : p->size[axis];
}

/* Whether an axis may split each block of what another one splits: tp the positions that cp leaves,
 * ep the samples that dp does. */
static bool is_inside(int axis, int outer) {
  return (axis == TSR_TP && outer == TSR_CP) || (axis == TSR_EP && outer == TSR_DP);
}

/* The ranks over which `experts` can be shared out: a rank's experts are a subtree of the tree in
 * which the experts of a token are added. */
static bool can_share_experts(int64_t experts, int64_t ranks) {
  return experts % ranks == 0 && tsr_tree_is_subtree(experts, experts / ranks);
}

static void hint_ranks(const tsr_placer *p, int64_t experts) {
  enum { MOST = 12 };
  tsr_text counts = {0};
  for (int64_t ranks = 1, listed = 0; ranks <= experts && listed < MOST; ranks++)
    if (can_share_experts(experts, ranks))
      listed++, tsr_text_add(&counts, "%s%lld", listed > 1 ? ", " : "", (long long)ranks);
  tsr_diag_hint(p->diags, "ranks that can share %lld: %s", (long long)experts, counts.data);
  tsr_text_free(&counts);
}

/* The value that was moved to make this one. */
static const char *moved_name(const tsr_placer *p, const tsr_value *v) {
  while (v->kind == TSR_VALUE_NODE && tsr_op_moves(p->g->nodes[v->node].op))
    v = &p->g->values[p->g->nodes[v->node].inputs[0]];
  return v->name;
}

/* An axis shares out what the outer ones leave of the experts, whatever their units are. Where
 * tokens' experts are added, what its ranks have together is added before that of other groups, so
 * it must be a subtree, too. */
static void check_experts(tsr_placer *p, const tsr_value *v, bool adds) {
  int64_t members = 1;
  bool fits = true;
  tsr_text axes = {0};
  for (int a = 0; a < TSR_AXES && fits; a++) {
    tsr_placement is = v->placement[a];
    int size = p->placing->size[a];
    if (a == TSR_DP || is.kind != TSR_SHARD || is.dim != 0 || size == 1) continue;
    members *= size;
    fits = adds ? can_share_experts(v->shape[0], members) : v->shape[0] % members == 0;
    tsr_text_add(&axes, "%s%s = %d", axes.length ? " × " : "", tsr_axis_name(a), size);
  }
  if (!fits) {
    p->ok = tsr_diag_error(
        p->diags, v->location, "the %lld experts of '%s' cannot be shared out over %s: %s",
        (long long)v->shape[0], moved_name(p, v), axes.data,
        v->shape[0] % members ? "they do not divide"
                              : "a rank's must be a subtree of the tree in which the experts of a "
                                "token are added");
    hint_ranks(p, v->shape[0]);
  }
  tsr_text_free(&axes);
}

/* A parameter's shape is what the file declares, without padding. */
static void refuse_uneven(tsr_placer *p, const tsr_value *v, int axis, int64_t parts) {
  int64_t shape[TSR_DIMS_MAX];
  int dim = v->placement[axis].dim;
  if (v->param >= 0) tsr_param_real_shape(&p->old->params[v->param], shape);
  else memcpy(shape, v->shape, sizeof shape);
  p->ok = tsr_diag_error(
      p->diags, v->location,
      "'%s' %s cannot be split over %s: dimension %d has %lld, which %lld does not divide", v->name,
      tsr_named_shape_text(p->g->arena, v->ndim, shape, v->dims), tsr_axis_name(axis), dim,
      (long long)shape[dim], (long long)parts);
  if (v->param >= 0 && axis != TSR_TP)
    tsr_diag_hint(p->diags, "the blocks of a dimension may be uneven over tp alone");
}

/* Two axes split one dimension: of a value that the file has, or of one that an op needs moved, of
 * which one is reported for each op. */
static void refuse_two(tsr_placer *p, const tsr_value *v, int a, int b) {
  const char *shape = tsr_value_shape_text(p->g->arena, v);
  bool made = v >= p->g->values && v < p->g->values + p->g->values_count;
  bool is_move = made && v->kind == TSR_VALUE_NODE && tsr_op_moves(p->g->nodes[v->node].op);
  if (!is_move || !p->reader) {
    p->ok = tsr_diag_error(
        p->diags, v->location, "'%s' %s cannot be split along dimension %d over both %s and %s",
        v->name, shape, v->placement[a].dim, tsr_axis_name(a), tsr_axis_name(b));
    return;
  }
  if (!p->ok) return;
  p->ok = tsr_diag_error(
      p->diags, p->reader->location,
      "%s needs '%s' %s split along dimension %d over both %s and %s", tsr_op_title(p->reader->op),
      moved_name(p, v), shape, v->placement[a].dim, tsr_axis_name(a), tsr_axis_name(b));
  tsr_diag_hint(
      p->diags,
      "choose other layouts, or make an input whole over one of both axes before it: all_gather");
}

void tsr_placer_check_added_experts(tsr_placer *p, const tsr_node *n, const int *inputs) {
  if (n->op == TSR_OP_EXPERT_LINEAR) check_experts(p, &p->g->values[inputs[1]], true);
}

void tsr_placer_check_divides(tsr_placer *p, const tsr_value *v) {
  bool experts = tsr_routed_is_weights(v->routed);
  if (experts) check_experts(p, v, false);
  for (int a = 0; a < TSR_AXES; a++) {
    bool shared = experts && v->placement[a].dim == 0 && a != TSR_DP;
    if (v->placement[a].kind != TSR_SHARD || shared) continue;
    int64_t size = v->shape[v->placement[a].dim], n = tsr_placer_parts(p->placing, a);
    if (v->placement[a].groups > 1) n = tsr_placement_blocks(v->placement[a], (int)n);
    for (int b = a + 1; b < TSR_AXES; b++)
      if (tsr_placement_equal(v->placement[a], v->placement[b]) && p->placing->size[a] > 1 &&
          p->placing->size[b] > 1 && !is_inside(b, a))
        refuse_two(p, v, a, b);
    int outer = a == TSR_TP ? TSR_CP : TSR_DP, members = 1;
    if (is_inside(a, outer) && tsr_placement_equal(v->placement[outer], v->placement[a]))
      members = p->placing->size[outer] * p->placing->size[a];
    if (size % n == 0 && size % members) n = members; /* it splits what the outer one leaves */
    if (size % n == 0) continue;
    refuse_uneven(p, v, a, n);
  }
}

static int add_moved(
    tsr_placer *p, tsr_op op, tsr_where at, int value, const char *suffix, const tsr_attrs *attr) {
  const tsr_value v = p->g->values[value];
  const char *name = tsr_arena_printf(p->g->arena, "%s.%s", v.name, suffix);
  int id = tsr_graph_add_shaped(
      p->g, op, at.section, name, v.location, 1, &value, attr, v.ndim, v.shape);
  p->g->nodes[p->g->nodes_count - 1].stage = at.stage;
  p->g->nodes[p->g->nodes_count - 1].block = at.block;
  tsr_value *out = &p->g->values[id];
  memcpy(out->placement, v.placement, sizeof v.placement);
  out->routed = v.routed;
  out->units = v.units;
  out->units_of_sequence = v.units_of_sequence;
  out->batch_units = v.batch_units;
  out->dtype = v.dtype;
  out->completes_to = v.completes_to;
  return id;
}

static moved **find_moved(tsr_placer *p, int value) {
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
    tsr_placement from, tsr_placement to, int axis, tsr_attrs *attr, const char **ret_name) {
  *attr = (tsr_attrs){.move = {(tsr_axis)axis}};
  if (from.kind == TSR_PARTIAL && to.kind == TSR_REPLICATE)
    return *ret_name = "reduced", TSR_OP_ALL_REDUCE;
  if (to.kind == TSR_OWNED) return *ret_name = "owned", attr->reduce.root = to.owner, TSR_OP_REDUCE;
  if (from.kind == TSR_OWNED)
    return *ret_name = "received", attr->broadcast.root = from.owner, TSR_OP_BROADCAST;
  if (from.kind == TSR_PARTIAL)
    return *ret_name = "scattered", attr->scatter.dim = to.dim, TSR_OP_REDUCE_SCATTER;
  if (from.kind == TSR_REPLICATE)
    return *ret_name = "part", attr->scatter.dim = to.dim, TSR_OP_SCATTER;
  if (to.kind == TSR_REPLICATE)
    return *ret_name = "gathered", attr->all_gather.dim = from.dim, TSR_OP_ALL_GATHER;
  attr->all_to_all.from = from.dim;
  attr->all_to_all.dim = to.dim;
  return *ret_name = "turned", TSR_OP_ALL_TO_ALL;
}

static void remember(tsr_placer *p, int value, moved m) {
  moved *fresh = tsr_arena_alloc(p->g->arena, sizeof *fresh), **list = find_moved(p, value);
  *fresh = m;
  fresh->next = *list;
  *list = fresh;
}

/* A weight's gradient may be the first to ask for what other nodes of the backward pass need as
 * well, and those run before it. */
static tsr_where not_late(const tsr_placer *p, int value, tsr_where at) {
  const tsr_value *v = &p->g->values[value];
  bool late = v->kind == TSR_VALUE_NODE && p->g->nodes[v->node].section == TSR_WEIGHTS;
  if (at.section == TSR_WEIGHTS && !late) at.section = TSR_BACKWARD;
  return at;
}

/* What is added to complete a value is added where the value is, and once a step where the value is
 * made once. Another stage's backward pass needs it before this one's begins, so what the forward
 * pass made is completed there. */
tsr_where tsr_placer_home(const tsr_placer *p, int value, tsr_where at) {
  at = not_late(p, value, at);
  const tsr_value *v = &p->g->values[value];
  int stage = tsr_value_stage(p->g, value);
  tsr_section made = v->kind == TSR_VALUE_NODE ? p->g->nodes[v->node].section : TSR_UPDATE;
  if (made == TSR_PROLOGUE && at.section != TSR_UPDATE) at.section = TSR_PROLOGUE;
  if (stage >= 0 && stage != at.stage && made == TSR_FORWARD && at.section == TSR_BACKWARD)
    at.section = TSR_FORWARD;
  if (stage >= 0) at.stage = stage;
  return at;
}

/* Partial over the axes that split positions. */
static bool is_split_sum(const tsr_value *v) {
  return v->placement[TSR_CP].kind == TSR_PARTIAL || v->placement[TSR_TP].kind == TSR_PARTIAL;
}

int tsr_placer_sum_units(tsr_placer *p, int value, tsr_where at) {
  if (!p->g->values[value].units) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == UNITS_SUMMED) return m->value;
  int sum = add_moved(p, TSR_OP_SUM_UNITS, tsr_placer_home(p, value, at), value, "units", NULL);
  p->g->values[sum].units = 0;
  p->g->values[sum].units_of_sequence &= is_split_sum(&p->g->values[sum]);
  remember(p, value, (moved){.axis = UNITS_SUMMED, .value = sum});
  return sum;
}

/* What cp has completed of each batch unit of this rank's microbatch becomes one. */
int tsr_placer_sum_batch(tsr_placer *p, int value, tsr_where at) {
  if (!p->g->values[value].batch_units) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == BATCH_SUMMED) return m->value;
  int sum = add_moved(p, TSR_OP_SUM_UNITS, tsr_placer_home(p, value, at), value, "batch", NULL);
  p->g->values[sum].batch_units = 0;
  remember(p, value, (moved){.axis = BATCH_SUMMED, .value = sum});
  return sum;
}

/* The value on another stage of the pipeline. Values that exist before the first microbatch are
 * sent then. */
int tsr_placer_receive(tsr_placer *p, int value, tsr_where at) {
  int from = tsr_value_stage(p->g, value);
  if (from < 0 || at.stage < 0 || from == at.stage) return value;
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (m->axis == RECEIVED && m->at.stage == at.stage) return m->value;
  const tsr_value *v = &p->g->values[value];
  bool early = v->kind != TSR_VALUE_NODE || p->g->nodes[v->node].section == TSR_PROLOGUE;
  if (early) at.section = TSR_PROLOGUE;
  at = not_late(p, value, at);
  const char *suffix = tsr_arena_printf(p->g->arena, "stage%d", at.stage);
  int there = add_moved(p, TSR_OP_RECEIVE, at, value, suffix, NULL);
  remember(p, value, (moved){.axis = RECEIVED, .value = there, .at = at});
  return there;
}

/* What is gathered is gathered again where it is needed in another pass or on another stage, rather
 * than kept. */
static bool is_found(const moved *m, int axis, tsr_placement from, tsr_placement to, tsr_where at) {
  if (m->axis != axis || !tsr_placement_equal(m->to, to)) return false;
  bool gathered = from.kind == TSR_SHARD || from.kind == TSR_OWNED;
  return !gathered || (m->at.section == at.section && m->at.stage == at.stage);
}

bool tsr_placer_is_complete(const tsr_value *v) {
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_PARTIAL) return false;
  return v->units == 0 && v->batch_units == 0;
}

/* Summands stay in f32; their sum is rounded once, so its bits do not depend on where they were. */
int tsr_placer_round_complete(tsr_placer *p, int value, tsr_where at) {
  const tsr_value v = p->g->values[value];
  if (v.completes_to == TSR_F32 || !tsr_placer_is_complete(&v)) return value;
  int id = add_moved(p, TSR_OP_CAST, at, value, tsr_dtype_name(v.completes_to), NULL);
  p->g->values[id].dtype = v.completes_to;
  p->g->values[id].completes_to = TSR_F32;
  return id;
}

/* Partial sums over several axes are completed in the order of the units: what a batch unit's
 * positions make before the batch units, of which those that ep splits before those that dp does;
 * but where positions are kept apart they come last, and of them those that tp splits before those
 * that cp does. */
static int complete_before(tsr_placer *p, int value, int axis, tsr_where at) {
  const tsr_value *v = &p->g->values[value];
  if (!v->units_of_sequence) {
    bool first = tsr_axis_splits_batch(axis) || (v->batch_units && axis != TSR_CP);
    if (first && tsr_placer_is_partial(p, value, TSR_CP))
      value = tsr_placer_redistribute(p, value, TSR_CP, tsr_whole, at);
    if (first) value = tsr_placer_sum_batch(p, value, at);
  }
  if (axis == TSR_DP && tsr_placer_is_partial(p, value, TSR_EP))
    return tsr_placer_redistribute(p, value, TSR_EP, tsr_whole, at);
  if (axis != TSR_CP || !p->g->values[value].units_of_sequence) return value;
  if (tsr_placer_is_partial(p, value, TSR_EP))
    value = tsr_placer_redistribute(p, value, TSR_EP, tsr_whole, at);
  if (tsr_placer_is_partial(p, value, TSR_DP))
    value = tsr_placer_redistribute(p, value, TSR_DP, tsr_whole, at);
  if (tsr_placer_is_partial(p, value, TSR_TP))
    return tsr_placer_redistribute(p, value, TSR_TP, tsr_whole, at);
  return tsr_placer_sum_units(p, value, tsr_placer_home(p, value, at));
}

int tsr_placer_accumulate(tsr_placer *p, int value, tsr_placement to, const tsr_node *sum) {
  tsr_where at = {sum->section, sum->stage, sum->block};
  const tsr_value *of = &p->old->values[sum->outputs[0]];
  value = complete_before(p, value, TSR_DP, at);
  if (p->g->values[value].units) to = tsr_whole;
  tsr_attrs attr;
  const char *suffix;
  tsr_op op = collective_for((tsr_placement){TSR_PARTIAL}, to, TSR_DP, &attr, &suffix);
  if (op == TSR_OP_ALL_REDUCE) attr.move.accumulate = true;
  else if (op == TSR_OP_REDUCE) attr.reduce.accumulate = true;
  else attr.scatter.accumulate = true;
  int id = add_moved(p, op, at, value, suffix, &attr);
  tsr_value *v = &p->g->values[id];
  v->placement[TSR_DP] = to;
  v->dtype = of->dtype;
  v->completes_to = TSR_F32;
  v->name = p->g->nodes[v->node].name = of->name;
  tsr_placer_check_divides(p, v);
  return id;
}

/* A member's positions in zigzag order are no block of a tensor, and groups that each have all
 * blocks (hybrid sharding) do not exchange them: what moves those goes by the whole, as does what
 * comes to another owner or from one. */
static bool goes_by_whole(const tsr_placer *p, int axis, tsr_placement from, tsr_placement to) {
  bool has_parts = from.kind == TSR_SHARD || from.kind == TSR_OWNED;
  if (has_parts && (from.kind == TSR_OWNED || to.kind == TSR_OWNED))
    return to.kind != TSR_REPLICATE;
  if (to.kind != TSR_SHARD || from.kind == TSR_REPLICATE) return false;
  if (axis == TSR_CP && p->placing->zigzag) return true;
  return from.kind == TSR_SHARD && (from.groups > 1 || to.groups > 1);
}

/* Before an axis splits a dimension, or gathers it: what an inner axis splits of it is gathered,
 * for its blocks are inside the outer one's. */
static int
gather_inner(tsr_placer *p, int value, int axis, int inner, tsr_placement to, tsr_where at) {
  const tsr_placement outer = p->g->values[value].placement[axis];
  if (tsr_placer_is_split_alike(p, value, inner, to) ||
      tsr_placer_is_split_alike(p, value, inner, outer))
    value = tsr_placer_redistribute(p, value, inner, tsr_whole, at);
  return value;
}

int tsr_placer_redistribute(tsr_placer *p, int value, int axis, tsr_placement to, tsr_where at) {
  tsr_placement from = p->g->values[value].placement[axis];
  if (tsr_placement_equal(from, to)) return value;
  if (from.kind == TSR_REPLICATE && to.kind == TSR_OWNED) return value; /* the owner has it, too */
  if (goes_by_whole(p, axis, from, to)) {
    value = tsr_placer_redistribute(p, value, axis, tsr_whole, at);
    return tsr_placer_redistribute(p, value, axis, to, at);
  }
  if (from.kind == TSR_PARTIAL) value = complete_before(p, value, axis, at);
  if (tsr_axis_splits_batch(axis) && tsr_placer_is_split_alike(p, value, TSR_TP, to)) {
    value = tsr_placer_redistribute(p, value, axis, tsr_whole, at);
    value = tsr_placer_redistribute(p, value, TSR_TP, tsr_whole, at);
    from = tsr_whole;
  }
  if (axis == TSR_EP && tsr_routed_is_weights(p->g->values[value].routed)) {
    value = gather_inner(p, value, TSR_EP, TSR_TP, to, at);
    value = gather_inner(p, value, TSR_EP, TSR_CP, to, at);
  }
  if (axis == TSR_CP) value = gather_inner(p, value, TSR_CP, TSR_TP, to, at);
  if (axis == TSR_DP) value = gather_inner(p, value, TSR_DP, TSR_EP, to, at);
  if (tsr_axis_splits_batch(axis) && tsr_placer_is_split_alike(p, value, TSR_CP, to))
    value = tsr_placer_redistribute(p, value, TSR_CP, tsr_whole, at);
  if (from.kind == TSR_PARTIAL) at = tsr_placer_home(p, value, at);
  else value = tsr_placer_receive(p, value, at);
  if (from.kind == TSR_REPLICATE) at = not_late(p, value, at); /* others take it from there, too */
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (is_found(m, axis, from, to, at)) return m->value;
  bool is_whole = to.kind == TSR_REPLICATE || to.kind == TSR_OWNED;
  bool kept = axis != TSR_TP && from.kind == TSR_PARTIAL && is_whole;
  int id = value;
  if (p->g->values[id].units && !kept) {
    if (axis != TSR_TP && from.kind == TSR_PARTIAL)
      id = tsr_placer_redistribute(p, id, axis, tsr_whole, at);
    id = tsr_placer_sum_units(p, id, at);
    from = p->g->values[id].placement[axis];
  }
  tsr_attrs attr;
  const char *suffix;
  tsr_op op = collective_for(from, to, axis, &attr, &suffix);
  const char *name = tsr_arena_printf(p->g->arena, "%s_%s", suffix, tsr_axis_name(axis));
  id = add_moved(p, op, at, id, name, &attr);
  p->g->values[id].placement[axis] = to;
  p->g->values[id].units_of_sequence &= p->g->values[id].units || is_split_sum(&p->g->values[id]);
  tsr_placer_check_divides(p, &p->g->values[id]);
  id = tsr_placer_round_complete(p, id, at);
  remember(p, value, (moved){.axis = axis, .value = id, .to = to, .at = at});
  return id;
}

void tsr_placer_keep_transport(tsr_placer *p, const tsr_node *n, int value, int begin) {
  if (!tsr_node_needs_nccl(n)) return;
  for (int v = value < begin ? value : begin; v < p->g->values_count; v++) {
    const tsr_value *x = &p->g->values[v];
    bool made = (v >= begin || v == value) && x->kind == TSR_VALUE_NODE;
    if (made && tsr_node_axis(&p->g->nodes[x->node]) == tsr_node_axis(n))
      tsr_node_require_nccl(&p->g->nodes[x->node]);
  }
}

int tsr_placer_pad(tsr_placer *p, int value, int axis, int dim, tsr_where at) {
  int64_t size = p->g->values[value].shape[dim], parts = tsr_placer_parts(p->placing, axis);
  if (size % parts == 0) return value;
  tsr_placement to = {TSR_SHARD, dim};
  value = tsr_placer_redistribute(p, value, axis, tsr_whole, at);
  value = tsr_placer_receive(p, value, at);
  at = not_late(p, value, at);
  for (moved *m = *find_moved(p, value); m; m = m->next)
    if (is_found(m, PADDED, tsr_whole, to, at)) return m->value;
  int64_t stored = size + parts - size % parts;
  tsr_attrs attr = {.unslice = {dim, 0, stored}};
  int id = add_moved(p, TSR_OP_UNSLICE, at, value, "padded", &attr);
  p->g->values[id].shape[dim] = stored;
  remember(p, value, (moved){.axis = PADDED, .value = id, .to = to, .at = at});
  return id;
}
