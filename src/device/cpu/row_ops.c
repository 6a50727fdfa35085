// SPDX-License-Identifier: Apache-2.0
/* Ops on rows: norms, softmax, rope, and the sums over rows that their weights' gradients are. */
#include "device/cpu/ops.h"

static void layernorm_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const float *bias = c->call.task->inputs_count == 3 ? cpu_in(c, 2) : NULL;
  c->k->layernorm(
      cpu_out(c, 0), cpu_out(c, 1), cpu_out(c, 2), cpu_in(c, 0), cpu_in(c, 1), bias,
      tsr_tensor_last(&c->call.task->inputs[0]), (float)cpu_attrs(c)->norm.eps, begin, end);
}
const cpu_op cpu_layernorm = {.items = cpu_items_rows, .run = layernorm_run};

static void rmsnorm_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->rmsnorm(
      cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1), cpu_attrs(c)->rmsnorm.zero_centered,
      tsr_tensor_last(&c->call.task->inputs[0]), (float)cpu_attrs(c)->rmsnorm.eps, begin, end);
}
const cpu_op cpu_rmsnorm = {.items = cpu_items_rows, .run = rmsnorm_run};

static void layernorm_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->layernorm_backward(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), cpu_in(c, 3), cpu_in(c, 4),
      tsr_tensor_last(&c->call.task->outputs[0]), begin, end);
}
const cpu_op cpu_layernorm_dx = {.items = cpu_items_rows, .run = layernorm_dx_run};

static void rmsnorm_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->rmsnorm_backward(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2),
      cpu_attrs(c)->rmsnorm_dx.zero_centered, cpu_in(c, 3),
      tsr_tensor_last(&c->call.task->outputs[0]), begin, end);
}
const cpu_op cpu_rmsnorm_dx = {.items = cpu_items_rows, .run = rmsnorm_dx_run};

static void softmax_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->softmax(
      cpu_out(c, 0), cpu_in(c, 0), tsr_tensor_last(&c->call.task->outputs[0]), begin, end);
}
const cpu_op cpu_softmax = {.items = cpu_items_rows, .run = softmax_run};

static void softmax_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->softmax_backward(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), tsr_tensor_last(&c->call.task->outputs[0]), begin,
      end);
}
const cpu_op cpu_softmax_dx = {.items = cpu_items_rows, .run = softmax_dx_run};

static void rope_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_rope r = tsr_rope_of(&c->call);
  c->k->rope(&r, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
}
const cpu_op cpu_rope = {.items = cpu_items_rows, .run = rope_run};

/* ---- sums over rows of x (…, C): a leaf's runs one after the other, blocks one behind the other
 * ---- */

/* One range's part of it. */
typedef struct {
  int64_t begin, end;
  float *part; /* (C), for one run's sum */
} row_sum;

static void sum_run(const cpu_call *c, const row_sum *r, float *out, tsr_reduced_rows rows) {
  const float *x = cpu_in(c, 0);
  int64_t C = tsr_task_block_elements(c->call.task);
  if (c->call.task->op != TSR_OP_NORM_DW) {
    c->k->sum_rows(out, x, C, rows.first, rows.step, rows.rows, r->begin, r->end);
    return;
  }
  bool has_mean = c->call.task->inputs_count == 5;
  const float *mean = has_mean ? cpu_in(c, 2) : NULL, *rstd = cpu_in(c, has_mean ? 3 : 2);
  c->k->norm_dw(
      out, x, cpu_in(c, 1), mean, rstd, C, rows.first, rows.step, rows.rows, r->begin, r->end);
}

static void
row_sum_leaf(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into) {
  const row_sum *r = context;
  tsr_reduced_rows rows;
  for (int64_t k = 0; tsr_reduction_rows(&c->call.task->sum, block, leaf, k, &rows); k++) {
    sum_run(c, r, k ? r->part : into, rows);
    if (k) c->k->add(into, into, r->part, r->begin, r->end);
  }
}

static void row_sum_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  row_sum r = {begin, end, cpu_scratch(c)};
  int64_t C = tsr_task_block_elements(c->call.task);
  for (int64_t block = 0; block < tsr_reduction_blocks(&c->call.task->sum); block++)
    cpu_add_leaves(
        c, block, cpu_out(c, 0) + block * C, r.part + C, C, begin, end, row_sum_leaf, &r);
}

static int64_t
row_sum_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  int64_t C = tsr_task_block_elements(t);
  return C * 4 + tsr_task_stack_bytes(t, C);
}

const cpu_op cpu_sum_to = {
    .items = tsr_task_block_elements, .scratch = row_sum_scratch, .run = row_sum_run};
const cpu_op cpu_norm_dw = {
    .items = tsr_task_block_elements, .scratch = row_sum_scratch, .run = row_sum_run};

/* ---- sums over heads: x (B,T,heads*D) to (B,T,D), in units of tp ---- */

typedef struct {
  int64_t begin, end; /* rows */
} head_sum;

/* The heads of a unit, one after the other. */
static void
sum_heads_leaf(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into) {
  const head_sum *range = context;
  int64_t D = tsr_tensor_last(&c->call.task->outputs[0]);
  int64_t features = tsr_tensor_last(&c->call.task->inputs[0]);
  tsr_reduced_rows unit;
  tsr_reduction_rows(&c->call.task->sum, block, leaf, 0, &unit);
  for (int64_t row = range->begin; row < range->end; row++) {
    const float *x = cpu_in(c, 0) + row * features + unit.first;
    float *to = into + row * D;
    c->k->copy(to, x, 0, D);
    for (int64_t at = D; at < unit.rows; at += D) c->k->add(to, to, x + at, 0, D);
  }
}

static void sum_heads_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  head_sum range = {begin, end};
  int64_t D = tsr_tensor_last(&c->call.task->outputs[0]);
  cpu_add_leaves(
      c, 0, cpu_out(c, 0), cpu_scratch(c), tsr_task_block_elements(c->call.task), begin * D,
      end * D, sum_heads_leaf, &range);
}

static int64_t
sum_heads_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return tsr_task_stack_bytes(t, tsr_task_block_elements(t));
}
const cpu_op cpu_sum_heads = {
    .items = cpu_items_rows, .scratch = sum_heads_scratch, .run = sum_heads_run};
