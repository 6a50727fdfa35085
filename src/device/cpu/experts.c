// SPDX-License-Identifier: Apache-2.0
/* Mixture of experts: routing, and the rows of a rank's experts. */
#include "device/cpu/ops.h"
#include "graph/routing.h"
#include <stdatomic.h>
#include <string.h>

/* ---- routing ---- */

static tsr_choice choice_of(const cpu_call *c) {
  const tsr_choose_experts_attrs *a = &cpu_attrs(c)->choose_experts;
  return (tsr_choice){
      .E = tsr_tensor_last(&c->call.task->inputs[0]),
      .k = a->k,
      .groups = a->groups,
      .kept_groups = a->kept_groups,
      .group_top = a->group_top};
}

static void note_nan(const cpu_call *c) {
  uint64_t here = tsr_nan_place(c->call.task->node, c->call.at.microbatch, c->call.rank->rank);
  uint64_t least = c->nan_scores ? *c->nan_scores : 0;
  while (here < least && !atomic_compare_exchange_weak(c->nan_scores, &least, here)) continue;
}

static void choose_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_choice choice = choice_of(c);
  const tsr_node *n = &c->call.program->graph->nodes[c->call.task->node];
  const float *bias = tsr_choice_has_bias(n) ? cpu_in(c, 1) : NULL;
  int32_t *experts = (int32_t *)(void *)cpu_out(c, 0);
  int recorded = tsr_choice_recorded(n);
  if (c->k->choose_experts(&choice, experts, cpu_in(c, 0), bias, begin, end)) note_nan(c);
  if (recorded >= 0)
    memcpy(
        experts + begin * choice.k, cpu_tokens(c, recorded) + begin * choice.k,
        sizeof *experts * (size_t)((end - begin) * choice.k));
}
const cpu_op cpu_choose_experts = {.items = cpu_items_rows, .run = choose_run};

static tsr_choice_weights weights_of(const cpu_call *c, int scores, int experts) {
  const tsr_expert_weights_attrs *a = &cpu_attrs(c)->expert_weights;
  return (tsr_choice_weights){
      .E = tsr_tensor_last(&c->call.task->inputs[scores]),
      .k = tsr_tensor_last(&c->call.task->inputs[experts]),
      .softmax = a->softmax,
      .normalizes = a->normalize,
      .scale = (float)a->scale};
}

static void weights_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_choice_weights w = weights_of(c, 0, 1);
  c->k->expert_weights(&w, cpu_out(c, 0), cpu_in(c, 0), cpu_tokens(c, 1), begin, end);
}
const cpu_op cpu_expert_weights = {.items = cpu_items_rows, .run = weights_run};

static void weights_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_choice_weights w = weights_of(c, 1, 2);
  c->k->expert_weights_backward(
      &w, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_tokens(c, 2), begin, end);
}
const cpu_op cpu_expert_weights_dx = {.items = cpu_items_rows, .run = weights_dx_run};

/* ---- plans ---- */

static tsr_experts experts_of(const cpu_call *c) {
  const tsr_expert_rows *r = c->call.task->experts;
  return (tsr_experts){r->experts, r->choices, tsr_task_first_expert(&c->call), r->here};
}

static int64_t one_item(const tsr_task *t) { return (void)t, 1; }

static int64_t
plan_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p, (void)threads;
  tsr_capacity capacity = {t->experts->slots, t->experts->unit_tokens};
  return k->expert_plan_scratch(
      t->experts->here, t->experts->tokens * t->experts->choices, t->experts->choices, &capacity);
}

static void plan_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end, (void)thread;
  tsr_experts e = experts_of(c);
  int64_t R = c->call.task->outputs[0].shape[0];
  int32_t *plan = (int32_t *)(void *)cpu_out(c, 0);
  const tsr_expert_rows *r = c->call.task->experts;
  tsr_capacity capacity = {r->slots, r->unit_tokens};
  const float *priority = c->call.task->inputs_count > 2 ? cpu_in(c, 1) : NULL;
  c->k->expert_plan(&e, &capacity, plan, cpu_tokens(c, 0), priority, r->tokens, R, cpu_scratch(c));
}
const cpu_op cpu_expert_plan = {.items = one_item, .scratch = plan_scratch, .run = plan_run};

