// SPDX-License-Identifier: Apache-2.0
/* Ops whose element i depends on element i. */
#include "device/cuda/ops.h"
#include <assert.h>

static int64_t elements(const cuda_call *c) { return tsr_tensor_elements(cuda_y(c, 0)); }

/* x with a whole tensor, or with a row that has x's last dimensions. */
typedef void pair_kernel(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n);
typedef void row_kernel(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C);

static void run_broadcast(const cuda_call *c, pair_kernel *pair, row_kernel *with_row) {
  int64_t n = elements(c), row = tsr_tensor_elements(cuda_x(c, 1));
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  assert(cuda_x(c, 0)->dtype == cuda_y(c, 0)->dtype && cuda_x(c, 1)->dtype == cuda_y(c, 0)->dtype);
  if (row == n) pair(c->state->stream, type, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), n);
  else with_row(c->state->stream, type, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), n / row, row);
}

static void add_run(const cuda_call *c) { run_broadcast(c, tsr_cuda_add, tsr_cuda_add_row); }
const cuda_op cuda_add = add_run;
static void mul_run(const cuda_call *c) { run_broadcast(c, tsr_cuda_mul, tsr_cuda_mul_row); }
const cuda_op cuda_mul = mul_run;

static void sub_run(const cuda_call *c) {
  tsr_cuda_sub(
      c->state->stream, cuda_type(cuda_y(c, 0)), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      elements(c));
}
const cuda_op cuda_sub = sub_run;

static void scale_run(const cuda_call *c) {
  tsr_cuda_scale(
      c->state->stream, cuda_type(cuda_y(c, 0)), cuda_out(c, 0), cuda_in(c, 0),
      (float)cuda_attrs(c)->scale.factor, elements(c));
}
const cuda_op cuda_scale = scale_run;

/* ---- functions: of a unary op, a gated one, or the gradient of one of them ---- */

static tsr_unary function(const cuda_call *c) {
  tsr_op op = c->call.task->op;
  return tsr_unary_of(op == TSR_OP_UNARY_DX ? cuda_attrs(c)->unary_dx.op : op);
}

static void unary_run(const cuda_call *c) {
  tsr_cuda_unary(
      c->state->stream, cuda_type(cuda_y(c, 0)), function(c), cuda_out(c, 0), cuda_in(c, 0),
      elements(c));
}
const cuda_op cuda_unary = unary_run;

static void unary_dx_run(const cuda_call *c) {
  tsr_cuda_unary_backward(
      c->state->stream, cuda_type(cuda_y(c, 0)), function(c), cuda_out(c, 0), cuda_in(c, 0),
      cuda_in(c, 1), elements(c));
}
const cuda_op cuda_unary_dx = unary_dx_run;

static void gated_run(const cuda_call *c) {
  tsr_cuda_gated(
      c->state->stream, cuda_type(cuda_y(c, 0)), function(c), cuda_out(c, 0), cuda_in(c, 0),
      cuda_in(c, 1), elements(c));
}
const cuda_op cuda_gated = gated_run;

static void gated_dx_run(const cuda_call *c) {
  tsr_cuda_gated_backward(
      c->state->stream, cuda_type(cuda_y(c, 0)), function(c), cuda_out(c, 0), cuda_out(c, 1),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), elements(c));
}
const cuda_op cuda_gated_dx = gated_dx_run;

static void clamped_swiglu_run(const cuda_call *c) {
  const tsr_clamped_swiglu_attrs *a = &cuda_attrs(c)->clamped_swiglu;
  tsr_cuda_clamped_swiglu(
      c->state->stream, cuda_type(cuda_y(c, 0)), (float)a->alpha, (float)a->limit, cuda_out(c, 0),
      cuda_in(c, 0), cuda_in(c, 1), elements(c));
}
const cuda_op cuda_clamped_swiglu = clamped_swiglu_run;

static void clamped_swiglu_dx_run(const cuda_call *c) {
  const tsr_clamped_swiglu_attrs *a = &cuda_attrs(c)->clamped_swiglu;
  tsr_cuda_clamped_swiglu_backward(
      c->state->stream, cuda_type(cuda_y(c, 0)), (float)a->alpha, (float)a->limit, cuda_out(c, 0),
      cuda_out(c, 1), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), elements(c));
}
const cuda_op cuda_clamped_swiglu_dx = clamped_swiglu_dx_run;

/* Each half of a sample's positions is a slice of its own where cp has split them in two runs. */
static void dropout_halves(const cuda_call *c, int dim, float p) {
  const tsr_tensor *y = cuda_y(c, 0);
  tsr_tensor_slice whole = tsr_operand_sample_slice(&c->call, y);
  tsr_cuda_type type = cuda_type(y);
  int64_t halves = 2, bytes = type == TSR_CUDA_F32 ? 4 : 2;
  for (int d = 0; d < dim; d++) halves *= y->shape[d];
  int64_t half = tsr_tensor_elements(y) / halves;
  for (int64_t i = 0; i < halves; i++) {
    tsr_tensor_slice slice = tsr_operand_run_slice(&c->call, y, &whole, dim, i);
    tsr_cuda_dropout(
        c->state->stream, type, (char *)cuda_out(c, 0) + i * half * bytes,
        (const char *)cuda_in(c, 0) + i * half * bytes, p, c->key, &slice);
  }
}

