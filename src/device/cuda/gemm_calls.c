// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/gemm_calls.h"
#include "kernels/cuda/kernel_limits.h"
#include "schedule/fuse.h"

/* Into how many equal pieces the recipe's units split what a rank holds of a dimension. */
static int64_t pieces_along(const tsr_task_call *c, const tsr_tensor *t, int dim) {
  const tsr_lowering *l = &c->program->lowering;
  const tsr_value *v = tsr_operand_value(c, t);
  int64_t pieces = 1;
  for (int a = 0; a < TSR_AXES; a++) {
    if (v->placement[a].kind != TSR_SHARD || v->placement[a].dim != dim) continue;
    if (a == TSR_DP) pieces *= l->batch_units;
    if (a == TSR_CP && l->sequence_units > 1) pieces *= l->sequence_units;
    if (a == TSR_TP) pieces *= l->tp_units;
  }
  return pieces > 0 && t->shape[dim] % pieces == 0 ? pieces : 1;
}

/* The same of a weight: what ZeRO shards is computed whole. */
static int64_t weight_pieces(const tsr_task_call *c, const tsr_tensor *w, int dim) {
  tsr_placement p = tsr_operand_value(c, w)->placement[TSR_TP];
  int64_t pieces = p.kind == TSR_SHARD && p.dim == dim ? c->program->lowering.tp_units : 1;
  return pieces > 0 && w->shape[dim] % pieces == 0 ? pieces : 1;
}

/* Whether the recipe's units split positions that lie along a dimension, perhaps into one for each
 * rank. */
static bool splits_positions(const tsr_task_call *c, const tsr_tensor *t, int dim) {
  const tsr_lowering *l = &c->program->lowering;
  tsr_placement p = tsr_operand_value(c, t)->placement[TSR_CP];
  return p.kind == TSR_SHARD && p.dim == dim && l->sequence_units * l->size[TSR_CP] > 1;
}

/* Runs of rows (all dimensions but the last) of one length: the units of the batch, or where
 * positions are split, those of each sample: also on a rank that has one unit of them, where all
 * its rows lie one after the other, for other meshes have several. */
static int64_t runs_of_rows(const tsr_task_call *c, const tsr_tensor *t) {
  int64_t runs = pieces_along(c, t, 0), outer = 1;
  for (int d = 1; d < t->ndim - 1; d++) {
    outer *= t->shape[d - 1];
    int64_t pieces = pieces_along(c, t, d);
    if (pieces > 1 || splits_positions(c, t, d)) runs = outer * pieces;
  }
  return runs;
}

/* ---- of each op ---- */

/* y (R, N) = x (R, K) w (N, K)^T, K split into units */
static cuda_gemm_calls linear_calls(const tsr_task_call *c) {
  const tsr_tensor *x = tsr_kernel_inputs(c->task), *w = x + 1, *y = tsr_kernel_outputs(c->task);
  return (cuda_gemm_calls){
      tsr_tensor_rows(y), tsr_tensor_last(y),
      tsr_tensor_last(x) / tsr_reduction_splits(&c->task->sum, 0), runs_of_rows(c, x),
      weight_pieces(c, w, 0)};
}

/* dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units */
static cuda_gemm_calls linear_dx_calls(const tsr_task_call *c, int at) {
  const tsr_tensor *dy = tsr_kernel_inputs(c->task) + at, *w = dy + 1,
                   *dx = tsr_kernel_outputs(c->task);
  return (cuda_gemm_calls){
      tsr_tensor_rows(dx), tsr_tensor_last(dx),
      tsr_tensor_last(dy) / tsr_reduction_splits(&c->task->sum, 0), runs_of_rows(c, dy),
      weight_pieces(c, w, 1)};
}

/* dw (N, K) = dy (R, N)^T x (R, K), R split into units of runs of rows, all of one length */
static cuda_gemm_calls linear_dw_calls(const tsr_task_call *c) {
  const tsr_tensor *dy = tsr_kernel_inputs(c->task), *x = dy + 1, *w = dy + 2;
  tsr_reduced_rows run = {0};
  tsr_reduction_rows(&c->task->sum, 0, 0, 0, &run);
  return (cuda_gemm_calls){
      tsr_tensor_last(dy), tsr_tensor_last(x), run.rows, weight_pieces(c, w, 0),
      weight_pieces(c, w, 1)};
}

