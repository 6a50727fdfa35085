// SPDX-License-Identifier: Apache-2.0
/* The placement rules, one per op (ops.def, place column; those of heads are in
 * placement_rules_heads.c): from what the inputs are over one axis to what they must become and
 * what the outputs then are. Only linear maps may carry a partial through; everything else requires
 * it to be completed first. */
#include "passes/placement_rule_inputs.h"
#include "graph/routing.h"
#include <math.h>
#include <string.h>

static const tsr_placement partial = {TSR_PARTIAL, 0};

/* The axes over which a sum of rows is made of units, batch's or sequence's. */
static bool splits_rows(const call *c) {
  return tsr_axis_splits_batch(c->axis) || c->axis == TSR_CP;
}

void tsr_place_none(call *c) { give_all(c, whole); }

void tsr_place_whole(call *c) {
  want_all(c, whole);
  give_all(c, whole);
}

/* What a sum over tp becomes when it is completed: everywhere whole, or with sequence parallelism
 * each rank's slice of the sequence, which is the dimension that the units of cp split. */
static tsr_placement completed(const call *c, int i) {
  tsr_placement positions = over(c, i, TSR_CP);
  bool slice = c->sequence_parallel && c->axis == TSR_TP && ndim(c, i) == 3 &&
               positions.kind == TSR_SHARD && positions.dim < 2;
  return c->in[i].kind == TSR_PARTIAL && slice ? shard(positions.dim) : whole;
}

/* The dimension of positions that a sum over the rows of (batch, positions, features) keeps apart:
 * the one that cp's units split, else the second if it is not the batch; -1: none. */
static int positions_of(const call *c, tsr_placement rows) {
  tsr_placement cp = c->axis == TSR_CP ? rows : over(c, 0, TSR_CP);
  int64_t units = c->g->units.sequence;
  if (ndim(c, 0) != 3 || units <= 1 || c->of_weights) return -1;
  if (cp.kind == TSR_SHARD) return cp.dim < 2 ? cp.dim : -1;
  return input(c, 0)->shape[1] % units || is_shard(over(c, 0, TSR_DP), 1) ? -1 : 1;
}

/* How many summands a sum over rows keeps apart: one per unit of the dimension that tp or cp
 * splits. Where the recipe splits the sequence, sums over positions are made of its units whether
 * or not they are split here. */
static int64_t row_units(call *c, tsr_placement rows) {
  const tsr_units *u = &c->g->units;
  if (c->axis != TSR_TP && c->axis != TSR_CP) return 0;
  int positions = positions_of(c, rows);
  bool other = c->axis == TSR_TP && rows.kind == TSR_SHARD && rows.dim != positions;
  c->units_of_sequence = positions >= 0 && !other;
  if (c->axis == TSR_CP || !other) return positions >= 0 ? u->sequence : 0;
  if (positions >= 0 || rows.dim == 0)
    c->error = tsr_arena_printf(
        c->g->arena, "%s sums over rows whose batch is split over tp", c->node->name);
  return u->tp > 1 ? u->tp : 0;
}

/* Element i of every output depends on element i of every input. */
void tsr_place_elementwise(call *c) {
  tsr_placement p = whole;
  for (int i = 0; i < c->node->inputs_count && p.kind == TSR_REPLICATE; i++)
    if (c->in[i].kind == TSR_SHARD || c->in[i].kind == TSR_ROUTED) p = c->in[i];
  want_all(c, p);
  give_all(c, p);
}

/* Whether an input's numbers are added over ranks in half precision. Where an op rounds otherwise,
 * or not, its output is not the sum of what it makes of the summands. */
static bool is_half(const call *c, int i) {
  return tsr_dtype_is_half(c->placed->values[c->inputs[i]].dtype);
}

void tsr_place_linear_map(call *c) {
  if (c->in[0].kind == TSR_PARTIAL && is_half(c, 0)) c->in[0] = whole;
  give_all(c, c->in[0]);
}

/* A factor distributes over a sum's bits only when multiplying by it is exact: a power of two, and
 * in f32, for numbers in fp16 may leave its range. */
void tsr_place_scale(call *c) {
  int exponent;
  bool exact = fabs(frexp(c->node->attr.scale.factor, &exponent)) == 0.5 && !is_half(c, 0);
  if (c->in[0].kind == TSR_PARTIAL && !exact) c->in[0] = whole;
  give_all(c, c->in[0]);
}

/* The second input may lack leading dimensions of the first, also where these are rows of experts.
 */
