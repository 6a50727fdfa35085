// SPDX-License-Identifier: Apache-2.0
/* The placement rules of a mixture of experts in its gather form: where an axis shares the experts
 * out, every member has all tokens of the group (gathered, or replicated anyway) and computes the
 * rows of its experts; each token's sum over experts is then partial (Megatron-LM's allgather
 * dispatcher). The plan, whose placement is that of the rows, says which axes these are. Over an
 * axis that splits samples alone, rows are split as the samples are. Over tp each expert may be
 * split instead, as a linear layer is. */
#include "passes/placement_rule_inputs.h"

static const tsr_placement partial = {TSR_PARTIAL, 0}, routed = {TSR_ROUTED, 0};

/* What the plan, the input `plan`, makes of an axis: the tokens' and the rows' placement and that
 * of the weights. False: over this axis nothing of the batch or of the experts is split. */
typedef struct {
  tsr_placement tokens, rows, weights;
} split;

static bool find_split(const call *c, int plan, split *ret) {
  tsr_placement p = c->in[plan];
  if (p.kind == TSR_ROUTED) *ret = (split){whole, routed, shard(0)};
  else if (is_shard(p, 0)) *ret = (split){shard(0), shard(0), whole};
  else *ret = (split){whole, whole, whole};
  return p.kind == TSR_ROUTED || is_shard(p, 0);
}

/* experts (…, k)[, priority (…, k)], w (E, out, in). ep and cp distribute experts, whose gradients
 * are not made of the units of either; what is not stored so, and what an op has made of
 * parameters, is split here. Over tp the placement of w decides. */
void tsr_place_expert_plan(call *c) {
  int last = c->node->inputs_count - 1;
  tsr_placement w = c->in[last], chosen = c->in[0];
  bool always = (c->axis == TSR_EP || c->axis == TSR_CP) && c->members > 1;
  bool shares = always || (is_shard(w, 0) && c->axis == TSR_TP);
  bool samples = !shares && tsr_axis_splits_batch(c->axis) && is_shard(chosen, 0);
  for (int i = 0; i < last; i++) c->in[i] = samples ? shard(0) : whole;
  c->out[0] = shares ? routed : c->in[0];
}

/* x (…, C), plan → rows */
void tsr_place_permute_experts(call *c) {
  split s;
  find_split(c, 1, &s);
  c->in[0] = s.tokens;
  c->out[0] = s.rows;
}

/* drows, plan, x → dx (…, C): a sum over each token's rows */
void tsr_place_permute_experts_dx(call *c) {
  split s;
  find_split(c, 1, &s);
  c->in[0] = s.rows;
  c->in[2] = s.tokens;
  c->out[0] = s.rows.kind == TSR_ROUTED ? partial : s.tokens;
}

/* rows (R, in), w (E, out, in), plan → (R, out) */
void tsr_place_expert_linear(call *c) {
  split s;
  if (find_split(c, 2, &s)) {
    c->in[0] = c->out[0] = s.rows;
    c->in[1] = s.weights;
  } else if (is_shard(c->in[1], 1)) {
    c->in[0] = whole;
    c->out[0] = shard(1);
  } else if (is_shard(c->in[1], 2)) {
    c->in[0] = shard(1);
    c->out[0] = partial;
  } else {
    c->in[0] = c->in[1] = c->out[0] = whole;
  }
}

/* rows (R, out), b (E, out), plan → (R, out) */
void tsr_place_expert_add(call *c) {
  split s;
  if (find_split(c, 2, &s)) {
    c->in[0] = c->out[0] = s.rows;
    c->in[1] = s.weights;
    return;
  }
  bool features = is_shard(c->in[0], 1) || is_shard(c->in[1], 1);
  c->in[0] = c->in[1] = c->out[0] = features ? shard(1) : whole;
}

/* dy (R, out), w (E, out, in), plan → (R, in) */
void tsr_place_expert_linear_dx(call *c) {
  split s;
  if (find_split(c, 2, &s)) {
    c->in[0] = c->out[0] = s.rows;
    c->in[1] = s.weights;
  } else if (is_shard(c->in[1], 1)) {
    c->in[0] = shard(1);
    c->out[0] = partial;
  } else {
    c->in[0] = whole;
    c->out[0] = is_shard(c->in[1], 2) ? shard(1) : whole;
    if (c->out[0].kind == TSR_REPLICATE) c->in[1] = whole;
  }
}

/* dy (R, out)[, rows (R, in)], plan, w → dw: summed over the rows of an expert */
void tsr_place_expert_linear_dw(call *c) {
  split s;
  int last = c->node->inputs_count - 1, plan = last - 1;
  tsr_placement w = c->in[last];
  if (find_split(c, plan, &s)) {
    for (int i = 0; i < plan; i++) c->in[i] = s.rows;
    c->out[0] = s.rows.kind == TSR_ROUTED ? shard(0) : partial;
    return;
  }
  bool inside = is_shard(w, 1) || is_shard(w, 2);
  c->in[0] = is_shard(w, 1) ? shard(1) : whole;
  if (plan == 2) c->in[1] = is_shard(w, 2) ? shard(1) : whole;
  c->out[0] = inside ? w : whole;
}

/* rows (R, C), weights (…, k), plan → (…, C) */
void tsr_place_combine_experts(call *c) {
  split s;
  find_split(c, 2, &s);
  c->in[0] = s.rows;
  c->in[1] = s.tokens;
  c->out[0] = s.rows.kind == TSR_ROUTED ? partial : s.tokens;
}

/* dy (…, C), rows (R, C), weights (…, k), plan → drows, and dweights, of which one member has each
 * and the others 0 */
void tsr_place_combine_experts_dx(call *c) {
  split s;
  find_split(c, 3, &s);
  c->in[0] = c->in[2] = s.tokens;
  c->in[1] = c->out[0] = s.rows;
  c->out[1] = s.rows.kind == TSR_ROUTED ? partial : s.tokens;
}

/* experts (B, …, k) → (B, E), or (2, E): whole numbers, whose sums are exact in any order */
void tsr_place_expert_counts(call *c) {
  if (c->in[0].kind == TSR_ROUTED) return (void)(c->out[0] = partial);
  bool by_sample = c->node->attr.expert_counts.by_sample && is_shard(c->in[0], 0);
  if (c->in[0].kind != TSR_SHARD) c->in[0] = whole;
  c->out[0] = by_sample ? shard(0) : c->in[0].kind == TSR_SHARD ? partial : whole;
}

/* counts (B, E) or (2, E), scores (…, E)[, step scalars] → (…, E) */
void tsr_place_balance_loss_dx(call *c) {
  bool by_sample = c->node->attr.balance_loss_dx.by_sample;
  int last = c->g->values[c->node->inputs[1]].ndim - 1;
  if (c->in[1].kind != TSR_SHARD || c->in[1].dim == last) c->in[1] = whole;
  c->in[0] = by_sample && is_shard(c->in[1], 0) ? shard(0) : whole;
  if (c->node->inputs_count > 2) c->in[2] = whole;
  c->out[0] = c->in[1];
}

/* logits (…, E)[, step scalars] → (…, E) */
void tsr_place_router_z_loss_dx(call *c) {
  int last = c->g->values[c->node->inputs[0]].ndim - 1;
  if (c->in[0].kind != TSR_SHARD || c->in[0].dim == last) c->in[0] = whole;
  if (c->node->inputs_count > 1) c->in[1] = whole;
  c->out[0] = c->in[0];
}