/* c (…, M, N) = A (…, M, K) B (…, K, N), either transposed; K split into units, a call a matrix */
static cuda_gemm_calls matmul_calls(const tsr_task_call *c) {
  const tsr_tensor *a = tsr_kernel_inputs(c->task), *y = tsr_kernel_outputs(c->task);
  int n = y->ndim;
  int64_t K = a->shape[tsr_task_attrs(c)->matmul.transpose_a ? n - 2 : n - 1];
  return (cuda_gemm_calls){
      y->shape[n - 2], y->shape[n - 1], K / tsr_reduction_splits(&c->task->sum, 0), 1, 1};
}

cuda_gemm_calls cuda_gemm_calls_of(const tsr_task_call *c, int at) {
  switch ((int)c->task->op) {
  case TSR_OP_LINEAR_DX:
    return linear_dx_calls(c, at);
  case TSR_OP_LINEAR_DW:
    return linear_dw_calls(c);
  case TSR_OP_MATMUL:
    return matmul_calls(c);
  default:
    return linear_calls(c);
  }
}

/* ---- scratch ---- */

/* How many results of GEMMs are added up, in all leaves together. */
static int64_t summands_of(const tsr_task *t) {
  int64_t leaves = tsr_task_leaves(t);
  if (t->op == TSR_OP_LINEAR_DX) return leaves * t->inputs_count / 2;
  if (t->op == TSR_OP_LINEAR_DW) return leaves * tsr_reduction_runs(&t->sum);
  return leaves;
}

bool cuda_matmul_is_wide(const tsr_task *t) {
  return tsr_kernel_outputs(t)[0].dtype != TSR_F32 && summands_of(t) > 1;
}

static bool is_unaligned(int64_t elements, int64_t bytes) { return elements * bytes % 16; }

/* Whether some call's operands have gaps, or begin at no multiple of 16 bytes. */
static bool has_gaps(const tsr_task_call *c, const cuda_gemm_calls *g, int64_t in, int64_t out) {
  int64_t rows = g->M / g->row_pieces;
  if (g->col_pieces > 1) return true;
  if (c->task->op == TSR_OP_LINEAR_DW)
    return g->row_pieces > 1 || is_unaligned(g->K * g->M, in) || is_unaligned(g->K * g->N, in);
  if (tsr_reduction_splits(&c->task->sum, 0) > 1) return true;
  bool several = g->row_pieces > 1 || c->task->op == TSR_OP_MATMUL;
  return several && (is_unaligned(rows * g->K, in) || is_unaligned(rows * g->N, out) ||
                     is_unaligned(g->K * g->N, in));
}

int64_t cuda_gemm_calls_scratch(const tsr_task_call *c) {
  const tsr_task *t = c->task;
  int pairs = t->op == TSR_OP_LINEAR_DX ? t->inputs_count / 2 : 1;
  const tsr_tensor *x = tsr_kernel_inputs(t), *y = tsr_kernel_outputs(t);
  if (t->fused) y = tsr_epilogue_of(c->program, t).out;
  bool wide = tsr_reduction_is_split(&t->sum) || cuda_matmul_is_wide(t);
  int in = tsr_dtype_is_half(x->dtype) ? 2 : 4;
  int out = !wide && tsr_dtype_is_half(y->dtype) ? 2 : 4;
  int64_t most = 0;
  for (int i = 0; i < pairs; i++) {
    cuda_gemm_calls g = cuda_gemm_calls_of(c, 2 * i);
    if (!has_gaps(c, &g, in, out)) continue;
    int64_t bytes =
        tsr_cuda_gemm_scratch(g.M / g.row_pieces, g.N / g.col_pieces, g.K, in, out, t->fused);
    if (bytes > most) most = bytes;
  }
  return most;
}
