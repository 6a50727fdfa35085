// SPDX-License-Identifier: Apache-2.0
/* Shapes of the ops of a mixture of experts. */
#include "graph/infer_rule.h"
#include "graph/routing.h"
#include <math.h>

/* scores (…, E) → (…, k) */
const char *tsr_infer_choose_experts(const inference *i) {
  const tsr_choose_experts_attrs *a = &i->node->attr.choose_experts;
  const tsr_value *scores = i->in[0];
  int64_t experts = last_dim(scores);
  i->out[0] = type_of(scores);
  i->out[0].dtype = TSR_I32;
  i->out[0].shape[scores->ndim - 1] = a->k;
  if (experts > TSR_EXPERTS_MAX)
    return wrong(
        i, "'%s' %s has %lld experts, and %d are possible", scores->name, shape_of(i, scores),
        (long long)experts, TSR_EXPERTS_MAX);
  if (a->k < 1 || a->k > experts)
    return wrong(
        i, "k %lld is not in 1 to %lld, the experts of '%s' %s", (long long)a->k,
        (long long)experts, scores->name, shape_of(i, scores));
  if (a->groups < 1 || experts % a->groups)
    return wrong(
        i, "groups %lld does not divide the %lld experts of '%s'", (long long)a->groups,
        (long long)experts, scores->name);
  int64_t each = experts / a->groups;
  if (a->kept_groups < 1 || a->kept_groups > a->groups || a->k > a->kept_groups * each)
    return wrong(
        i, "k %lld experts are not in kept_groups %lld of %lld groups of %lld", (long long)a->k,
        (long long)a->kept_groups, (long long)a->groups, (long long)each);
  if (a->groups > 1 && (a->group_top < 1 || a->group_top > each))
    return wrong(
        i, "group_top %lld is not in 1 to %lld, the experts of a group", (long long)a->group_top,
        (long long)each);
  if (!tsr_choice_has_bias(i->node)) return NULL;
  const tsr_value *bias = i->in[1];
  if (bias->ndim == 1 && bias->shape[0] == experts) return NULL;
  return wrong(
      i, "the bias '%s' is %s but '%s' has %lld experts", bias->name, shape_of(i, bias),
      scores->name, (long long)experts);
}

/* The scores, of as many experts as `experts`, of which choices were made. */
static const char *
check_chosen_of(const inference *i, const tsr_value *chosen, const tsr_value *x, int64_t experts) {
  const tsr_node *choice = chosen->node < 0 ? NULL : &i->graph->nodes[chosen->node];
  if (!choice || choice->op != TSR_OP_CHOOSE_EXPERTS) return NULL;
  int64_t of = last_dim(&i->graph->values[choice->inputs[0]]);
  if (of == experts) return NULL;
  return wrong(
      i, "'%s' chooses of %lld experts, but '%s' %s has %lld", chosen->name, (long long)of, x->name,
      shape_of(i, x), (long long)experts);
}

static const char *check_choices(const inference *i, const tsr_value *scores, const tsr_value *of) {
  bool fits = of->ndim == scores->ndim &&
              !memcmp(of->shape, scores->shape, sizeof *of->shape * (size_t)(of->ndim - 1));
  if (fits) return check_chosen_of(i, of, scores, last_dim(scores));
  return wrong(
      i, "choices '%s' %s do not fit '%s' %s", of->name, shape_of(i, of), scores->name,
      shape_of(i, scores));
}

/* scores (…, E), experts (…, k) → (…, k) */
const char *tsr_infer_expert_weights(const inference *i) {
  i->out[0] = type_of(i->in[1]);
  i->out[0].dtype = TSR_F32;
  return check_choices(i, i->in[0], i->in[1]);
}

/* dweights (…, k), scores (…, E), experts (…, k) → (…, E) */
const char *tsr_infer_expert_weights_dx(const inference *i) {
  i->out[0] = type_of(i->in[1]);
  return NULL;
}

static const char *check_expert_weight(const inference *i, const tsr_value *w) {
  if (w->ndim == 3) return NULL;
  return wrong(
      i, "the weight '%s' must have 3 dimensions (experts, out, in), not %s", w->name,
      shape_of(i, w));
}

