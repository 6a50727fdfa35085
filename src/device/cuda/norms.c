// SPDX-License-Identifier: Apache-2.0
/* Norms of rows, alone or with the sum that they normalize, and their input gradients, alone or
 * with the gradient of the residual branch (schedule/fuse.h). */
#include "device/cuda/ops.h"

/* The summands' addresses, in *ret; NULL: the rows are given. */
static const tsr_cuda_summands *
summands_of(const cuda_call *c, const tsr_sum_norm *s, tsr_cuda_summands *ret) {
  if (!s->from) return NULL;
  *ret = (tsr_cuda_summands){cuda_at(c, s->from), cuda_at(c, s->row), cuda_at(c, s->plus)};
  return ret;
}

static float eps_of(const cuda_call *c) { return (float)cuda_attrs(c)->norm.eps; }

static void layernorm_run(const cuda_call *c) {
  const tsr_task *t = c->call.task;
  tsr_sum_norm s = tsr_sum_norm_of(c->call.program, t);
  bool biased = s.norm_inputs + 1 < tsr_kernel_inputs(t) + t->inputs_count;
  tsr_cuda_summands sum;
  tsr_cuda_layernorm(
      c->state->stream, cuda_type(s.x), cuda_at(c, s.norm_outputs), cuda_at(c, s.norm_outputs + 1),
      cuda_at(c, s.norm_outputs + 2), cuda_at(c, s.x), summands_of(c, &s, &sum),
      cuda_at(c, s.norm_inputs), biased ? cuda_at(c, s.norm_inputs + 1) : NULL,
      tsr_tensor_rows(s.x), tsr_tensor_last(s.x), eps_of(c));
}
const cuda_op cuda_layernorm = layernorm_run;

static void rmsnorm_run(const cuda_call *c) {
  tsr_sum_norm s = tsr_sum_norm_of(c->call.program, c->call.task);
  tsr_cuda_summands sum;
  tsr_cuda_rmsnorm(
      c->state->stream, cuda_type(s.x), cuda_at(c, s.norm_outputs), cuda_at(c, s.norm_outputs + 1),
      cuda_at(c, s.x), summands_of(c, &s, &sum), cuda_at(c, s.norm_inputs),
      cuda_attrs(c)->rmsnorm.zero_centered, tsr_tensor_rows(s.x), tsr_tensor_last(s.x), eps_of(c));
}
const cuda_op cuda_rmsnorm = rmsnorm_run;

static void layernorm_dx_run(const cuda_call *c) {
  const tsr_tensor *dx = cuda_y(c, 0);
  tsr_cuda_layernorm_backward(
      c->state->stream, cuda_type(dx), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      cuda_in(c, 3), cuda_in(c, 4), cuda_at(c, tsr_gradient_addend(c->call.task)),
      tsr_tensor_rows(dx), tsr_tensor_last(dx));
}
const cuda_op cuda_layernorm_dx = layernorm_dx_run;

static void rmsnorm_dx_run(const cuda_call *c) {
  const tsr_tensor *dx = cuda_y(c, 0);
  tsr_cuda_rmsnorm_backward(
      c->state->stream, cuda_type(dx), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      cuda_attrs(c)->rmsnorm_dx.zero_centered, cuda_in(c, 3),
      cuda_at(c, tsr_gradient_addend(c->call.task)), tsr_tensor_rows(dx), tsr_tensor_last(dx));
}
const cuda_op cuda_rmsnorm_dx = rmsnorm_dx_run;