void tsr_place_broadcast(call *c) {
  int missing = ndim(c, 0) - ndim(c, 1);
  tsr_placement p = completed(c, c->in[0].kind == TSR_PARTIAL ? 0 : 1);
  if (is_owned(c, 0) || is_owned(c, 1)) p = c->in[is_owned(c, 1)]; /* gradients that are added */
  else if (c->in[0].kind == TSR_SHARD || c->in[0].kind == TSR_ROUTED) p = c->in[0];
  else if (c->in[1].kind == TSR_SHARD) p = c->in[1], p.dim += missing;
  c->in[0] = p;
  c->in[1] = p.kind == TSR_OWNED || (p.kind == TSR_ROUTED && !missing) ||
                     (p.kind == TSR_SHARD && p.dim >= missing)
                 ? p
                 : whole;
  if (c->in[1].kind == TSR_SHARD) c->in[1].dim -= missing;
  give_all(c, p);
}

/* y = x w^T, w (out, in). Megatron's pair: a column-parallel weight is shard(0), a row-parallel one
 * shard(1). A weight that is split over the axis that splits the batch is gathered just before use.
 */
void tsr_place_linear(call *c) {
  int last = ndim(c, 0) - 1;
  bool rows = is_rows(c, 0) && tsr_axis_splits_batch(c->axis);
  if (rows || (is_rows(c, 0) && c->in[1].kind != TSR_SHARD)) {
    c->in[1] = whole;
    give_all(c, c->in[0]);
  } else if (is_shard(c->in[1], 0)) {
    c->in[0] = whole;
    give_all(c, shard(last));
  } else if (is_shard(c->in[1], 1)) {
    c->in[0] = shard(last);
    give_all(c, partial);
  } else {
    tsr_place_whole(c);
  }
}

/* w (out, in), a (r, in), b (out, r) → (out), a sum over in */
void tsr_place_adapted_squares(call *c) {
  bool rows = is_shard(c->in[0], 0), columns = is_shard(c->in[0], 1);
  if (!rows && !columns) c->in[0] = whole;
  c->in[1] = columns ? shard(1) : whole;
  c->in[2] = rows ? shard(0) : whole;
  give_all(c, rows ? shard(0) : columns ? partial : whole);
}

/* Inputs are pairs (dy, w); dx is their sum, so all pairs must agree: beside a column-parallel
 * weight the others are split by columns too, also where tp's units do not divide these. */
void tsr_place_linear_dx(call *c) {
  int last = ndim(c, 0) - 1, pairs = c->node->inputs_count / 2;
  bool columns = false, rows_weight = pairs > 0;
  tsr_placement rows = whole;
  for (int i = 0; i < 2 * pairs; i += 2) {
    if (is_rows(c, i) && (tsr_axis_splits_batch(c->axis) || c->in[i + 1].kind != TSR_SHARD))
      rows = c->in[i];
    columns |= is_shard(c->in[i + 1], 0);
    rows_weight &= is_shard(c->in[i + 1], 1);
  }
  bool by_rows = rows.kind == TSR_SHARD && (tsr_axis_splits_batch(c->axis) || !columns);
  c->pads_split = columns && !by_rows && c->axis == TSR_TP;
  for (int i = 0; i < 2 * pairs; i += 2) {
    c->in[i] = by_rows ? rows : columns ? shard(last) : whole;
    c->in[i + 1] = by_rows ? whole : columns ? shard(0) : rows_weight ? shard(1) : whole;
  }
  give_all(c, by_rows ? rows : columns ? partial : rows_weight ? shard(last) : whole);
}

/* dw (out, in) = dy^T x, summed over rows; the third input is w itself, for its placement. Only
 * rows of dp and cp are summed where they are: they come in units. */
void tsr_place_linear_dw(call *c) {
  tsr_placement w = c->in[2];
  if ((is_rows(c, 0) || is_rows(c, 1)) && splits_rows(c)) {
    c->in[0] = c->in[1] = is_rows(c, 0) ? c->in[0] : c->in[1];
    give_all(c, partial);
  } else if (w.kind == TSR_SHARD) {
    c->in[0] = is_shard(w, 0) ? shard(ndim(c, 0) - 1) : whole;
    c->in[1] = is_shard(w, 0) ? whole : shard(ndim(c, 1) - 1);
    give_all(c, w);
  } else {
    c->in[0] = c->in[1] = whole;
    give_all(c, whole);
  }
}

/* Positions are summed where cp has them; tp's part of those is gathered first. */
static bool sums_positions(const call *c, int i, int dim) {
  return c->axis == TSR_TP && is_shard(c->in[i], dim) && is_shard(over(c, i, TSR_CP), dim);
}

