// SPDX-License-Identifier: Apache-2.0
/* Mixture of experts: routing, plans, and the rows of a rank's experts. */
#include "device/cuda/ops.h"
#include "device/device.h"
#include "graph/routing.h"
#include "kernels/cuda/experts.h"
#include <assert.h>

static int64_t tokens_of(const cuda_call *c, int i) { return tsr_tensor_rows(cuda_x(c, i)); }

/* Choices that are replayed are written over those that are made, whose scores are looked at. */
static void choose_run(const cuda_call *c) {
  const tsr_choose_experts_attrs *a = &cuda_attrs(c)->choose_experts;
  const tsr_node *n = &c->call.program->graph->nodes[c->call.task->node];
  const tsr_choice choice = {
      .E = tsr_tensor_last(cuda_x(c, 0)),
      .k = a->k,
      .groups = a->groups,
      .kept_groups = a->kept_groups,
      .group_top = a->group_top};
  int64_t tokens = tokens_of(c, 0), slots = tokens * a->k, step = 1;
  int recorded = tsr_choice_recorded(n);
  tsr_cuda_choose_experts(
      c->state->stream, &choice, cuda_out(c, 0), cuda_in(c, 0),
      tsr_choice_has_bias(n) ? cuda_in(c, 1) : NULL, tokens,
      tsr_nan_place(c->call.task->node, c->call.at.microbatch, c->call.rank->rank),
      c->state->nan_place, cuda_scratch(c));
  if (recorded >= 0)
    tsr_cuda_gather(
        c->state->stream, cuda_out(c, 0), cuda_in(c, recorded), sizeof(int32_t), 1, &slots, &step,
        0);
}
const cuda_op cuda_choose_experts = choose_run;

static tsr_choice_weights weights_of(const cuda_call *c, int scores, int experts) {
  const tsr_expert_weights_attrs *a = &cuda_attrs(c)->expert_weights;
  return (tsr_choice_weights){
      .E = tsr_tensor_last(cuda_x(c, scores)),
      .k = tsr_tensor_last(cuda_x(c, experts)),
      .softmax = a->softmax,
      .normalizes = a->normalize,
      .scale = (float)a->scale};
}

static void weights_run(const cuda_call *c) {
  tsr_choice_weights w = weights_of(c, 0, 1);
  tsr_cuda_expert_weights(
      c->state->stream, &w, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), tokens_of(c, 0));
}
const cuda_op cuda_expert_weights = weights_run;

static void weights_dx_run(const cuda_call *c) {
  tsr_choice_weights w = weights_of(c, 1, 2);
  tsr_cuda_expert_weights_backward(
      c->state->stream, &w, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      tokens_of(c, 1));
}
const cuda_op cuda_expert_weights_dx = weights_dx_run;

static tsr_experts experts_of(const cuda_call *c) {
  const tsr_expert_rows *r = c->call.task->experts;
  return (tsr_experts){r->experts, r->choices, tsr_task_first_expert(&c->call), r->here};
}

static void plan_run(const cuda_call *c) {
  const tsr_expert_rows *r = c->call.task->experts;
  tsr_experts e = experts_of(c);
  const tsr_capacity capacity = {r->slots, r->unit_tokens};
  tsr_cuda_expert_plan(
      c->state->stream, &e, &capacity, cuda_out(c, 0), cuda_in(c, 0),
      c->call.task->inputs_count > 2 ? cuda_in(c, 1) : NULL, r->tokens, cuda_y(c, 0)->shape[0],
      cuda_scratch(c));
}
const cuda_op cuda_expert_plan = plan_run;

/* ---- rows ---- */

static int64_t choices_of(const cuda_call *c) { return c->call.task->experts->choices; }

static void permute_run(const cuda_call *c) {
  const tsr_tensor *rows = cuda_y(c, 0);
  tsr_cuda_permute_rows(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), rows->shape[0], choices_of(c),
      tsr_tensor_last(rows) * tsr_dtype_bytes(rows->dtype));
}
const cuda_op cuda_permute_experts = permute_run;

static void add_run(const cuda_call *c) {
  const tsr_tensor *y = cuda_y(c, 0);
  tsr_cuda_expert_add(
      c->state->stream, cuda_type(y), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      tsr_task_first_expert(&c->call), y->shape[0], tsr_tensor_last(y));
}
const cuda_op cuda_expert_add = add_run;

/* The sum of each token's rows; where each slot's row is lies in the scratch. */
static void combine(const cuda_call *c, const float *weights, int plan) {
  tsr_experts e = experts_of(c);
  const tsr_tensor *rows = cuda_x(c, 0);
  int64_t tokens = c->call.task->experts->tokens;
  int32_t *row_of = cuda_scratch(c);
  tsr_cuda_expert_row_of(c->state->stream, row_of, cuda_in(c, plan), tokens * e.k, rows->shape[0]);
  tsr_cuda_combine_rows(
      c->state->stream, &e, cuda_type(cuda_y(c, 0)), cuda_out(c, 0), cuda_type(rows), cuda_in(c, 0),
      weights, cuda_in(c, plan), row_of, tokens, tsr_tensor_last(rows));
}

static void combine_run(const cuda_call *c) { combine(c, cuda_in(c, 1), 2); }
const cuda_op cuda_combine_experts = combine_run;

static void permute_dx_run(const cuda_call *c) { combine(c, NULL, 1); }
const cuda_op cuda_permute_experts_dx = permute_dx_run;

static void combine_dx_run(const cuda_call *c) {
  const tsr_tensor *rows = cuda_y(c, 0);
  assert(cuda_type(rows) == cuda_type(cuda_x(c, 1)));
  tsr_cuda_combine_rows_backward(
      c->state->stream, cuda_type(rows), cuda_out(c, 0), cuda_out(c, 1), cuda_type(cuda_x(c, 0)),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_in(c, 3), c->call.task->experts->tokens,
      choices_of(c), rows->shape[0], tsr_tensor_last(rows));
}
const cuda_op cuda_combine_experts_dx = combine_dx_run;
