// SPDX-License-Identifier: Apache-2.0
/* Losses: a loss per row, then one number, added over batch units by the tree. */
#include "device/cuda/ops.h"

static void ce_stats_run(const cuda_call *c) {
  const tsr_tensor *logits = cuda_x(c, 0);
  tsr_cuda_softmax_stats(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), tsr_tensor_rows(logits),
      tsr_tensor_last(logits), tsr_operand_offset(&c->call, logits, logits->ndim - 1),
      cuda_attrs(c)->ce_stats.valid, c->call.task->sum.kept);
}
const cuda_op cuda_ce_stats = ce_stats_run;

/* What each unit's sum is multiplied by: a number on the device, or `number`. */
typedef struct {
  cuda_loss_scratch scratch;
  const float *factor;
  float number;
} loss_sum;

static void loss_leaf(const cuda_call *c, void *context, int64_t block, int64_t leaf, void *into) {
  const loss_sum *of = context;
  const cuda_loss_scratch *s = &of->scratch;
  tsr_reduced_rows run;
  for (int64_t k = 0; tsr_reduction_rows(&c->call.task->sum, block, leaf, k, &run); k++) {
    tsr_cuda_sum(
        c->state->stream, k ? s->part : into, s->row_loss + run.first, s->kernel, run.rows);
    if (k) tsr_cuda_add(c->state->stream, TSR_CUDA_F32, into, into, s->part, 1);
  }
  if (of->factor) tsr_cuda_mul(c->state->stream, TSR_CUDA_F32, into, into, of->factor, 1);
  else tsr_cuda_scale(c->state->stream, TSR_CUDA_F32, into, into, of->number, 1);
}

static void add_rows(const cuda_call *c, loss_sum *s) {
  for (int64_t block = 0; block < tsr_reduction_blocks(&c->call.task->sum); block++)
    cuda_add_leaves(
        c, block, (float *)cuda_out(c, 0) + block, s->scratch.stack, 1, 1, loss_leaf, s);
}

/* inputs: logits, stats (…, units, 3), targets, step_scalars */
void cuda_run_ce_row_losses(const cuda_call *c, float *row_loss) {
  const tsr_tensor *stats = cuda_x(c, 1);
  tsr_cuda_softmax_loss(
      c->state->stream, row_loss, cuda_out(c, 1), cuda_in(c, 1), cuda_in(c, 2),
      tsr_task_loss_rows(c->call.task), stats->shape[stats->ndim - 2]);
}

void cuda_run_ce_loss_sum(const cuda_call *c) {
  loss_sum s = {cuda_loss_scratch_at(c->call.task, cuda_scratch(c))};
  s.factor = cuda_scalar(c, 3, TSR_SCALAR_INV_COUNT);
  add_rows(c, &s);
}

static void ce_loss_run(const cuda_call *c) {
  cuda_run_ce_row_losses(c, cuda_loss_scratch_at(c->call.task, cuda_scratch(c)).row_loss);
  cuda_run_ce_loss_sum(c);
}
const cuda_op cuda_ce_loss = ce_loss_run;

static void ce_loss_dx_run(const cuda_call *c) {
  const tsr_tensor *logits = cuda_x(c, 0);
  tsr_cuda_softmax_loss_backward(
      c->state->stream, cuda_type(cuda_y(c, 0)), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      cuda_in(c, 2), cuda_scalar(c, 3, TSR_SCALAR_INV_COUNT),
      cuda_attrs(c)->ce_loss_dx.scaled ? cuda_scalar(c, 3, TSR_SCALAR_LOSS_SCALE) : NULL,
      tsr_tensor_rows(logits), tsr_tensor_last(logits),
      tsr_operand_offset(&c->call, logits, logits->ndim - 1), cuda_attrs(c)->ce_loss_dx.valid);
}
const cuda_op cuda_ce_loss_dx = ce_loss_dx_run;

/* A node's task in a logits_gradient, whose operand `gradient` lies in the fused task's scratch;
 * the rest of the scratch is the node's. */
static void run_covered(
    const cuda_call *c, cuda_op op, const tsr_task *of, bool writes, const tsr_tensor *gradient) {
  cuda_gradient_task covered;
  cuda_gradient_task_of(of, writes, gradient, &covered);
  cuda_call call = *c;
  call.call.task = &covered.task;
  op(&call);
}

/* The gradient of the logits in the type of the GEMMs, which read it one after the other. */
static void logits_gradient_run(const cuda_call *c) {
  tsr_linear_cross_entropy of = tsr_linear_cross_entropy_of(c->call.task);
  tsr_tensor gradient = cuda_logits_gradient_at(c->call.task);
  run_covered(c, ce_loss_dx_run, of.loss_dx, true, &gradient);
  if (of.dw) run_covered(c, cuda_linear_dw, of.dw, false, &gradient);
  if (of.dx) run_covered(c, cuda_linear_dx, of.dx, false, &gradient);
}
const cuda_op cuda_logits_gradient = logits_gradient_run;

static void squared_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0);
  loss_sum s = {cuda_loss_scratch_at(c->call.task, cuda_scratch(c))};
  s.number = (float)tsr_task_squared_factor(&c->call);
  tsr_cuda_squared_error(
      c->state->stream, s.scratch.row_loss, cuda_in(c, 0), cuda_in(c, 1), s.scratch.rows,
      tsr_tensor_last(x));
  add_rows(c, &s);
}
const cuda_op cuda_squared = squared_run;

/* inputs: x, y[, step_scalars]: then with the loss scale */
static void squared_dx_run(const cuda_call *c) {
  tsr_cuda_squared_error_backward(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      (float)tsr_task_squared_factor(&c->call),
      c->call.task->inputs_count == 3 ? cuda_scalar(c, 2, TSR_SCALAR_LOSS_SCALE) : NULL,
      tsr_tensor_elements(cuda_y(c, 0)));
}
const cuda_op cuda_squared_dx = squared_dx_run;
