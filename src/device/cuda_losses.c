// SPDX-License-Identifier: Apache-2.0
/* Losses: a loss per row, then one number, added over batch units by the tree. */
#include "device/cuda_ops.h"

static void ce_stats_run(const cuda_call *c) {
  const tsr_tensor *logits = cuda_x(c, 0);
  tsr_cuda_softmax_stats(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cpu_rows(logits),
      cpu_last(logits), cpu_offset(&c->base, logits, logits->ndim - 1),
      cuda_attrs(c)->ce_stats.valid, c->base.task->sum.kept);
}
const cuda_op cuda_ce_stats = {ce_stats_run, NULL};

/* Scratch: the rows' losses, a unit's runs' sums, the stack, and the sums' own. */
typedef struct {
  int64_t rows;
  float *row_loss, *part, *stack;
  void *sums;
  const float *factor; /* what each unit's sum is multiplied by: on the device, or NULL: `number` */
  float number;
} loss_scratch;

static int64_t scratch_for(const tsr_task *t, loss_scratch *s, char *at) {
  s->rows = cpu_rows_of_loss(t);
  int64_t rows = cuda_aligned(s->rows * 4), part = cuda_aligned(4),
          stack = cuda_aligned(cpu_stack_bytes(t, 1));
  if (at) {
    s->row_loss = (float *)(void *)at;
    s->part = (float *)(void *)(at + rows);
    s->stack = (float *)(void *)(at + rows + part);
    s->sums = at + rows + part + stack;
  }
  return rows + part + stack + tsr_cuda_sum_scratch(1, s->rows);
}

static int64_t row_loss_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  loss_scratch s = {0};
  return scratch_for(t, &s, NULL);
}

static void loss_leaf(const cuda_call *c, void *context, int64_t block, int64_t leaf, float *into) {
  const loss_scratch *s = context;
  tsr_reduced_rows run;
  for (int64_t k = 0; tsr_reduction_rows(&c->base.task->sum, block, leaf, k, &run); k++) {
    tsr_cuda_sum(
        c->state->stream, k ? s->part : into, s->row_loss + run.first, s->sums, 1, run.rows,
        run.rows);
    if (k) tsr_cuda_add(c->state->stream, TSR_CUDA_F32, into, into, s->part, 1);
  }
  if (s->factor) tsr_cuda_mul(c->state->stream, TSR_CUDA_F32, into, into, s->factor, 1);
  else tsr_cuda_scale(c->state->stream, TSR_CUDA_F32, into, into, s->number, 1);
}

static void add_rows(const cuda_call *c, loss_scratch *s) {
  for (int64_t block = 0; block < tsr_reduction_blocks(&c->base.task->sum); block++)
    cuda_add_leaves(c, block, (float *)cuda_out(c, 0) + block, s->stack, 1, 1, loss_leaf, s);
}

/* inputs: logits, stats (…, units, 3), targets, hyper */
static void ce_loss_run(const cuda_call *c) {
  const tsr_tensor *stats = cuda_x(c, 1);
  loss_scratch s = {.factor = cuda_hyper(c, 3, TSR_HYPER_INV_COUNT)};
  scratch_for(c->base.task, &s, cuda_scratch(c));
  tsr_cuda_softmax_loss(
      c->state->stream, s.row_loss, cuda_out(c, 1), cuda_in(c, 1), cuda_in(c, 2), s.rows,
      stats->shape[stats->ndim - 2]);
  add_rows(c, &s);
}
const cuda_op cuda_ce_loss = {ce_loss_run, row_loss_scratch};

static void ce_loss_dx_run(const cuda_call *c) {
  const tsr_tensor *logits = cuda_x(c, 0);
  tsr_cuda_softmax_loss_backward(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      cuda_hyper(c, 3, TSR_HYPER_INV_COUNT),
      cuda_attrs(c)->ce_loss_dx.scaled ? cuda_hyper(c, 3, TSR_HYPER_LOSS_SCALE) : NULL,
      cpu_rows(logits), cpu_last(logits), cpu_offset(&c->base, logits, logits->ndim - 1),
      cuda_attrs(c)->ce_loss_dx.valid);
}
const cuda_op cuda_ce_loss_dx = {ce_loss_dx_run, NULL};

static void squared_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0);
  loss_scratch s = {.number = (float)cpu_squared_factor(&c->base)};
  scratch_for(c->base.task, &s, cuda_scratch(c));
  tsr_cuda_squared_error(
      c->state->stream, s.row_loss, cuda_in(c, 0), cuda_in(c, 1), s.rows, cpu_last(x));
  add_rows(c, &s);
}
const cuda_op cuda_squared = {squared_run, row_loss_scratch};

/* inputs: x, y[, hyper]: then with the loss scale */
static void squared_dx_run(const cuda_call *c) {
  tsr_cuda_squared_error_backward(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      (float)cpu_squared_factor(&c->base),
      c->base.task->inputs_count == 3 ? cuda_hyper(c, 2, TSR_HYPER_LOSS_SCALE) : NULL,
      tsr_tensor_elements(cuda_y(c, 0)));
}
const cuda_op cuda_squared_dx = {squared_dx_run, NULL};
