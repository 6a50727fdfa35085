// SPDX-License-Identifier: Apache-2.0
/* requires: a whole graph (forward, backward, updates), sizes and units of the axes
 * produces: a graph in which every value has its placement on every axis and every node's inputs
 *        are what its rule wants, by inserted collectives
 * invalidates: indices; the new graph has its own */
#include "passes/placer.h"
#include "graph/routing.h"
#include "passes/placement_rules.h"
#include <string.h>

/* Every rank of the axis does the same; only what it keeps is split (ZeRO). */
static bool has_all_samples(const tsr_placer *p, int axis) {
  return tsr_axis_splits_batch(axis) && p->placing->batch == TSR_BATCH_WHOLE;
}

/* What a model trains is whole on every rank of cp, which splits positions. What a file declares of
 * it over cp is what moves that the file writes out begin from. */
static bool is_stored_whole(const tsr_placer *p, int axis) {
  return axis == TSR_CP && p->placing->is_model;
}

/* What experts' weights are over an axis: ep and cp share them out, and tp does or splits each. */
static tsr_placement experts_placement(const tsr_placer *p, int param, int axis) {
  tsr_placement asked = p->old->params[param].placement[axis];
  bool whole = axis == TSR_PP || axis == TSR_DP || p->placing->size[axis] == 1;
  if (axis == TSR_CP && !whole) return (tsr_placement){TSR_SHARD, 0};
  bool shares = asked.kind == TSR_SHARD && asked.dim == 0;
  return whole && (shares || axis != TSR_TP) ? tsr_whole : asked;
}

/* What a parameter is in the graph whose memory is shared; NULL: in none. */
static const tsr_value *stored_as(const tsr_placer *p, const tsr_value *v) {
  const tsr_graph *g = v->kind == TSR_VALUE_PARAM ? p->placing->stored : NULL;
  for (int i = 0; g && i < g->values_count; i++)
    if (g->values[i].kind == TSR_VALUE_PARAM && g->values[i].param == v->param)
      return &g->values[i];
  return NULL;
}

static void place_source(tsr_placer *p, int old) {
  tsr_value v = p->old->values[old];
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement asked = v.placement[a];
    v.placement[a] = (tsr_placement){TSR_REPLICATE, 0};
    if (!tsr_placer_is_active(p->placing, a)) continue;
    bool stored = v.kind == TSR_VALUE_PARAM || v.kind == TSR_VALUE_STATE,
         experts = stored && tsr_param_is_of_experts(&p->old->params[v.param]);
    if (a == TSR_CP && p->placing->whole_positions && !experts) continue;
    if (experts) v.placement[a] = experts_placement(p, v.param, a);
    else if (stored && !is_stored_whole(p, a)) v.placement[a] = asked;
    bool laid_out = v.kind == TSR_VALUE_INPUT && p->old->loss < 0;
    if (laid_out && asked.kind == TSR_SHARD) v.placement[a] = asked;
    else if (
        v.kind == TSR_VALUE_INPUT && tsr_axis_splits_batch(a) && !has_all_samples(p, a) &&
        v.shape[0] % tsr_placer_units(p, TSR_DP) == 0)
      v.placement[a] = (tsr_placement){TSR_SHARD, 0};
    else if (v.kind == TSR_VALUE_INPUT && a == TSR_CP && tsr_input_has_positions(&v))
      v.placement[a] = (tsr_placement){TSR_SHARD, 1};
    else if (v.kind == TSR_VALUE_CONST && a == TSR_CP && v.init->kind == TSR_INIT_ROPE)
      v.placement[a] = (tsr_placement){TSR_SHARD, 0};
  }
  tsr_placement zero = v.param < 0 ? tsr_whole : tsr_placer_zero(p, v.param);
  if (zero.kind != TSR_REPLICATE) v.placement[TSR_DP] = zero;
  const tsr_value *stored = stored_as(p, &v);
  if (stored) memcpy(v.placement, stored->placement, sizeof v.placement);
  tsr_placer_check_divides(p, &v);
  if (v.kind == TSR_VALUE_PARAM) tsr_placer_check_declared(p, &v);
  p->map[old] = tsr_graph_copy_value(p->g, &v);
  p->plain_tp[old] = v.placement[TSR_TP];
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
static void find_wanted(tsr_placer *p) {
  const tsr_graph *g = p->old;
  p->wanted = tsr_arena_array(g->arena, tsr_placement, g->values_count);
  for (int i = g->nodes_count - 1; i >= 0 && p->placing->zero; i--) {
    const tsr_node *n = &g->nodes[i];
    bool update = tsr_op_facts(n->op) & TSR_FACT_UPDATE;
    bool sum = n->op == TSR_OP_ADD && n->section == TSR_UPDATE;
    if (update) p->wanted[n->inputs[1]] = tsr_placer_zero(p, g->values[n->inputs[0]].param);
    if (!sum && n->op != TSR_OP_ACCUMULATE) continue;
    for (int k = 0; k < n->inputs_count; k++) p->wanted[n->inputs[k]] = p->wanted[n->outputs[0]];
  }
}