/* The rows of an expert that a batch unit may have. */
static const char *set_capacity(const inference *i, tsr_routed *r) {
  double capacity = i->node->attr.expert_plan.capacity;
  int64_t units = i->graph->drop_units;
  if (capacity == 0 || units == 0) return NULL;
  if (r->tokens % units)
    return wrong(
        i, "%lld batch units do not divide the %lld tokens of '%s', of which each has a capacity",
        (long long)units, (long long)r->tokens, i->in[0]->name);
  r->unit_tokens = r->tokens / units;
  double slots = ceil(capacity * (double)(r->unit_tokens * r->choices) / (double)r->experts);
  r->slots = slots < (double)r->unit_tokens ? (int64_t)slots : r->unit_tokens;
  return NULL;
}

/* experts (…, k)[, priority (…, k)], w (E, out, in) → (rows, 2) */
const char *tsr_infer_expert_plan(const inference *i) {
  const tsr_value *chosen = i->in[0], *w = i->in[i->node->inputs_count - 1];
  int64_t k = last_dim(chosen), tokens = tsr_value_elements(chosen) / k;
  const char *bad = check_expert_weight(i, w);
  if (bad) return bad;
  if (i->node->inputs_count == 3 && !same_shape(chosen, i->in[1]))
    return wrong(
        i, "'%s' %s has no number for each choice of '%s' %s", i->in[1]->name,
        shape_of(i, i->in[1]), chosen->name, shape_of(i, chosen));
  const tsr_node *choice = chosen->node < 0 ? NULL : &i->graph->nodes[chosen->node];
  if (choice && choice->op == TSR_OP_CHOOSE_EXPERTS) {
    const tsr_value *scores = &i->graph->values[choice->inputs[0]];
    if (last_dim(scores) != w->shape[0])
      return wrong(
          i, "'%s' chooses of %lld experts, but '%s' %s has %lld", chosen->name,
          (long long)last_dim(scores), w->name, shape_of(i, w), (long long)w->shape[0]);
  }
  tsr_routed r = {.experts = w->shape[0], .choices = k, .tokens = tokens};
  bad = set_capacity(i, &r);
  i->out[0] = (tsr_type){TSR_I32, 2, {tsr_routed_rows(r, tokens, r.experts), 2}, r};
  return bad;
}

static const char *check_plan(const inference *i, const tsr_value *plan, int64_t tokens) {
  if (!tsr_routed_is_rows(plan->routed) || plan->dtype != TSR_I32)
    return wrong(i, "'%s' is no plan of experts' rows", plan->name);
  if (plan->routed.tokens == tokens) return NULL;
  return wrong(
      i, "'%s' has rows of %lld tokens, not of %lld", plan->name, (long long)plan->routed.tokens,
      (long long)tokens);
}

static tsr_type rows_of(const tsr_value *plan, int64_t columns, tsr_dtype dtype) {
  return (tsr_type){dtype, 2, {plan->shape[0], columns}, plan->routed};
}

/* x (…, C), plan → (rows, C) */
const char *tsr_infer_permute_experts(const inference *i) {
  const tsr_value *x = i->in[0], *plan = i->in[1];
  i->out[0] = rows_of(plan, last_dim(x), x->dtype);
  return check_plan(i, plan, tsr_value_elements(x) / last_dim(x));
}

/* rows (R, in), w (E, out, in), plan → (R, out) */
const char *tsr_infer_expert_linear(const inference *i) {
  const tsr_value *x = i->in[0], *w = i->in[1], *plan = i->in[2];
  const char *bad = check_expert_weight(i, w);
  if (bad) return bad;
  i->out[0] = rows_of(plan, w->shape[1], TSR_F32);
  if (!tsr_routed_is_rows(x->routed)) return wrong(i, "'%s' has no rows of experts", x->name);
  if (w->shape[0] != plan->routed.experts)
    return wrong(
        i, "'%s' %s has %lld experts, the plan '%s' %lld", w->name, shape_of(i, w),
        (long long)w->shape[0], plan->name, (long long)plan->routed.experts);
  if (last_dim(x) != w->shape[2])
    return wrong(
        i, "'%s' has %lld features but the weight '%s' %s takes %lld", x->name,
        (long long)last_dim(x), w->name, shape_of(i, w), (long long)w->shape[2]);
  return check_plan(i, plan, x->routed.tokens);
}

