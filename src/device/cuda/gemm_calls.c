// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/gemm_calls.h"
#include "kernels/cuda/kernel_limits.h"
#include "schedule/fuse.h"

/* ---- of each op ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Into how many equal pieces the recipe's units split a dimension of a weight; what ZeRO shards is
 * computed whole. */
static int64_t weight_pieces(const tsr_task_call *c, const tsr_tensor *w, int dim) {
  tsr_placement p = tsr_operand_value(c, w)->placement[TSR_TP];
  int64_t pieces = p.kind == TSR_SHARD && p.dim == dim ? c->program->lowering.tp_units : 1;
  return pieces > 0 && w->shape[dim] % pieces == 0 ? pieces : 1;
}

/* Rows of a run, of which a tensor has so many rows. */
static int64_t run_of_rows(const tsr_task_call *c, const tsr_tensor *t, int64_t rows) {
  int64_t run = c->task->calls.run;
  return run ? run : rows / tsr_tensor_row_runs(c->program, t);
}

static int64_t split_run(const tsr_task_call *c, int64_t run) {
  return c->task->calls.rows ? least(c->task->calls.rows, run) : run;
}

/* y (R, N) = x (R, K) w (N, K)^T, K split into units */
static cuda_gemm_calls linear_calls(const tsr_task_call *c) {
  const tsr_tensor *x = tsr_kernel_inputs(c->task), *w = x + 1, *y = tsr_kernel_outputs(c->task);
  int64_t R = tsr_tensor_rows(y), run = run_of_rows(c, x, R);
  return (cuda_gemm_calls){
      .M = R,
      .N = tsr_tensor_last(y),
      .K = tsr_tensor_last(x) / tsr_reduction_splits(&c->task->sum, 0),
      .row_pieces = R / run,
      .col_pieces = weight_pieces(c, w, 0),
      .call_rows = split_run(c, run)};
}

/* dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units */
static cuda_gemm_calls linear_dx_calls(const tsr_task_call *c, int at) {
  const tsr_tensor *dy = tsr_kernel_inputs(c->task) + at, *w = dy + 1,
                   *dx = tsr_kernel_outputs(c->task);
  int64_t R = tsr_tensor_rows(dx), run = run_of_rows(c, dy, R);
  return (cuda_gemm_calls){
      .M = R,
      .N = tsr_tensor_last(dx),
      .K = tsr_tensor_last(dy) / tsr_reduction_splits(&c->task->sum, 0),
      .row_pieces = R / run,
      .col_pieces = weight_pieces(c, w, 1),
      .call_rows = split_run(c, run)};
}

/* dw (N, K) = dy (R, N)^T x (R, K), R split into units of runs of rows, all of one length, a run
 * perhaps into several calls, each of which adds to those before it */
static cuda_gemm_calls linear_dw_calls(const tsr_task_call *c) {
  const tsr_tensor *dy = tsr_kernel_inputs(c->task), *x = dy + 1;
  const tsr_node *node = &c->program->graph->nodes[c->task->node];
  const tsr_tensor *w = &c->program->tensors[node->inputs[2]]; /* no input of a batch */
  tsr_reduced_rows run = {0};
  tsr_reduction_rows(&c->task->sum, 0, 0, 0, &run);
  int64_t pieces = weight_pieces(c, w, 0);
  return (cuda_gemm_calls){
      .M = tsr_tensor_last(dy),
      .N = tsr_tensor_last(x),
      .K = split_run(c, run.rows),
      .row_pieces = pieces,
      .col_pieces = weight_pieces(c, w, 1),
      .call_rows = tsr_tensor_last(dy) / pieces};
}

/* c (…, M, N) = A (…, M, K) B (…, K, N), either transposed; K split into units; at least a call a
 * matrix */
static cuda_gemm_calls matmul_calls(const tsr_task_call *c) {
  const tsr_tensor *a = tsr_kernel_inputs(c->task), *y = tsr_kernel_outputs(c->task);
  int n = y->ndim;
  int64_t K = a->shape[tsr_task_attrs(c)->matmul.transpose_a ? n - 2 : n - 1];
  int64_t row_pieces = tsr_tensor_unit_pieces(c->program, y, n - 2);
  return (cuda_gemm_calls){
      .M = y->shape[n - 2],
      .N = y->shape[n - 1],
      .K = K / tsr_reduction_splits(&c->task->sum, 0),
      .row_pieces = row_pieces,
      .col_pieces = tsr_tensor_unit_pieces(c->program, y, n - 1),
      .call_rows = y->shape[n - 2] / row_pieces};
}