static int shape_input(const tsr_node *n) { return tsr_op_shape_input(n->op, n->inputs_count); }

/* Of which parameter a value is, or the working copy, which is where the parameter is; -1: none. */
static int weight_of(const tsr_placer *p, int value) {
  const tsr_value *v = &p->g->values[value];
  if (v->kind == TSR_VALUE_NODE && p->g->nodes[v->node].op == TSR_OP_CAST)
    v = &p->g->values[p->g->nodes[v->node].inputs[0]];
  return v->kind == TSR_VALUE_PARAM ? v->param : -1;
}
/* Or what a move that the file writes out has made of it. */
static bool is_weight(const tsr_placer *p, int value) {
  while (weight_of(p, value) < 0) {
    const tsr_value *v = &p->g->values[value];
    if (v->kind != TSR_VALUE_NODE) return false;
    const tsr_node *n = &p->g->nodes[v->node];
    if (!tsr_op_moves(n->op)) return false;
    value = n->inputs[0];
  }
  return true;
}

/* The placement to which ZeRO completes a sum on its way to an update; whole where cp or tp
 * splits that dimension of the sum. The update then takes its part of the complete one. */
static tsr_placement zero_wanted(const tsr_placer *p, int old, const tsr_value *v) {
  tsr_placement wanted = p->wanted[old], cp = v->placement[TSR_CP], tp = v->placement[TSR_TP];
  if (wanted.kind != TSR_SHARD) return wanted;
  bool split = (cp.kind == TSR_SHARD && cp.dim == wanted.dim) ||
               (tp.kind == TSR_SHARD && tp.dim == wanted.dim);
  return split ? tsr_whole : wanted;
}

/* What a gradient's norm is made of depends on what tp splits of it: what it does without sequence
 * parallelism; nothing where cp splits that dimension. */
static tsr_placement norm_tp(const tsr_placer *p, int old) {
  tsr_placement tp = p->plain_tp[old];
  bool splits = tp.kind == TSR_SHARD && !tsr_placer_is_split_alike(p, p->map[old], TSR_CP, tp);
  return splits ? tp : tsr_whole;
}

/* The pieces of a gradient's norm lie along one dimension, and dp and cp may split only that. */
static tsr_placement norm_pieces(const tsr_placer *p, int old, tsr_placement is) {
  const tsr_value *v = &p->old->values[old];
  int dim = tsr_routed_is_weights(v->routed) ? 0 : tsr_zero_dim(v->ndim, norm_tp(p, old));
  return is.kind == TSR_OWNED || (is.kind == TSR_SHARD && is.dim == dim) ? is : tsr_whole;
}

