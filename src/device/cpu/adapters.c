// SPDX-License-Identifier: Apache-2.0
/* Ops of adapters: DoRA's norms. */
#include "device/cpu/ops.h"

typedef struct {
  int64_t begin, end; /* rows */
} row_range;

/* The columns of a unit. */
static void
squares_leaf(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into) {
  const row_range *r = context;
  const tsr_tensor *in = tsr_kernel_inputs(c->call.task);
  tsr_reduced_rows unit = {.rows = in[0].shape[1]};
  if (c->call.task->sum.ndim) tsr_reduction_rows(&c->call.task->sum, block, leaf, 0, &unit);
  tsr_matrix w = cpu_matrix(c, 0, 0, in[0].shape[1], 1);
  c->k->adapted_squares(
      into, &w, cpu_in(c, 1), cpu_in(c, 2), in[0].shape[1], in[1].shape[0],
      (float)cpu_attrs(c)->scale.factor, unit.first, unit.rows, r->begin, r->end);
}

static void squares_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  row_range r = {begin, end};
  cpu_add_leaves(
      c, 0, cpu_out(c, 0), cpu_scratch(c), tsr_task_block_elements(c->call.task), begin, end,
      squares_leaf, &r);
}

static int64_t
squares_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return tsr_task_stack_bytes(t, tsr_task_block_elements(t));
}
const cpu_op cpu_adapted_squares = {
    .items = cpu_items_elements, .scratch = squares_scratch, .run = squares_run};

static void divide_root_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->divide_root(cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), begin, end);
}
const cpu_op cpu_divide_root = {.items = cpu_items_elements, .run = divide_root_run};