static void dropout_run(const cuda_call *c) {
  const tsr_tensor *y = cuda_y(c, 0);
  float p = (float)cuda_attrs(c)->dropout.p;
  tsr_tensor_slice slice = tsr_operand_sample_slice(&c->call, y);
  int dim = tsr_operand_zigzag_dim(&c->call, y);
  if (dim >= 0) dropout_halves(c, dim, p);
  else
    tsr_cuda_dropout(
        c->state->stream, cuda_type(y), cuda_out(c, 0), cuda_in(c, 0), p, c->key, &slice);
}
const cuda_op cuda_dropout = dropout_run;

static void copy_elements(const cuda_call *c, void *to, const void *from, int64_t n) {
  tsr_cuda_cast(c->state->stream, TSR_CUDA_F32, to, TSR_CUDA_F32, from, n);
}

static void copy_run(const cuda_call *c) {
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  tsr_cuda_cast(c->state->stream, type, cuda_out(c, 0), type, cuda_in(c, 0), elements(c));
}
const cuda_op cuda_copy = copy_run;

static void cast_run(const cuda_call *c) {
  tsr_cuda_type to = cuda_type(cuda_y(c, 0)), from = cuda_type(cuda_x(c, 0));
  int all = c->call.task->outputs_count;
  tsr_cuda_cast_pair pairs[TSR_CUDA_CASTS];
  if (all == 1) {
    tsr_cuda_cast(c->state->stream, to, cuda_out(c, 0), from, cuda_in(c, 0), elements(c));
    return;
  }
  for (int i = 0, count = 0; i < all; i++) {
    pairs[count++] =
        (tsr_cuda_cast_pair){cuda_out(c, i), cuda_in(c, i), tsr_tensor_elements(cuda_y(c, i))};
    if (count < TSR_CUDA_CASTS && i + 1 < all) continue;
    tsr_cuda_casts(c->state->stream, to, from, pairs, count);
    count = 0;
  }
}
const cuda_op cuda_cast = cast_run;

/* ---- sums over microbatches and units, in f32 ---- */

/* One microbatch's gradient onto the stack of partial sums; entry 0 is the output. A gradient that
 * is added at once is not copied there. */
static void accumulate_run(const cuda_call *c) {
  const tsr_lowering *l = &c->call.program->lowering;
  int64_t n = l->microbatches, at = c->call.at.microbatch;
  tsr_tree_stack tree = {.entries = tsr_tree_of_entries(l->tree, n, at)};
  int own = tsr_tree_push(&tree, tsr_tree_of_merges(l->tree, n, at));
  int64_t count = elements(c), stride = (count + 15) / 16 * 16;
  float *stack = cuda_out(c, 0);
  const float *upper = cuda_in(c, 0);
  if (!tree.merges) copy_elements(c, stack + own * stride, upper, count);
  for (int low; tsr_tree_merge(&tree, &low);) {
    float *lower = stack + low * stride;
    tsr_cuda_add(c->state->stream, TSR_CUDA_F32, lower, lower, upper, count);
    upper = lower;
  }
}
const cuda_op cuda_accumulate = accumulate_run;

void cuda_add_leaves(
    const cuda_call *c, int64_t block, void *out, void *scratch, int64_t stride, int64_t count,
    cuda_make_leaf *make, void *context) {
  const tsr_reduction *sum = &c->call.task->sum;
  tsr_cuda_type type = sum->rounds != TSR_F32 ? cuda_type(cuda_y(c, 0)) : TSR_CUDA_F32;
  int64_t bytes = stride * (type == TSR_CUDA_F32 ? 4 : 2);
  tsr_tree_stack tree = {0}; /* entry 0 is out */
  for (int64_t leaf = 0; leaf < tsr_reduction_leaves(sum); leaf++) {
    int at = tsr_tree_push(&tree, tsr_reduction_merges(sum, leaf));
    make(c, context, block, leaf, at ? (char *)scratch + (at - 1) * bytes : out);
    for (int low; tsr_tree_merge(&tree, &low);) {
      char *upper = (char *)scratch + low * bytes;
      void *lower = low ? upper - bytes : out;
      tsr_cuda_add(c->state->stream, type, lower, lower, upper, count);
    }
  }
}

static void copy_unit(const cuda_call *c, void *context, int64_t block, int64_t leaf, void *into) {
  (void)context, (void)block;
  copy_elements(c, into, (const float *)cuda_in(c, 0) + leaf * elements(c), elements(c));
}

static void sum_units_run(const cuda_call *c) {
  cuda_add_leaves(c, 0, cuda_out(c, 0), cuda_scratch(c), elements(c), elements(c), copy_unit, NULL);
}

const cuda_op cuda_sum_units = sum_units_run;