/* Whether all that is added up to a gradient in the update can go to ZeRO's placement. */
static bool is_scattered(const tsr_placer *p, int old) {
  int node = p->old->values[old].node;
  const tsr_node *n = node < 0 ? NULL : &p->old->nodes[node];
  if (!n || n->op != TSR_OP_ADD || n->section != TSR_UPDATE)
    return zero_wanted(p, old, &p->g->values[p->map[old]]).kind != TSR_REPLICATE;
  return is_scattered(p, n->inputs[0]) && is_scattered(p, n->inputs[1]);
}

static bool depends_on_batch(const tsr_placer *p, const tsr_node *n) {
  for (int i = 0; i < n->inputs_count; i++)
    if (p->of_batch[n->inputs[i]]) return true;
  return false;
}

/* Whether parameters alone make what a node computes, or what it is the gradient of. Every rank of
 * dp and cp computes all of it, from complete sums: no sum but those over samples and positions is
 * made of their units. */
static bool is_of_weights(const tsr_placer *p, const tsr_node *n) {
  if (!p->placing->is_model) return false;
  if (n->section == TSR_UPDATE) return n->of >= 0; /* the others' are in the backward pass */
  return n->section <= TSR_FORWARD && !depends_on_batch(p, n);
}

/* Ops that take a parameter as it is stored: its update, and its working copy. */
static bool takes_stored(const tsr_node *n) {
  return tsr_op_facts(n->op) & TSR_FACT_UPDATE || n->op == TSR_OP_CAST;
}

/* A collective that the file writes out over an axis that splits something: the move that this pass
 * would insert, asked for by name. */
static bool is_written(const tsr_placer *p, const tsr_node *n) {
  return tsr_op_moves(n->op) && tsr_placer_is_active(p->placing, (int)n->attr.move.axis);
}

/* What an op's rule is shown of an input over dp: where there is a loss, parameters come whole to
 * everything but their update, their working copy and moves that the file writes out, so that no
 * sum but those over samples is made of batch units, of which a microbatch has its part. With ZeRO
 * sums of gradients are added up where they will be needed; from stage 2 on that is done for each
 * microbatch, and then for all that is accumulated. */
static tsr_placement dp_input(const tsr_placer *p, const tsr_node *n, int input) {
  const tsr_value *v = &p->g->values[p->map[n->inputs[input]]];
  tsr_placement is = v->placement[TSR_DP], wanted = zero_wanted(p, n->inputs[input], v);
  bool adds = n->op == TSR_OP_ADD && n->section == TSR_UPDATE;
  bool has_loss = p->old->loss >= 0 && !is_written(p, n);
  bool gathers = !takes_stored(n) && (p->placing->zero || has_loss || depends_on_batch(p, n));
  if (gathers && is_weight(p, p->map[n->inputs[input]])) return tsr_whole;
  if (n->op == TSR_OP_NORM_STATS) /* the sum that the update needs, made once */
    return norm_pieces(p, n->inputs[input], is.kind == TSR_PARTIAL ? wanted : is);
  if (!p->placing->zero) return is;
  if (adds && !is_scattered(p, n->outputs[0])) return tsr_whole;
  if (is.kind != TSR_PARTIAL) return is;
  if (adds && !v->units) return wanted;
  if (n->op != TSR_OP_ACCUMULATE || !tsr_placer_scatters_first(p)) return is;
  return v->units && wanted.kind == TSR_SHARD ? tsr_whole : wanted;
}

/* What an op's rule is shown of an input over an axis. What positions, and the ranks of ep, owe to
 * a sum over microbatches is added up for each of them. */
static tsr_placement shown_input(const tsr_placer *p, const tsr_node *n, int input, int axis) {
  const tsr_value *v = &p->g->values[p->map[n->inputs[input]]];
  if (axis == TSR_DP) return dp_input(p, n, input);
  int weight = weight_of(p, p->map[n->inputs[input]]);
  if (is_stored_whole(p, axis) && weight >= 0 && !tsr_param_is_of_experts(&p->old->params[weight]))
    return is_written(p, n) ? p->old->params[weight].placement[axis] : tsr_whole;
  if (axis == TSR_CP && n->op == TSR_OP_NORM_STATS)
    return norm_pieces(p, n->inputs[input], v->placement[TSR_CP]);
  bool sum =
      axis == TSR_CP && !v->units_of_sequence && (n->op == TSR_OP_ACCUMULATE || v->batch_units);
  sum |= axis == TSR_EP && n->op == TSR_OP_ACCUMULATE;
  bool partial = v->placement[axis].kind == TSR_PARTIAL && !is_written(p, n);
  return sum && partial ? tsr_whole : v->placement[axis];
}