void tsr_place_matmul(call *c) {
  int n = ndim(c, 0);
  bool ta = c->node->attr.matmul.transpose_a, tb = c->node->attr.matmul.transpose_b;
  int m_dim = ta ? n - 1 : n - 2, ka = ta ? n - 2 : n - 1, kb = tb ? n - 1 : n - 2,
      n_dim = tb ? n - 2 : n - 1;
  tsr_placement a = sums_positions(c, 0, ka) ? whole : c->in[0],
                b = sums_positions(c, 1, kb) ? whole : c->in[1];
  c->in[0] = a;
  c->in[1] = b;
  if (a.kind == TSR_SHARD && a.dim < n - 2) {
    c->in[1] = a;
    give_all(c, a);
  } else if (is_shard(a, ka) || is_shard(b, kb)) {
    c->in[0] = shard(ka);
    c->in[1] = shard(kb);
    give_all(c, partial);
  } else if (is_shard(a, m_dim)) {
    c->in[1] = whole;
    give_all(c, shard(n - 2));
  } else if (is_shard(b, n_dim)) {
    c->in[0] = whole;
    give_all(c, shard(n - 1));
  } else {
    tsr_place_whole(c);
  }
}

void tsr_place_embedding(call *c) {
  if (c->in[0].kind == TSR_SHARD) {
    c->in[1] = whole;
    give_all(c, c->in[0]);
  } else if (is_shard(c->in[1], 0)) {
    give_all(c, partial);
  } else if (is_shard(c->in[1], 1)) {
    give_all(c, shard(ndim(c, 0)));
  } else {
    tsr_place_whole(c);
  }
}

void tsr_place_embedding_dw(call *c) {
  tsr_placement tokens = c->in[0], table = c->in[2];
  if (tokens.kind == TSR_SHARD) {
    c->in[1] = tokens;
    give_all(c, partial);
  } else if (table.kind == TSR_SHARD) {
    c->in[1] = is_shard(table, 0) ? whole : shard(ndim(c, 1) - 1);
    give_all(c, table);
  } else {
    c->in[0] = c->in[1] = whole;
    give_all(c, whole);
  }
}

/* Which input of a row op is a vector over the last dimension, not rows; -1: none. */
static bool is_vector(const call *c, int i) {
  switch ((int)c->node->op) {
  case TSR_OP_LAYERNORM:
    return i >= 1;
  case TSR_OP_RMSNORM:
    return i == 1;
  case TSR_OP_LAYERNORM_DX:
  case TSR_OP_RMSNORM_DX:
  case TSR_OP_BALANCE_LOSS:
    return i == 2;
  case TSR_OP_CHOOSE_EXPERTS:
    return i == 1 && tsr_choice_has_bias(c->node);
  case TSR_OP_NORM_DW:
    return i == c->node->inputs_count - 1;
  default:
    return false;
  }
}

/* The dimension by which the rows of a row op are split; whole if none is. */
static tsr_placement rows_of(const call *c) {
  for (int i = 0; i < c->node->inputs_count; i++)
    if (!is_vector(c, i) && ndim(c, i) == ndim(c, 0) && is_rows(c, i)) return c->in[i];
  return whole;
}

/* Every row is for itself, so rows may be split but not split. */
void tsr_place_rows(call *c) {
  tsr_placement p = rows_of(c);
  if (p.kind != TSR_SHARD) p = completed(c, 0);
  for (int i = 0; i < c->node->inputs_count; i++) c->in[i] = is_vector(c, i) ? whole : p;
  give_all(c, p);
}

/* Rows that tp splits along the dimension whose units of positions are kept apart must be split
 * between those; where they are not kept apart, positions are summed where cp has them. */
static tsr_placement rows_between_units(const call *c, tsr_placement p) {
  if (c->axis != TSR_TP || p.kind != TSR_SHARD) return p;
  if (positions_of(c, p) != p.dim) return is_shard(over(c, 0, TSR_CP), p.dim) ? whole : p;
  return c->slices_are_units ? p : whole;
}

void tsr_place_norm_dw(call *c) {
  tsr_placement p = rows_between_units(c, rows_of(c));
  for (int i = 0; i < c->node->inputs_count; i++) c->in[i] = is_vector(c, i) ? whole : p;
  give_all(c, p.kind == TSR_SHARD ? partial : whole);
  c->units = row_units(c, p);
}

