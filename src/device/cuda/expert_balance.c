// SPDX-License-Identifier: Apache-2.0
/* What balances the experts of a mixture: counts of choices, gradients of losses, and the updates
 * of what is kept from step to step. */
#include "device/cuda/ops.h"
#include "kernels/cuda/experts.h"

/* Of choices (…, k), of each sample or of all; or of a plan (rows, 2). */
static void counts_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0), *y = cuda_y(c, 0);
  bool by_sample = cuda_attrs(c)->expert_counts.by_sample;
  bool plan = tsr_routed_is_rows(tsr_operand_value(&c->call, x)->routed);
  tsr_cuda_expert_counting of = {.runs = by_sample ? y->shape[0] : 1, .E = tsr_tensor_last(y)};
  of.each = (plan ? tsr_tensor_rows(x) : tsr_tensor_elements(x)) / of.runs;
  of.step = plan ? 2 : 1;
  of.digit = by_sample ? 0 : TSR_COUNT_DIGIT;
  const int32_t *experts = (const int32_t *)cuda_in(c, 0) + plan;
  tsr_cuda_expert_counts(c->state->stream, cuda_out(c, 0), experts, &of);
}
const cuda_op cuda_expert_counts = counts_run;

/* The scale of an fp16 loss, where the task has the step's scalars; else NULL. */
static const float *loss_scale(const cuda_call *c, int input) {
  if (c->call.task->inputs_count <= input) return NULL;
  return cuda_scalar(c, input, TSR_SCALAR_LOSS_SCALE);
}

static void balance_dx_run(const cuda_call *c) {
  const tsr_balance_loss_dx_attrs *a = &cuda_attrs(c)->balance_loss_dx;
  const tsr_tensor *counts = cuda_x(c, 0), *scores = cuda_x(c, 1);
  int64_t tokens = tsr_tensor_rows(scores);
  tsr_cuda_balance b = {.factor = (float)a->factor, .normalizes = a->normalize};
  b.each = a->by_sample ? tokens / counts->shape[0] : tokens;
  b.digit = !a->by_sample && counts->ndim == 2 ? TSR_COUNT_DIGIT : 0;
  b.more = loss_scale(c, 2);
  tsr_cuda_balance_backward(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), tokens,
      tsr_tensor_last(scores), &b);
}
const cuda_op cuda_balance_loss_dx = balance_dx_run;

static void router_z_dx_run(const cuda_call *c) {
  const tsr_tensor *logits = cuda_x(c, 0);
  tsr_cuda_router_z_backward(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), tsr_tensor_rows(logits),
      tsr_tensor_last(logits), (float)cuda_attrs(c)->router_z_loss_dx.factor, loss_scale(c, 1));
}
const cuda_op cuda_router_z_loss_dx = router_z_dx_run;

/* ---- updates; the third input says whether fp16 makes them in this step ---- */

static const float *clip_of(const cuda_call *c) {
  return c->call.task->inputs_count > 2 ? cuda_in(c, 2) : NULL;
}

static void bias_run(const cuda_call *c) {
  const tsr_expert_bias_attrs *a = &cuda_attrs(c)->expert_bias;
  tsr_cuda_expert_bias(
      c->state->stream, cuda_in(c, 0), cuda_in(c, 1), tsr_tensor_last(cuda_x(c, 0)),
      TSR_COUNT_DIGIT, a->rate, a->centre, clip_of(c));
}
const cuda_op cuda_expert_bias = bias_run;

static void load_run(const cuda_call *c) {
  tsr_cuda_expert_load(
      c->state->stream, cuda_in(c, 0), cuda_in(c, 1), tsr_tensor_last(cuda_x(c, 0)),
      TSR_COUNT_DIGIT, clip_of(c));
}
const cuda_op cuda_expert_load = load_run;