/* From stage 2 on a gradient is no longer tsr_whole once it is made. */
static void scatter_gradients(tsr_placer *p, const tsr_node *n) {
  tsr_where at = {n->section, n->stage, n->block};
  for (int o = 0; o < n->outputs_count && tsr_placer_scatters_first(p); o++) {
    const tsr_value *v = &p->g->values[p->map[n->outputs[o]]];
    tsr_placement wanted = zero_wanted(p, n->outputs[o], v);
    if (v->placement[TSR_DP].kind == TSR_PARTIAL && wanted.kind != TSR_REPLICATE && !v->units)
      tsr_placer_redistribute(p, p->map[n->outputs[o]], TSR_DP, wanted, at);
  }
}

/* Parameters are gathered once a step, or with stage 3 where they are needed. */
static tsr_where gather_place(const tsr_placer *p, const tsr_node *n, int value, tsr_where at) {
  if (weight_of(p, value) >= 0 && p->placing->zero && p->placing->zero < 3 &&
      n->section != TSR_UPDATE)
    at.section = TSR_PROLOGUE;
  return at;
}

/* Where cp splits positions, the batch units of a rank's microbatch stay apart in a sum over both:
 * each is complete only when the members' parts of it have been added. */
static int64_t
kept_batch_units(const tsr_placer *p, const tsr_node *n, const int *inputs, const placed *out) {
  bool both = out->out[0][TSR_DP].kind == TSR_PARTIAL && out->out[0][TSR_CP].kind == TSR_PARTIAL;
  bool exact = n->op == TSR_OP_EXPERT_COUNTS; /* whole numbers, in any order */
  if (!both || exact || out->units_of_sequence || p->placing->size[TSR_CP] == 1) return 0;
  for (int i = 0; i < n->inputs_count; i++)
    if (tsr_placer_is_partial(p, inputs[i], TSR_CP)) return 0; /* no sum of its own */
  int64_t units = tsr_placer_units(p, TSR_DP) / tsr_placer_batch_ranks(p);
  return units > 1 ? units : 0;
}

/* Ops that treat every summand alike, so that units may stay apart through them. */
static bool keeps_units(tsr_op op) { return tsr_op_facts(op) & TSR_FACT_SUMMANDS; }

static void
ask_rule(const tsr_placer *p, const tsr_node *n, const int *inputs, tsr_placement_rule_call *call) {
  call->g = p->old;
  call->node = n;
  call->placed = p->g;
  call->inputs = inputs;
  call->parts = tsr_axis_splits_batch(call->axis) ? tsr_placer_units(p, TSR_DP)
                                                  : tsr_placer_parts(p->placing, call->axis);
  const tsr_placing *placing = p->placing;
  call->members = placing->size[call->axis];
  int64_t units = p->old->units.sequence, slices = placing->size[TSR_CP] * placing->size[TSR_TP];
  call->slices_are_units = units % slices == 0 && (!placing->zigzag || units <= 2) &&
                           tsr_tree_of_is_subtree(p->old->units.tree, units, units / slices);
  tsr_placement_rule_apply(call);
}

/* Whether an op leaves tp nothing to split, so that slices may stay what they are. */
static bool is_whole(const tsr_node *n, const tsr_placement_rule_call *call) {
  for (int i = 0; i < n->inputs_count; i++)
    if (call->in[i].kind != TSR_REPLICATE) return false;
  for (int o = 0; o < n->outputs_count; o++)
    if (call->out[o].kind != TSR_REPLICATE) return false;
  return true;
}

