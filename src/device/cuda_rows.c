/* Ops whose row depends on that row, and sums over rows. */
#include "device/cuda_ops.h"
#include <assert.h>

static tsr_cuda_type type_of(const cuda_call *c) { return cuda_type(cuda_y(c, 0)); }

static void softmax_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_y(c, 0);
  tsr_cuda_softmax(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_in(c, 0), cpu_rows(x), cpu_last(x));
}
const cuda_op cuda_softmax = {softmax_run, NULL};

static void softmax_dx_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_y(c, 0);
  tsr_cuda_softmax_backward(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cpu_rows(x),
      cpu_last(x));
}
const cuda_op cuda_softmax_dx = {softmax_dx_run, NULL};

static void rope_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0); // (B, T, H*D)
  int64_t D = (int64_t)cuda_attr(c, 0);
  tsr_cuda_rope(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), x->shape[0],
      x->shape[1], x->shape[2] / D, D, (float)cuda_attr(c, 1));
}
const cuda_op cuda_rope = {rope_run, NULL};

/* ---- sums over rows, as cpu_rows.c cuts them ---- */

static int64_t row_sum_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  int64_t C = cpu_row_sum_columns(t), rows = tsr_tensor_elements(&t->inputs[0]) / C;
  return cuda_aligned(C * 4) + cuda_aligned(cpu_stack_bytes(t->units, C)) +
         tsr_cuda_sum_rows_scratch(rows, C);
}

/* Scratch: one more sum of a row's length, the stack of units, and what the kernels want. */
typedef struct {
  cpu_row_sum sum;
  float *part, *stack;
  void *kernel;
} row_sum;

static void sum_strided(
    const cuda_call *c, const row_sum *r, float *out, int64_t first, int64_t step, int64_t rows) {
  tsr_cuda_type type = cuda_type(cuda_x(c, 0));
  if (!r->sum.norm) {
    tsr_cuda_sum_rows(
        c->state->stream, type, out, cuda_in(c, 0), r->kernel, r->sum.C, first, step, rows);
    return;
  }
  bool has_mean = c->base.task->inputs_count == 5;
  tsr_cuda_norm_dw(
      c->state->stream, type, out, cuda_in(c, 0), cuda_in(c, 1), has_mean ? cuda_in(c, 2) : NULL,
      cuda_in(c, has_mean ? 3 : 2), r->kernel, r->sum.C, first, step, rows);
}

static void row_sum_unit(const cuda_call *c, void *context, int64_t unit, float *into) {
  const row_sum *r = context;
  cpu_strided_rows rows;
  for (int64_t k = 0; cpu_rows_of_row_sum(&c->base, &r->sum, unit, k, &rows); k++) {
    sum_strided(c, r, k ? r->part : into, rows.first, rows.step, rows.rows);
    if (k) tsr_cuda_add(c->state->stream, TSR_CUDA_F32, into, into, r->part, r->sum.C);
  }
}

static void row_sum_run(const cuda_call *c) {
  row_sum r = {.sum = cpu_row_sum_of(&c->base), .part = cuda_scratch(c)};
  char *behind = (char *)r.part + cuda_aligned(r.sum.C * 4);
  r.stack = (float *)(void *)behind;
  r.kernel = behind + cuda_aligned(cpu_stack_bytes(c->base.task->units, r.sum.C));
  assert(cuda_y(c, 0)->dtype == TSR_F32);
  for (r.sum.tp_unit = 0; r.sum.tp_unit < r.sum.tp_units; r.sum.tp_unit++)
    cuda_add_units(
        c, c->base.task->units, (float *)cuda_out(c, 0) + r.sum.tp_unit * r.sum.C, r.stack, r.sum.C,
        r.sum.C, row_sum_unit, &r);
}
const cuda_op cuda_sum_to = {row_sum_run, row_sum_scratch};
const cuda_op cuda_norm_dw = {row_sum_run, row_sum_scratch};