void tsr_place_sum_to(call *c) {
  int missing = ndim(c, 0) - ndim(c, 1);
  tsr_placement p = c->in[0].kind == TSR_SHARD ? c->in[0] : completed(c, 0);
  bool kept = p.kind == TSR_SHARD && p.dim >= missing; /* split along what remains */
  if (!kept) p = rows_between_units(c, p);
  c->in[0] = p;
  c->units = kept || missing < 2 ? 0 : row_units(c, p);
  give_all(c, kept ? shard(p.dim - missing) : p.kind == TSR_SHARD ? partial : whole);
}

/* The dimension of the result that begins where dimension `dim` of the input does; ndim: none. It
 * stands behind those of 1, but for the batch of one unit, which may be 1 as well. */
static int begins_at(const call *c, const tsr_value *x, const tsr_value *y, int dim) {
  int64_t before = 1, before_out = 1;
  for (int d = 0; d < dim; d++) before *= x->shape[d];
  int e = 0;
  while (e < y->ndim && before_out < before) before_out *= y->shape[e++];
  bool passes = x->shape[dim] != 1 && (!tsr_axis_splits_batch(c->axis) || c->parts > 1);
  while (passes && e < y->ndim - 1 && y->shape[e] == 1) e++;
  return before_out == before ? e : y->ndim;
}

/* A split dimension survives a reshape when it stays the outermost part of one of the new ones. A
 * microbatch may be one sample, on which nothing may depend: positions that are joined with the
 * batch do not survive, nor the batch that is joined with what stands before it. */
void tsr_place_reshape(call *c) {
  const tsr_value *x = input(c, 0), *y = &c->g->values[c->node->outputs[0]];
  tsr_placement in = c->in[0], batch = over(c, 0, TSR_DP);
  if (in.kind != TSR_SHARD) return give_all(c, in);
  int e = begins_at(c, x, y, in.dim);
  bool fits = e < y->ndim && y->shape[e] % c->parts == 0 &&
              (y->shape[e] % x->shape[in.dim] == 0 || x->shape[in.dim] % y->shape[e] == 0);
  if (tsr_axis_splits_batch(c->axis) && e > 0 && x->shape[in.dim] == 1) fits &= y->shape[e] == 1;
  bool joined = !tsr_axis_splits_batch(c->axis) && batch.kind == TSR_SHARD && batch.dim < in.dim &&
                fits && begins_at(c, x, y, batch.dim) == e;
  if (!fits || joined) c->in[0] = whole;
  give_all(c, fits && !joined ? shard(e) : whole);
}

void tsr_place_transpose(call *c) {
  int a = c->node->attr.transpose.dim0, b = c->node->attr.transpose.dim1, dim = c->in[0].dim;
  if (c->in[0].kind == TSR_SHARD) dim = dim == a ? b : dim == b ? a : dim;
  else if (c->in[0].kind != TSR_PARTIAL || !tsr_axis_splits_batch(c->axis)) c->in[0] = whole;
  give_all(c, (tsr_placement){c->in[0].kind, dim});
}

/* Partial sums over dp pass through: the gradient of a part of a parameter is added up over
 * microbatches and ranks like any other. */
void tsr_place_slice(call *c) {
  if (c->in[0].kind == TSR_PARTIAL && tsr_axis_splits_batch(c->axis)) return give_all(c, c->in[0]);
  if (c->in[0].kind != TSR_SHARD || is_shard(c->in[0], c->node->attr.slice.dim)) c->in[0] = whole;
  give_all(c, c->in[0]);
}

/* All inputs are split alike, along a dimension that each has whole in the result. */
void tsr_place_concat(call *c) {
  tsr_placement p = whole;
  for (int i = 0; i < c->node->inputs_count && p.kind != TSR_SHARD; i++)
    if (c->in[i].kind == TSR_SHARD && c->in[i].dim != c->node->attr.concat.dim) p = c->in[i];
  want_all(c, p);
  give_all(c, p);
}

/* logits (…, V), targets (…) → stats (…, units, 3); tp alone splits a vocabulary */
void tsr_place_ce_stats(call *c) {
  if (c->in[0].kind == TSR_PARTIAL || (is_last(c, 0) && c->axis != TSR_TP)) c->in[0] = whole;
  c->in[1] = is_rows(c, 0) ? c->in[0] : whole;
  give_all(c, c->in[0]); /* the vocabulary's dimension is the units' */
}

/* logits (for their gradient only), stats, targets, step_scalars → loss, row_stats */
void tsr_place_ce_loss(call *c) {
  bool rows = is_rows(c, 0) && splits_rows(c);
  if (c->in[0].kind == TSR_PARTIAL) c->in[0] = whole;
  c->in[1] = c->in[2] = rows ? c->in[0] : whole;
  c->in[3] = whole;
  c->out[0] = rows ? tsr_placement_rule_of_loss(c) : whole;
  c->out[1] = rows ? c->in[0] : whole;
}

