// SPDX-License-Identifier: Apache-2.0
/* Losses: a loss per row, then one number, added over batch units by the tree. */
#include "device/cpu/ops.h"

static int64_t rows_of_input(const tsr_task *t) { return tsr_tensor_rows(&t->inputs[0]); }

static void ce_stats_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *logits = &c->call.task->inputs[0];
  c->k->softmax_stats(
      cpu_out(c, 0), cpu_in(c, 0), cpu_tokens(c, 1), tsr_tensor_last(logits),
      tsr_operand_offset(&c->call, logits, logits->ndim - 1), cpu_attrs(c)->ce_stats.valid,
      c->call.task->sum.kept, begin, end);
}
const cpu_op cpu_ce_stats = {.items = rows_of_input, .run = ce_stats_run};

static int64_t
row_loss_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return tsr_task_loss_rows(t) * 4 + tsr_task_stack_bytes(t, 1);
}

static void loss_leaf(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into) {
  const double *factor = context;
  const float *row_loss = cpu_scratch(c);
  double sum = 0;
  tsr_reduced_rows run;
  for (int64_t k = 0; tsr_reduction_rows(&c->call.task->sum, block, leaf, k, &run); k++)
    sum += c->k->sum(row_loss + run.first, 1, run.rows, run.rows);
  *into = (float)(sum * *factor);
}

static void add_rows(const cpu_call *c, double factor) {
  float *stack = (float *)cpu_scratch(c) + tsr_task_loss_rows(c->call.task);
  for (int64_t block = 0; block < tsr_reduction_blocks(&c->call.task->sum); block++)
    cpu_add_leaves(c, block, cpu_out(c, 0) + block, stack, 1, 0, 1, loss_leaf, &factor);
}

/* inputs: logits, stats (…, units, 3), targets, step_scalars */
static void ce_loss_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *stats = &c->call.task->inputs[1];
  c->k->softmax_loss(
      cpu_scratch(c), cpu_out(c, 1), cpu_in(c, 1), cpu_tokens(c, 2), stats->shape[stats->ndim - 2],
      begin, end);
}
static void ce_loss_after(const cpu_call *c) {
  add_rows(c, cpu_scalar(c, 3, TSR_SCALAR_INV_COUNT));
}
const cpu_op cpu_ce_loss = {
    .items = tsr_task_loss_rows,
    .scratch = row_loss_scratch,
    .run = ce_loss_run,
    .after = ce_loss_after};

static void ce_loss_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *logits = &c->call.task->inputs[0];
  float factor = cpu_scalar(c, 3, TSR_SCALAR_INV_COUNT);
  if (cpu_attrs(c)->ce_loss_dx.scaled) factor *= cpu_scalar(c, 3, TSR_SCALAR_LOSS_SCALE);
  c->k->softmax_loss_backward(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_tokens(c, 2), factor, tsr_tensor_last(logits),
      tsr_operand_offset(&c->call, logits, logits->ndim - 1), cpu_attrs(c)->ce_loss_dx.valid, begin,
      end);
}
const cpu_op cpu_ce_loss_dx = {.items = rows_of_input, .run = ce_loss_dx_run};

static void squared_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->squared_error(
      cpu_scratch(c), cpu_in(c, 0), cpu_in(c, 1), tsr_tensor_last(&c->call.task->inputs[0]), begin,
      end);
}
static void squared_after(const cpu_call *c) { add_rows(c, tsr_task_squared_factor(&c->call)); }
const cpu_op cpu_squared = {
    .items = rows_of_input,
    .scratch = row_loss_scratch,
    .run = squared_run,
    .after = squared_after};

/* inputs: x, y[, step_scalars]: then with the loss scale */
static void squared_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  float factor = (float)tsr_task_squared_factor(&c->call);
  if (c->call.task->inputs_count == 3) factor *= cpu_scalar(c, 2, TSR_SCALAR_LOSS_SCALE);
  c->k->squared_error_backward(cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), factor, begin, end);
}
const cpu_op cpu_squared_dx = {.items = cpu_items_elements, .run = squared_dx_run};
