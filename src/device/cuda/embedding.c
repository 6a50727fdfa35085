// SPDX-License-Identifier: Apache-2.0
/* Table lookups, and the sums over tokens that their gradients are. */
#include "device/cuda/ops.h"

static void embedding_run(const cuda_call *c) {
  const tsr_tensor *table = cuda_x(c, 1), *y = cuda_y(c, 0);
  int64_t first = tsr_operand_offset(&c->call, table, 0);
  tsr_cuda_embedding(
      c->state->stream, cuda_type(y), cuda_out(c, 0), cuda_in(c, 0), cuda_type(table),
      cuda_in(c, 1), tsr_tensor_rows(y), table->shape[1], first, first + table->shape[0]);
}
const cuda_op cuda_embedding = embedding_run;

static void order_by_leaves(const cuda_call *c, int32_t *by_leaves, int32_t *row_of) {
  const tsr_reduction *sum = &c->call.task->sum;
  tsr_cuda_leaves l = {.ndim = sum->ndim, .sequence = sum->sequence, .zigzag = sum->zigzag};
  l.rows = tsr_tensor_elements(cuda_x(c, 0));
  l.leaves = tsr_task_leaves(c->call.task);
  for (int d = 0; d < sum->ndim; d++) {
    l.size[d] = sum->dim[d].size;
    l.batch[d] = sum->dim[d].split[TSR_DP] ? sum->batch : 1;
    l.positions[d] = sum->dim[d].split[TSR_CP] ? sum->sequence : 1;
  }
  tsr_cuda_rows_by_leaves(c->state->stream, by_leaves, row_of, cuda_in(c, 0), &l);
}

static void embedding_dw_run(const cuda_call *c) {
  const tsr_tensor *table = cuda_y(c, 0), *dout = cuda_x(c, 1);
  const tsr_task *t = c->call.task;
  int64_t first = tsr_operand_offset(&c->call, table, 0), C = table->shape[1],
          blocks = tsr_reduction_blocks(&t->sum), rows = tsr_tensor_elements(cuda_x(c, 0)) / blocks;
  cuda_embedding_scratch s = cuda_embedding_scratch_at(t, cuda_scratch(c));
  const int32_t *tokens = s.tokens ? s.tokens : cuda_in(c, 0);
  int64_t block_bytes = s.tokens ? 0 : rows * C * tsr_dtype_bytes(dout->dtype);
  if (s.tokens) order_by_leaves(c, s.tokens, s.row_of);
  for (int64_t b = 0; b < blocks; b++)
    tsr_cuda_embedding_backward(
        c->state->stream, cuda_type(dout), (float *)cuda_out(c, 0) + b * table->shape[0] * C,
        tokens + b * rows, (const char *)cuda_in(c, 1) + b * block_bytes,
        s.row_of ? s.row_of + b * rows : NULL, s.kernel, rows, C, first, first + table->shape[0],
        cuda_attrs(c)->embedding.padding, t->sum.tree, tsr_reduction_leaves(&t->sum),
        t->sum.sequence);
}
const cuda_op cuda_embedding_dw = embedding_dw_run;
