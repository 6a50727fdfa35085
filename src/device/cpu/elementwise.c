// SPDX-License-Identifier: Apache-2.0
/* Ops whose element i depends on element i. */
#include "device/cpu/ops.h"

/* x with a row, or a whole tensor, that has x's last dimensions: items are blocks of that size. */
static int64_t broadcast_items(const tsr_task *t) {
  int64_t row = tsr_tensor_elements(&t->inputs[1]), all = tsr_tensor_elements(&t->outputs[0]);
  return row == all ? all : all / row;
}

static void add_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  int64_t row = tsr_tensor_elements(&c->call.task->inputs[1]);
  if (row == tsr_tensor_elements(&c->call.task->outputs[0]))
    c->k->add(cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
  else c->k->add_row(cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), row, begin, end);
}
const cpu_op cpu_add = {.items = broadcast_items, .run = add_run};

static void mul_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  int64_t row = tsr_tensor_elements(&c->call.task->inputs[1]);
  if (row == tsr_tensor_elements(&c->call.task->outputs[0]))
    c->k->mul(cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
  else c->k->mul_row(cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), row, begin, end);
}
const cpu_op cpu_mul = {.items = broadcast_items, .run = mul_run};

static void sub_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->sub(cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
}
const cpu_op cpu_sub = {.items = cpu_items_elements, .run = sub_run};

static void scale_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->scale(cpu_out(c, 0), cpu_in(c, 0), (float)cpu_attrs(c)->scale.factor, begin, end);
}
const cpu_op cpu_scale = {.items = cpu_items_elements, .run = scale_run};

static void unary_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->unary(tsr_unary_of(c->call.task->op), cpu_out(c, 0), cpu_in(c, 0), begin, end);
}
const cpu_op cpu_unary = {.items = cpu_items_elements, .run = unary_run};

static void unary_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_unary kind = tsr_unary_of(cpu_attrs(c)->unary_dx.op);
  c->k->unary_backward(kind, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
}
const cpu_op cpu_unary_dx = {.items = cpu_items_elements, .run = unary_dx_run};

static void gated_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_unary kind = tsr_unary_of(c->call.task->op);
  c->k->gated(kind, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
}
const cpu_op cpu_gated = {.items = cpu_items_elements, .run = gated_run};

static void gated_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_unary kind = tsr_unary_of(c->call.task->op);
  c->k->gated_backward(
      kind, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), begin, end);
}
const cpu_op cpu_gated_dx = {.items = cpu_items_elements, .run = gated_dx_run};

static void clamped_swiglu_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_clamped_swiglu_attrs *a = &cpu_attrs(c)->clamped_swiglu;
  c->k->clamped_swiglu(
      (float)a->alpha, (float)a->limit, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
}
const cpu_op cpu_clamped_swiglu = {.items = cpu_items_elements, .run = clamped_swiglu_run};

static void clamped_swiglu_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_clamped_swiglu_attrs *a = &cpu_attrs(c)->clamped_swiglu;
  c->k->clamped_swiglu_backward(
      (float)a->alpha, (float)a->limit, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1),
      cpu_in(c, 2), begin, end);
}
const cpu_op cpu_clamped_swiglu_dx = {.items = cpu_items_elements, .run = clamped_swiglu_dx_run};

static void dropout_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *y = &c->call.task->outputs[0];
  tsr_tensor_slice slice = tsr_operand_sample_slice(&c->call, y);
  const char *stream = c->call.program->graph->nodes[c->call.task->node].stream;
  uint64_t key = tsr_random_key(c->call.at.seed, stream, (uint64_t)c->call.at.step);
  float p = (float)cpu_attrs(c)->dropout.p;
  int dim = tsr_operand_zigzag_dim(&c->call, y);
  if (dim < 0) {
    c->k->dropout(cpu_out(c, 0), cpu_in(c, 0), p, key, &slice, begin, end);
    return;
  }
  int64_t half = y->shape[dim] / 2, at = begin * tsr_tensor_last(y),
          last = end * tsr_tensor_last(y);
  for (int d = dim + 1; d < y->ndim; d++) half *= y->shape[d];
  while (at < last) { /* rows [begin, end) are parts of some halves */
    int64_t i = at / half, stop = (i + 1) * half < last ? (i + 1) * half : last;
    tsr_tensor_slice part = tsr_operand_run_slice(&c->call, y, &slice, dim, i);
    int64_t cols = part.shape[part.ndim - 1];
    c->k->dropout(
        cpu_out(c, 0) + i * half, cpu_in(c, 0) + i * half, p, key, &part, (at - i * half) / cols,
        (stop - i * half) / cols);
    at = stop;
  }
}
const cpu_op cpu_dropout = {.items = cpu_items_rows, .run = dropout_run};

static void copy_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->copy(cpu_out(c, 0), cpu_in(c, 0), begin, end);
}
const cpu_op cpu_copy = {.items = cpu_items_elements, .run = copy_run};

/* One microbatch's gradient onto the stack of partial sums; entry 0 is the output. A gradient that
 * is added at once is not copied there. */
static void accumulate_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_lowering *l = &c->call.program->lowering;
  int64_t n = l->microbatches, at = c->call.at.microbatch;
  tsr_tree_stack tree = {.entries = tsr_tree_of_entries(l->tree, n, at)};
  int own = tsr_tree_push(&tree, tsr_tree_of_merges(l->tree, n, at));
  int64_t stride = (tsr_tensor_elements(&c->call.task->outputs[0]) + 15) / 16 * 16;
  float *stack = cpu_out(c, 0);
  const float *upper = cpu_in(c, 0);
  if (!tree.merges) c->k->copy(stack + own * stride, upper, begin, end);
  for (int low; tsr_tree_merge(&tree, &low);) {
    float *lower = stack + low * stride;
    c->k->add(lower, lower, upper, begin, end);
    upper = lower;
  }
}
const cpu_op cpu_accumulate = {.items = cpu_items_elements, .run = accumulate_run};

static void copy_unit(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into) {
  (void)block;
  const int64_t *range = context, size = tsr_tensor_elements(&c->call.task->outputs[0]);
  c->k->copy(into, cpu_in(c, 0) + leaf * size, range[0], range[1]);
}

static void sum_units_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  int64_t size = tsr_tensor_elements(&c->call.task->outputs[0]), range[2] = {begin, end};
  cpu_add_leaves(c, 0, cpu_out(c, 0), cpu_scratch(c), size, begin, end, copy_unit, range);
}

static int64_t
sum_units_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return tsr_task_stack_bytes(t, tsr_tensor_elements(&t->outputs[0]));
}
const cpu_op cpu_sum_units = {
    .items = cpu_items_elements, .scratch = sum_units_scratch, .run = sum_units_run};