cuda_gemm_calls cuda_gemm_calls_of(const tsr_task_call *c, int at) {
  switch ((int)c->task->op) {
  case TSR_OP_LINEAR_DX:
  case TSR_OP_ROUTER_DX:
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

/* GEMMs of a leaf of an input's gradient, which has one for each pair of inputs; of others 1. */
static int pairs_of(const tsr_task *t) {
  bool dx = t->op == TSR_OP_LINEAR_DX || t->op == TSR_OP_ROUTER_DX;
  return dx ? t->inputs_count / 2 : 1;
}

/* How many results of GEMMs are added up, in all leaves together. */
static int64_t summands_of(const tsr_task *t) {
  int64_t leaves = tsr_task_leaves(t);
  if (t->op != TSR_OP_LINEAR_DW) return leaves * pairs_of(t);
  tsr_reduced_rows run = {0};
  tsr_reduction_rows(&t->sum, 0, 0, 0, &run);
  bool split = t->calls.rows && t->calls.rows < run.rows;
  return leaves * tsr_reduction_runs(&t->sum) * (split ? 2 : 1); /* at least */
}

bool cuda_matmul_is_wide(const tsr_task *t) {
  int64_t rounded =
      t->sum.rounds != TSR_F32 ? tsr_task_leaves(t) : 1; /* each in the type of the output */
  return tsr_kernel_outputs(t)[0].dtype != TSR_F32 && summands_of(t) > rounded;
}

static bool is_unaligned(int64_t elements, int64_t bytes) { return elements * bytes % 16; }

/* Whether some call's operands have gaps, or begin at no multiple of 16 bytes: results of a sum's
 * leaves lie one after another. */
static bool has_gaps(const tsr_task_call *c, const cuda_gemm_calls *g, int64_t in, int64_t out) {
  int64_t rows = g->M / g->row_pieces;
  bool is_matmul = c->task->op == TSR_OP_MATMUL;
  if (g->col_pieces > 1 || (is_matmul && g->row_pieces > 1)) return true;
  /* Calls within a run begin at any row. */
  bool any_row = c->task->calls.run || c->task->calls.rows;
  int64_t least_rows = any_row ? 1 : g->K;
  if (c->task->op == TSR_OP_LINEAR_DW) {
    bool apart = tsr_reduction_is_split(&c->task->sum) && is_unaligned(g->M * g->N, out);
    return g->row_pieces > 1 || apart || is_unaligned(least_rows * g->M, in) ||
           is_unaligned(least_rows * g->N, in);
  }
  if (tsr_reduction_splits(&c->task->sum, 0) > 1) return true;
  if (any_row && (is_unaligned(g->K, in) || is_unaligned(g->N, out))) return true;
  bool several = g->row_pieces > 1 || is_matmul;
  return several && (is_unaligned(rows * g->K, in) || is_unaligned(rows * g->N, out) ||
                     is_unaligned(g->K * g->N, in));
}

int64_t cuda_gemm_calls_scratch(const tsr_task_call *c) {
  const tsr_task *t = c->task;
  const tsr_tensor *x = tsr_kernel_inputs(t), *y = tsr_kernel_outputs(t);
  if (t->fused == TSR_FUSED_EPILOGUE) y = tsr_epilogue_of(c->program, t).out;
  bool epilogue = t->fused && t->op == TSR_OP_LINEAR;
  bool leaves = tsr_reduction_is_split(&t->sum) && t->sum.rounds == TSR_F32;
  bool wide = leaves || cuda_matmul_is_wide(t);
  int in = tsr_dtype_is_half(x->dtype) ? 2 : 4;
  int out = !wide && tsr_dtype_is_half(y->dtype) ? 2 : 4;
  int64_t most = 0;
  for (int i = 0; i < pairs_of(t); i++) {
    cuda_gemm_calls g = cuda_gemm_calls_of(c, 2 * i);
    if (!has_gaps(c, &g, in, out)) continue;
    int64_t bytes = tsr_cuda_gemm_scratch(g.call_rows, g.N / g.col_pieces, g.K, in, out, epilogue);
    if (bytes > most) most = bytes;
  }
  return most;
}