/* rows (R, out), b (E, out), plan → (R, out) */
const char *tsr_infer_expert_add(const inference *i) {
  const tsr_value *x = i->in[0], *b = i->in[1], *plan = i->in[2];
  i->out[0] = rows_of(plan, last_dim(x), x->dtype);
  if (!tsr_routed_is_rows(x->routed)) return wrong(i, "'%s' has no rows of experts", x->name);
  if (b->ndim != 2 || b->shape[0] != plan->routed.experts || b->shape[1] != last_dim(x))
    return wrong(
        i, "the bias '%s' must be (experts, out), (%lld, %lld), not %s", b->name,
        (long long)plan->routed.experts, (long long)last_dim(x), shape_of(i, b));
  return check_plan(i, plan, x->routed.tokens);
}

/* dy (R, out), w (E, out, in), plan → (R, in) */
const char *tsr_infer_expert_linear_dx(const inference *i) {
  i->out[0] = rows_of(i->in[2], i->in[1]->shape[2], TSR_F32);
  return NULL;
}

/* rows (R, C), weights (…, k), plan → (…, C) */
const char *tsr_infer_combine_experts(const inference *i) {
  const tsr_value *rows = i->in[0], *weights = i->in[1], *plan = i->in[2];
  i->out[0] = type_of(weights);
  i->out[0].shape[weights->ndim - 1] = last_dim(rows);
  if (!tsr_routed_is_rows(rows->routed)) return wrong(i, "'%s' has no rows of experts", rows->name);
  if (plan->dtype == TSR_I32 && last_dim(weights) != plan->routed.choices)
    return wrong(
        i, "'%s' %s has weights of %lld choices, the plan '%s' %lld", weights->name,
        shape_of(i, weights), (long long)last_dim(weights), plan->name,
        (long long)plan->routed.choices);
  return check_plan(i, plan, tsr_value_elements(weights) / last_dim(weights));
}

/* dy (…, C), rows (R, C), weights (…, k), plan → (R, C), (…, k) */
const char *tsr_infer_combine_experts_dx(const inference *i) {
  i->out[0] = type_of(i->in[1]);
  i->out[1] = type_of(i->in[2]);
  return NULL;
}

/* scores (…, E), experts (…, k)[, load (E)] → scores */
const char *tsr_infer_balance_loss(const inference *i) {
  const tsr_value *scores = i->in[0];
  tsr_balance_tokens per = i->node->attr.balance_loss.per;
  i->out[0] = type_of(scores);
  if (per == TSR_BALANCE_SEQUENCE && scores->ndim != 3)
    return wrong(
        i, "'%s' must be (batch, sequence, experts), not %s", scores->name, shape_of(i, scores));
  if ((per == TSR_BALANCE_STEP) != (i->node->inputs_count == 3))
    return wrong(
        i, per == TSR_BALANCE_STEP ? "per step it takes the counts of the step before, too"
                                   : "only per step it takes the counts of the step before");
  const tsr_value *load = i->in[2];
  if (load && (load->ndim != 1 || load->shape[0] != last_dim(scores)))
    return wrong(
        i, "the counts '%s' are %s but '%s' has %lld experts", load->name, shape_of(i, load),
        scores->name, (long long)last_dim(scores));
  return check_choices(i, scores, i->in[1]);
}

/* experts (B, …, k) → (B, E) or (2, E) */
const char *tsr_infer_expert_counts(const inference *i) {
  const tsr_expert_counts_attrs *a = &i->node->attr.expert_counts;
  i->out[0] = (tsr_type){TSR_F32, 2, {a->by_sample ? i->in[0]->shape[0] : 2, a->experts}};
  return NULL;
}

/* counts, scores (…, E) → (…, E) */
const char *tsr_infer_balance_loss_dx(const inference *i) {
  i->out[0] = type_of(i->in[1]);
  return NULL;
}