/* Asks for tp as if there were no slices of the sequence; whether that decides. It does where tp
 * splits anything then: which sums are made of tp's units must not depend on slices. */
static bool
ask_plain(tsr_placer *p, const tsr_node *n, const int *inputs, tsr_placement_rule_call *call) {
  for (int i = 0; i < n->inputs_count; i++) {
    bool norm = n->op == TSR_OP_NORM_STATS;
    call->in[i] = norm ? norm_tp(p, n->inputs[i]) : p->plain_tp[n->inputs[i]];
    bool of_cp = tsr_placer_is_split_alike(p, inputs[i], TSR_CP, call->in[i]) && /* positions */
                 !tsr_routed_is_weights(p->g->values[inputs[i]].routed);
    bool partial = call->of_weights && call->in[i].kind == TSR_PARTIAL;
    if (of_cp || partial) call->in[i] = tsr_whole;
  }
  ask_rule(p, n, inputs, call);
  for (int o = 0; o < n->outputs_count; o++)
    p->plain_tp[n->outputs[o]] = call->error ? tsr_whole : call->out[o];
  if (!p->has_slices || n->op == TSR_OP_NORM_STATS) return true;
  return !call->error && !is_whole(n, call);
}

/* Whether an op sums what slices split, without keeping units apart. */
static bool sums_slices(const tsr_node *n, const tsr_placement_rule_call *call) {
  for (int i = 0; i < n->inputs_count; i++)
    if (call->in[i].kind == TSR_PARTIAL) return false;
  return call->axis == TSR_TP && call->out[0].kind == TSR_PARTIAL && !call->units;
}

/* Where a rule does not know how tp could split what parameters alone make, it does not. */
static tsr_placement_rule_call or_whole(const tsr_node *n, tsr_placement_rule_call call) {
  if (!call.error) return call;
  for (int i = 0; i < n->inputs_count; i++) call.in[i] = tsr_whole;
  return (tsr_placement_rule_call){.axis = call.axis, .in = call.in};
}

/* The placements over an axis that the op requires of its inputs, and those of its outputs. */
static tsr_placement_rule_call
ask(tsr_placer *p, const tsr_node *n, const int *inputs, int axis, tsr_placement *in) {
  tsr_placement_rule_call plain = {.axis = axis, .in = in}, call = plain;
  bool of_weights = is_of_weights(p, n) && !takes_stored(n) && !is_written(p, n);
  for (int i = 0; i < n->inputs_count; i++) in[i] = tsr_whole;
  bool splits_rows = tsr_axis_splits_batch(axis) || axis == TSR_CP;
  if (has_all_samples(p, axis) || (of_weights && splits_rows)) return call;
  plain.of_weights = of_weights;
  bool decides = axis == TSR_TP && ask_plain(p, n, inputs, &plain);
  if (axis == TSR_TP && of_weights) return or_whole(n, plain); /* they have no slices */
  if (decides) return plain;
  for (int i = 0; i < n->inputs_count; i++) in[i] = shown_input(p, n, i, axis);
  call.sequence_parallel = p->placing->sequence_parallel;
  ask_rule(p, n, inputs, &call);
  if (call.error || !sums_slices(n, &call)) return call;
  for (int i = 0; i < n->inputs_count; i++) in[i] = tsr_whole;
  return plain;
}

/* Applies the op's rule for every axis, redistributes the inputs, and sets the outputs'
 * placements. */