void tsr_place_ce_loss_dx(call *c) {
  if (c->in[0].kind == TSR_PARTIAL || (is_last(c, 0) && c->axis != TSR_TP)) c->in[0] = whole;
  c->in[1] = c->in[2] = is_rows(c, 0) ? c->in[0] : whole;
  c->in[3] = whole;
  give_all(c, c->in[0]);
}

void tsr_place_squared(call *c) {
  tsr_placement p = is_rows(c, 0) ? c->in[0] : is_rows(c, 1) ? c->in[1] : whole;
  bool loss = c->node->op == TSR_OP_SQUARED_ERROR;
  if (loss && !tsr_axis_splits_batch(c->axis)) p = whole; /* its units are the batch's */
  c->in[0] = c->in[1] = p;
  give_all(c, loss && p.kind == TSR_SHARD ? tsr_placement_rule_of_loss(c) : p);
}

/* With units of tp every gradient's sums are kept in them: those of one that tp does not split are
 * in the first, so that all can stand side by side. */
void tsr_place_norm_stats(call *c) {
  if (c->in[0].kind == TSR_PARTIAL) c->in[0] = whole;
  bool units = c->axis == TSR_TP && c->g->units.tp > 1;
  give_all(c, units || c->in[0].kind == TSR_SHARD ? partial : c->in[0]);
  c->units = units ? c->g->units.tp : 0;
}

/* A replicated summand beside partial ones counts on the first rank, an owner's on the owner. */
void tsr_place_norm_join(call *c) {
  bool summands = c->axis == TSR_PP; /* every stage has its own parameters' */
  for (int i = 0; i < c->node->inputs_count; i++) summands |= c->in[i].kind != TSR_REPLICATE;
  give_all(c, summands ? partial : whole);
}

/* Gradient and state come to the parameter; step_scalars and clip are everywhere. */
void tsr_place_optimizer(call *c) {
  for (int i = 1; i < c->node->inputs_count; i++)
    c->in[i] = i == 1 || input(c, i)->kind == TSR_VALUE_STATE ? c->in[0] : whole;
}

static const char *wrong_input(const call *c, const char *must) {
  return tsr_arena_printf(
      c->g->arena, "%s over %s: '%s' is not %s there", tsr_op_title(c->node->op),
      tsr_axis_name(c->axis), input(c, 0)->name, must);
}

/* A collective that the user wrote: on its axis it completes the partial sums, elsewhere it changes
 * nothing. */
void tsr_place_collective(call *c) {
  const tsr_attrs *attr = &c->node->attr;
  int gathered = attr->all_gather.dim;
  tsr_placement in = c->in[0];
  if (tsr_node_axis(c->node) != c->axis) return give_all(c, in);
  give_all(c, whole);
  switch ((int)c->node->op) {
  case TSR_OP_ALL_REDUCE:
    if (in.kind != TSR_PARTIAL) c->error = wrong_input(c, "partial");
    return;
  case TSR_OP_ALL_GATHER:
    if (in.kind != TSR_SHARD) c->error = wrong_input(c, "split");
    else if (gathered >= 0 && in.dim != gathered)
      c->error =
          wrong_input(c, tsr_arena_printf(c->g->arena, "split along dimension %d", gathered));
    return;
  case TSR_OP_REDUCE_SCATTER:
    if (in.kind != TSR_PARTIAL) c->error = wrong_input(c, "partial");
    give_all(c, shard(attr->scatter.dim));
    return;
  case TSR_OP_BROADCAST:
    if (in.kind != TSR_REPLICATE) c->error = wrong_input(c, "whole");
    if (c->axis == TSR_PP) c->error = "broadcast over pp: a stage has all of its values";
    return;
  case TSR_OP_ALL_TO_ALL:
    if (!is_shard(in, attr->all_to_all.from)) c->error = wrong_input(c, "split along 'from'");
    give_all(c, shard(attr->all_to_all.dim));
    return;
  default: /* scatter */
    if (in.kind != TSR_REPLICATE) c->error = wrong_input(c, "whole");
    if (c->axis == TSR_PP) c->error = "scatter over pp: a stage has all of its values";
    give_all(c, shard(attr->scatter.dim));
  }
}

/* An update of a parameter that every rank has whole. */
void tsr_place_whole_update(call *c) { want_all(c, whole); }

static void (*const rules[])(call *c) = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, ...)                 \
  tsr_place_##place,
#include "graph/ops.def"
#undef OP
};

void tsr_placement_rule_apply(tsr_placement_rule_call *c) { rules[c->node->op](c); }
