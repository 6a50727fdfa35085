// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/fp8_matmul.h"
#include "kernels/cuda/fp8_shape.h"

void cuda_fp8_quantize(const cuda_call *c, void *operands, const int32_t *starts) {
  const tsr_fp8_operands *all = c->call.task->fp8;
  for (int i = 0; i < all->count; i++) {
    if (!all->inputs[i].layout.rows) continue;
    cuda_fp8_operand to = cuda_fp8_operand_at(c->call.task, i, operands);
    if (to.of.has_runs) to.of.starts = starts;
    tsr_cuda_fp8_quantize(
        c->state->stream, cuda_type(cuda_x(c, i)), to.codes, to.scales, cuda_in(c, i), &to.of);
  }
}

tsr_cuda_fp8_matrix cuda_fp8_matrix(const cuda_fp8_operand *at, int64_t unit) {
  const tsr_cuda_fp8_operand *o = &at->of;
  const tsr_fp8_layout *l = &o->layout;
  int64_t size = o->sums_rows ? l->unit_rows : l->unit_cols, across = tsr_fp8_scale_cols(l);
  tsr_cuda_fp8_matrix m = {.stride = tsr_cuda_fp8_operand_stride(o)};
  m.codes = at->codes + unit * tsr_cuda_fp8_unit(size);
  m.k_stride = o->sums_rows ? across : 1;
  m.row_stride = o->sums_rows ? 1 : across;
  m.scales = at->scales + unit * tsr_fp8_blocks(size, size, TSR_FP8_BLOCK) * m.k_stride;
  if (l->block_rows == l->block_cols) m.row_unit = o->sums_rows ? l->unit_cols : l->unit_rows;
  return m;
}

static tsr_cuda_fp8_matrix matrix_of(const cuda_call *c, int i, int64_t unit) {
  void *operands = cuda_matmul_scratch_at(&c->call, cuda_scratch(c)).operands;
  cuda_fp8_operand at = cuda_fp8_operand_at(c->call.task, i, operands);
  return cuda_fp8_matrix(&at, unit);
}

void cuda_fp8_gemm(const cuda_call *c, cuda_fp8_call of, void *into, tsr_cuda_type type) {
  const tsr_fp8_operand *a = &c->call.task->fp8->inputs[of.a],
                        *b = &c->call.task->fp8->inputs[of.b];
  tsr_cuda_fp8_gemm p = {
      .M = a->sums_rows ? a->layout.cols : a->layout.rows,
      .N = b->sums_rows ? b->layout.cols : b->layout.rows,
      .K = a->sums_rows ? a->layout.unit_rows : a->layout.unit_cols,
      .a = matrix_of(c, of.a, of.unit), // (M, K)
      .b = matrix_of(c, of.b, of.unit), // (N, K)
      .a_format = a->layout.format,
      .c = into, // (M, N)
      .adds = of.adds};
  tsr_cuda_run_fp8_gemm(c->state->stream, type, &p);
}
