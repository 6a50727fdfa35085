// SPDX-License-Identifier: Apache-2.0
/* Ops whose row depends on that row, and sums over rows and over heads. */
#include "device/cuda/ops.h"
#include <assert.h>

static tsr_cuda_type type_of(const cuda_call *c) { return cuda_type(cuda_y(c, 0)); }

static void softmax_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_y(c, 0);
  tsr_cuda_softmax(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_in(c, 0), tsr_tensor_rows(x),
      tsr_tensor_last(x));
}
const cuda_op cuda_softmax = softmax_run;

static void softmax_dx_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_y(c, 0);
  tsr_cuda_softmax_backward(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      tsr_tensor_rows(x), tsr_tensor_last(x));
}
const cuda_op cuda_softmax_dx = softmax_dx_run;

static void rope_run(const cuda_call *c) {
  tsr_rope r = tsr_rope_of(&c->call);
  tsr_cuda_rope(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      cuda_x(c, 0)->shape[0], &r);
}
const cuda_op cuda_rope = rope_run;

/* ---- sums over rows ---- */

static void
sum_run(const cuda_call *c, const cuda_row_sum_scratch *r, float *out, tsr_reduced_rows rows) {
  tsr_cuda_type type = cuda_type(cuda_x(c, 0));
  if (c->call.task->op != TSR_OP_NORM_DW) {
    tsr_cuda_sum_rows(
        c->state->stream, type, out, cuda_in(c, 0), r->kernel, r->C, rows.first, rows.step,
        rows.rows);
    return;
  }
  bool has_mean = c->call.task->inputs_count == 5;
  tsr_cuda_norm_dw(
      c->state->stream, type, out, cuda_in(c, 0), cuda_in(c, 1), has_mean ? cuda_in(c, 2) : NULL,
      cuda_in(c, has_mean ? 3 : 2), r->kernel, r->C, rows.first, rows.step, rows.rows);
}

static void
row_sum_leaf(const cuda_call *c, void *context, int64_t block, int64_t leaf, void *into) {
  const cuda_row_sum_scratch *r = context;
  tsr_reduced_rows rows;
  for (int64_t k = 0; tsr_reduction_rows(&c->call.task->sum, block, leaf, k, &rows); k++) {
    sum_run(c, r, k ? r->part : into, rows);
    if (k) tsr_cuda_add(c->state->stream, TSR_CUDA_F32, into, into, r->part, r->C);
  }
}

static void row_sum_run(const cuda_call *c) {
  const tsr_task *t = c->call.task;
  cuda_row_sum_scratch r = cuda_row_sum_scratch_at(t, cuda_scratch(c));
  assert(cuda_y(c, 0)->dtype == TSR_F32);
  for (int64_t block = 0; block < tsr_reduction_blocks(&t->sum); block++)
    cuda_add_leaves(
        c, block, (float *)cuda_out(c, 0) + block * r.C, r.stack, r.C, r.C, row_sum_leaf, &r);
}
const cuda_op cuda_sum_to = row_sum_run;
const cuda_op cuda_norm_dw = row_sum_run;

/* ---- sums over heads: x (B,T,heads*D) to (B,T,D), in units of tp ---- */

static void sum_heads_run(const cuda_call *c) {
  const tsr_reduction *sum = &c->call.task->sum;
  const tsr_tensor *x = cuda_x(c, 0), *y = cuda_y(c, 0);
  int64_t D = tsr_tensor_last(y), units = tsr_reduction_leaves(sum);
  assert(x->dtype == y->dtype && units == sum->tp && tsr_reduction_is_contiguous(sum));
  tsr_cuda_sum_heads(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_in(c, 0), tsr_tensor_rows(y), D,
      tsr_tensor_last(x) / D / units, sum->tree, units);
}
const cuda_op cuda_sum_heads = sum_heads_run;