static bool place_inputs(tsr_placer *p, const tsr_node *n, int *inputs, placed *ret) {
  tsr_placement *in = tsr_arena_array(p->g->arena, tsr_placement, n->inputs_count);
  tsr_where at = {n->section, n->stage, n->block};
  for (int a = 0; a < TSR_AXES; a++) {
    if (!tsr_placer_is_active(p->placing, a)) continue;
    tsr_placement_rule_call call = ask(p, n, inputs, a, in);
    if (call.error) return tsr_diag_error(p->diags, n->location, "%s", call.error);
    if (a == TSR_PP && !tsr_placer_check_sum_over_pp(p, n, in, call.out[0])) return false;
    for (int i = 0; i < n->inputs_count; i++) {
      bool whole = is_stored_whole(p, a) && !tsr_routed_is_weights(p->g->values[inputs[i]].routed);
      tsr_where to = gather_place(p, n, inputs[i], at);
      if (call.pads_split) inputs[i] = tsr_placer_pad(p, inputs[i], a, in[i].dim, to);
      if ((a != TSR_DP && !whole) || i != shape_input(n))
        inputs[i] = tsr_placer_redistribute(p, inputs[i], a, in[i], to);
    }
    for (int o = 0; o < n->outputs_count; o++) ret->out[o][a] = call.out[o];
    if (call.units) ret->units = call.units;
    ret->units_of_sequence |= call.units_of_sequence;
  }
  ret->batch_units = kept_batch_units(p, n, inputs, ret);
  for (int i = 0; i < n->inputs_count; i++) {
    inputs[i] = tsr_placer_sum_batch(p, inputs[i], at);
    if (!keeps_units(n->op)) inputs[i] = tsr_placer_sum_units(p, inputs[i], at);
    inputs[i] = tsr_placer_receive(p, inputs[i], at);
  }
  return true;
}

/* What completes a value, or moves it on, is the same whoever asks for it: redistribution knows in
 * which order its sums are added, and that a member's positions may be two runs. */
static void place_written(tsr_placer *p, const tsr_node *n) {
  int value = p->map[n->inputs[0]], axis = (int)n->attr.move.axis, before = p->g->values_count;
  tsr_placement in;
  tsr_placement_rule_call call;
  p->map[n->outputs[0]] = value;
  p->plain_tp[n->outputs[0]] = p->plain_tp[n->inputs[0]];
  if (has_all_samples(p, axis)) return;
  call = ask(p, n, &value, axis, &in);
  if (call.error) {
    p->ok = tsr_diag_error(p->diags, n->location, "%s", call.error);
    return;
  }
  tsr_where at = {n->section, n->stage, n->block};
  tsr_value out = p->old->values[n->outputs[0]];
  memcpy(out.placement, p->g->values[value].placement, sizeof out.placement);
  out.placement[axis] = call.out[0];
  tsr_placer_check_divides(p, &out);
  if (!p->ok) return;
  if (axis == TSR_DP && p->old->microbatches > 1)
    tsr_placer_note_moved(p, n, p->g->values[value].placement[axis]);
  value = tsr_placer_redistribute(p, value, axis, in, gather_place(p, n, value, at));
  int from = value;
  value = tsr_placer_redistribute(p, value, axis, call.out[0], at);
  if (value != from) tsr_placer_keep_transport(p, n, value, before);
  tsr_value *v = &p->g->values[value];
  p->map[n->outputs[0]] = value;
  if (value < before) return; /* the same move was made before */
  v->name = p->g->nodes[v->node].name = n->name;
  v->location = p->g->nodes[v->node].location = n->location;
}

/* The node as it is, or what stands for attention where cp splits its positions. */
static void copy_node(tsr_placer *p, int index, const int *inputs, int *ret_outputs) {
  const tsr_node *n = &p->old->nodes[index];
  bool attention = n->op == TSR_OP_ATTENTION || n->op == TSR_OP_ATTENTION_DX;
  tsr_placement cp = p->g->values[inputs[0]].placement[TSR_CP];
  bool positions = cp.kind == TSR_SHARD && cp.dim == 1; /* of (batch, positions, heads) */
  if (attention && p->placing->size[TSR_CP] > 1 && positions) {
    tsr_pass_ring_attention(p->g, p->old, index, inputs, p->placing->size[TSR_CP], ret_outputs);
    return;
  }
  tsr_graph_copy_node(p->g, p->old, index, inputs);
  memcpy(
      ret_outputs, p->g->nodes[p->g->nodes_count - 1].outputs,
      sizeof *ret_outputs * (size_t)n->outputs_count);
}