static void permute_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->permute_rows(
      cpu_out(c, 0), cpu_in(c, 0), cpu_tokens(c, 1), c->call.task->experts->choices,
      tsr_tensor_last(&c->call.task->outputs[0]), begin, end);
}
const cpu_op cpu_permute_experts = {.items = cpu_items_rows, .run = permute_run};

/* Rows behind the last are 0. */
static void add_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const int32_t *plan = cpu_tokens(c, 2);
  int64_t N = tsr_tensor_last(&c->call.task->outputs[0]), first = tsr_task_first_expert(&c->call);
  for (int64_t r = begin; r < end; r++) {
    float *y = cpu_out(c, 0) + r * N;
    int64_t expert = plan[2 * r + 1];
    if (expert < 0) c->k->fill(y, 0, 0, N);
    else c->k->add(y, cpu_in(c, 0) + r * N, cpu_in(c, 1) + (expert - first) * N, 0, N);
  }
}
const cpu_op cpu_expert_add = {.items = cpu_items_rows, .run = add_run};

/* ---- sums over a token's experts ---- */

/* Where the row of each slot is, and its expert, from the plan: made once before the ranges. */
static int64_t slots_of(const tsr_task *t) { return t->experts->tokens * t->experts->choices; }
static int64_t
slots_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return 2 * slots_of(t) * (int64_t)sizeof(int32_t);
}
static int32_t *row_of(const cpu_call *c) { return cpu_scratch(c); }
static int32_t *expert_of(const cpu_call *c) { return row_of(c) + slots_of(c->call.task); }

static void find_slots(const cpu_call *c, int plan) {
  int64_t R = c->call.task->inputs[plan].shape[0];
  const int32_t *rows = cpu_tokens(c, plan);
  int32_t *experts = expert_of(c);
  c->k->expert_row_of(row_of(c), rows, slots_of(c->call.task), R);
  for (int64_t r = 0; r < R && rows[2 * r] >= 0; r++) experts[rows[2 * r]] = rows[2 * r + 1];
}

static int64_t tokens_of(const tsr_task *t) { return t->experts->tokens; }

static tsr_leaf_type leaf_of(const tsr_tensor *rows) {
  if (rows->dtype == TSR_BF16) return TSR_LEAF_BF16;
  return rows->dtype == TSR_F16 ? TSR_LEAF_F16 : TSR_LEAF_F32;
}

static void combine(const cpu_call *c, const float *weights, int64_t begin, int64_t end) {
  tsr_experts e = experts_of(c);
  c->k->combine_rows(
      &e, leaf_of(&c->call.task->inputs[0]), cpu_out(c, 0), cpu_in(c, 0), weights, expert_of(c),
      row_of(c), tsr_tensor_last(&c->call.task->inputs[0]), begin, end);
}

static void combine_before(const cpu_call *c, int part, int parts) {
  (void)parts;
  if (!part) find_slots(c, 2);
}
static void combine_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  combine(c, cpu_in(c, 1), begin, end);
}
const cpu_op cpu_combine_experts = {
    .items = tokens_of, .scratch = slots_scratch, .before = combine_before, .run = combine_run};

static void permute_dx_before(const cpu_call *c, int part, int parts) {
  (void)parts;
  if (!part) find_slots(c, 1);
}
static void permute_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  combine(c, NULL, begin, end);
}
const cpu_op cpu_permute_experts_dx = {
    .items = tokens_of,
    .scratch = slots_scratch,
    .before = permute_dx_before,
    .run = permute_dx_run};

/* Rows behind the last stay 0. */
static void combine_dx_before(const cpu_call *c, int part, int parts) {
  (void)parts;
  if (part) return;
  const tsr_tensor *rows = &c->call.task->outputs[0];
  const int32_t *plan = cpu_tokens(c, 3);
  int64_t R = rows->shape[0], C = tsr_tensor_last(rows), used = R;
  while (used > 0 && plan[2 * (used - 1)] < 0) used--;
  find_slots(c, 3);
  c->k->fill(cpu_out(c, 0), 0, used * C, R * C);
}
static void combine_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_experts e = experts_of(c);
  c->k->combine_rows_backward(
      &e, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), row_of(c),
      tsr_tensor_last(&c->call.task->outputs[0]), begin, end);
}
const cpu_op cpu_combine_experts_dx = {
    .items = tokens_of,
    .scratch = slots_scratch,
    .before = combine_dx_before,
    .run = combine_dx_run};