static void place_node(tsr_placer *p, int index) {
  const tsr_node *n = p->reader = &p->old->nodes[index];
  if (is_written(p, n)) return place_written(p, n);
  int *inputs = tsr_arena_array(p->g->arena, int, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) inputs[i] = p->map[n->inputs[i]];
  placed out = {0};
  tsr_placer_check_accumulated(p, n);
  tsr_placer_check_positions(p, n);
  if (place_inputs(p, n, inputs, &out)) {
    tsr_placer_check_summed(p, n, inputs, out.out[0]);
    tsr_placer_check_moved(p, n, inputs, out.out[0]);
  } else {
    p->ok = false;
  }
  tsr_placer_check_random(p, n, out.out[0][TSR_DP]);
  if (n->op == TSR_OP_ACCUMULATE && tsr_placer_adds_in_turn(p)) {
    tsr_placement to = zero_wanted(p, n->outputs[0], &p->g->values[inputs[0]]);
    p->map[n->outputs[0]] = tsr_placer_accumulate(p, inputs[0], to, n);
    return;
  }
  if (tsr_placer_accumulate_experts(p, n, inputs[0])) return;
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
    tsr_placer_check_divides(p, v);
    tsr_placer_store_partial(p, v);
    p->map[n->outputs[o]] =
        tsr_placer_round_complete(p, outputs[o], (tsr_where){n->section, n->stage, n->block});
  }
  tsr_placer_return_tokens(p, n);
  scatter_gradients(p, n);
}

/* Requested outputs are complete: no partial values. */
static int complete(tsr_placer *p, int value, tsr_section section) {
  tsr_where at = tsr_placer_home(p, value, (tsr_where){section, TSR_EVERY_STAGE, -1});
  for (int a = 0; a < TSR_AXES; a++)
    if (p->g->values[value].placement[a].kind == TSR_PARTIAL)
      value = tsr_placer_redistribute(p, value, a, (tsr_placement){TSR_REPLICATE, 0}, at);
  return tsr_placer_sum_units(p, tsr_placer_sum_batch(p, value, at), at);
}

/* Whether a file writes out what sequence parallelism inserts. */
static bool writes_slices(const tsr_graph *g) {
  for (int i = 0; i < g->nodes_count; i++)
    if (tsr_node_axis(&g->nodes[i]) == TSR_TP) return true;
  return false;
}

bool tsr_pass_placement(
    const tsr_graph *old, const tsr_placing *placing, tsr_graph **ret_graph, tsr_diags *diags) {
  tsr_placer p = {.old = old, .placing = placing, .diags = diags, .ok = true};
  p.g = tsr_graph_derive(old);
  p.map = tsr_arena_array(old->arena, int, old->values_count);
  p.plain_tp = tsr_arena_array(old->arena, tsr_placement, old->values_count);
  p.moved = tsr_arena_array(old->arena, tsr_moved_samples, old->values_count);
  find_wanted(&p);
  p.has_slices = placing->sequence_parallel || writes_slices(old);
  p.of_batch = tsr_graph_depends_on_inputs(old);
  for (int i = 0; i < old->values_count && p.ok; i++)
    if (old->values[i].kind != TSR_VALUE_NODE) place_source(&p, i);
  for (int i = 0; i < old->nodes_count && p.ok; i++) place_node(&p, i);
  if (!p.ok) return false; /* the same mistake would be found at every value that comes of it */
  tsr_section last = old->nodes_count ? old->nodes[old->nodes_count - 1].section : TSR_FORWARD;
  if (last > TSR_FORWARD) last = TSR_UPDATE; /* what microbatches add up is complete then */
  for (int i = 0; i < old->outputs_count; i++)
    p.map[old->outputs[i].value] = complete(&p, p.map[old->outputs[i].value], last);
  if (old->loss >= 0) p.map[old->loss] = complete(&p, p.map[old->loss], last);
  tsr_graph_map_ends(p.g, old, p.map);
  *ret_graph = p.g;
  return p.ok;
}
