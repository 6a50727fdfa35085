// SPDX-License-Identifier: Apache-2.0
/* The recorder's GEMMs, elementwise maps, norms, sums, embeddings, losses and updates. */
#include "device/cuda/launch_recorder.h"
#include "kernels/cuda/fp8_shape.h"
#include "kernels/cuda/gemm.h"

/* ---- gemm.h ---- */

bool tsr_cuda_has_gemm(tsr_cuda_blas *b, const tsr_cuda_gemm *p) { return (void)b, (void)p, true; }

static const char *epilogue_of(const tsr_cuda_gemm *p) {
  if (p->before) return p->bias ? "+bias+gelu" : "+gelu";
  return p->bias ? "+bias" : "";
}

bool tsr_cuda_run_gemm(tsr_cuda_blas *b, tsr_cuda_stream s, const tsr_cuda_gemm *p) {
  (void)b;
  const char *size = product(s, p->M, p->N, p->K), *end = epilogue_of(p), *batch = "";
  if (p->batch.count > 1)
    batch = tsr_arena_printf(list_of(s)->arena, " batch of %d", p->batch.count);
  record_library(s, "cuBLASLt", tsr_arena_printf(list_of(s)->arena, "%s%s%s", size, end, batch));
  return true;
}

const char *tsr_cuda_blas_error(const tsr_cuda_blas *b) { return (void)b, ""; }

/* ---- fp8_quantize.cu, fp8_gemm.cu ---- */

void tsr_cuda_fp8_quantize(
    tsr_cuda_stream s, tsr_cuda_type type, uint8_t *codes, float *scales, const void *x,
    const tsr_cuda_fp8_operand *o) {
  UNUSED(&type, codes, scales, x);
  if (o->layout.rows * o->layout.cols * o->count > 0)
    record(s, "fp8_quantize", launch_fp8_quantize(o));
}
void tsr_cuda_run_fp8_gemm(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_fp8_gemm *p) {
  UNUSED(&type);
  if (p->M > 0 && p->N > 0)
    record_tile(s, "fp8_gemm", launch_fp8_gemm(p->M, p->N), product(s, p->M, p->N, p->K));
}

/* ---- elementwise.cu, dropout.cu, rope.cu ---- */

static void map(tsr_cuda_stream s, tsr_cuda_type type, int64_t n) {
  if (n > 0) record(s, "map", launch_elements(n, type));
}
static void rows(tsr_cuda_stream s, const char *kernel, int64_t R, int64_t C) {
  if (R > 0 && C > 0) record(s, kernel, launch_rows(R, C));
}

static void norm_rows(tsr_cuda_stream s, const char *kernel, int64_t R, int64_t C) {
  if (R > 0 && C > 0) record(s, kernel, launch_norm_rows(R, C));
}

#define PAIR(name)                                                                                 \
  void tsr_cuda_##name(                                                                            \
      tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *a, const void *b, int64_t n) { \
    UNUSED(out, a, b);                                                                             \
    map(s, type, n);                                                                               \
  }
PAIR(add)
PAIR(sub)
PAIR(mul)

void tsr_cuda_scale(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, float factor, int64_t n) {
  UNUSED(out, x, &factor);
  map(s, type, n);
}
void tsr_cuda_unary(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *out, const void *x, int64_t n) {
  UNUSED(&kind, out, x);
  map(s, type, n);
}
void tsr_cuda_unary_backward(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *dx, const void *dy, const void *x,
    int64_t n) {
  UNUSED(&kind, dx, dy, x);
  map(s, type, n);
}
void tsr_cuda_gated(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *out, const void *gate,
    const void *up, int64_t n) {
  UNUSED(&kind, out, gate, up);
  map(s, type, n);
}
void tsr_cuda_gated_backward(
    tsr_cuda_stream s, tsr_cuda_type type, tsr_unary kind, void *dgate, void *dup, const void *dout,
    const void *gate, const void *up, int64_t n) {
  UNUSED(&kind, dgate, dup, dout, gate, up);
  if (n > 0) record(s, "gated_backward", launch_elements(n, type));
}

void tsr_cuda_clamped_swiglu(
    tsr_cuda_stream s, tsr_cuda_type type, float alpha, float limit, void *out, const void *gate,
    const void *up, int64_t n) {
  UNUSED(&alpha, &limit, out, gate, up);
  if (n > 0) record(s, "clamped_swiglu", launch_elements(n, type));
}
void tsr_cuda_clamped_swiglu_backward(
    tsr_cuda_stream s, tsr_cuda_type type, float alpha, float limit, void *dgate, void *dup,
    const void *dout, const void *gate, const void *up, int64_t n) {
  UNUSED(&alpha, &limit, dgate, dup, dout, gate, up);
  if (n > 0) record(s, "clamped_swiglu_backward", launch_elements(n, type));
}

void tsr_cuda_add_row(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C) {
  UNUSED(&type, out, x, row);
  rows(s, "row_map", R, C);
}
void tsr_cuda_mul_row(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, const void *row, int64_t R,
    int64_t C) {
  tsr_cuda_add_row(s, type, out, x, row, R, C);
}
void tsr_cuda_epilogue(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, void *sum, const void *x, const void *row,
    const void *plus, bool gelu, int64_t R, int64_t C) {
  UNUSED(&type, out, sum, x, row, plus, &gelu);
  rows(s, "row_epilogue", R, C);
}
void tsr_cuda_cast(
    tsr_cuda_stream s, tsr_cuda_type to, void *out, tsr_cuda_type from, const void *x, int64_t n) {
  UNUSED(&to, out, &from, x);
  if (n > 0) record(s, "cast", launch_cast(n));
}

void tsr_cuda_casts(
    tsr_cuda_stream s, tsr_cuda_type to, tsr_cuda_type from, const tsr_cuda_cast_pair *pairs,
    int count) {
  int64_t blocks = 0;
  UNUSED(&to, &from);
  for (int i = 0; i < count; i++) blocks += launch_update_blocks(pairs[i].n);
  if (blocks) record(s, "casts", launch_updates(blocks));
}

void tsr_cuda_nf4_decode(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const tsr_quantized_layout *l,
    const void *data) {
  UNUSED(&type, out, data);
  if (l->rows * l->cols > 0) record(s, "nf4_decode", launch_nf4(l->rows * l->cols));
}

void tsr_cuda_dropout(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, float p, const uint64_t *key,
    const tsr_tensor_slice *slice) {
  int64_t n = 1;
  UNUSED(&type, y, x, &p, key);
  for (int d = 0; d < slice->ndim; d++) n *= slice->shape[d];
  if (n > 0) record(s, "dropout", launch_dropout(n));
}

void tsr_cuda_rope_cached(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table,
    const int32_t *positions, int64_t table_rows, int64_t B, const tsr_rope *r) {
  UNUSED(positions, &table_rows);
  bool packed = launch_rope_is_packed(r, y, x, table);
  int64_t heads = B * r->T * r->H, each = r->rotary / 2 + launch_rope_kept(r, y == x);
  if (heads * each > 0) record(s, "rope", launch_rope(heads, r, type, packed, y == x));
}
void tsr_cuda_rope(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table, int64_t B,
    const tsr_rope *r) {
  tsr_cuda_rope_cached(s, type, y, x, table, NULL, INT64_MAX, B, r);
}

/* ---- norm.cu ---- */

void tsr_cuda_layernorm(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, float *mean, float *rstd, void *x,
    const tsr_cuda_summands *sum, const void *w, const void *b, int64_t R, int64_t C, float eps) {
  UNUSED(&type, y, mean, rstd, x, sum, w, b, &eps);
  norm_rows(s, "layernorm", R, C);
}
void tsr_cuda_rmsnorm(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, float *rstd, void *x,
    const tsr_cuda_summands *sum, const void *w, float offset, int64_t R, int64_t C, float eps) {
  UNUSED(&type, y, rstd, x, sum, w, &offset, &eps);
  norm_rows(s, "rmsnorm", R, C);
}
void tsr_cuda_layernorm_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *x, const void *w,
    const float *mean, const float *rstd, const void *plus, int64_t R, int64_t C) {
  UNUSED(&type, dx, dy, x, w, mean, rstd, plus);
  norm_rows(s, "layernorm_backward", R, C);
}
void tsr_cuda_rmsnorm_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *x, const void *w,
    float offset, const float *rstd, const void *plus, int64_t R, int64_t C) {
  UNUSED(&type, dx, dy, x, w, &offset, rstd, plus);
  norm_rows(s, "rmsnorm_backward", R, C);
}
void tsr_cuda_softmax(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, int64_t R, int64_t C) {
  UNUSED(&type, y, x);
  norm_rows(s, "softmax", R, C);
}
void tsr_cuda_softmax_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dx, const void *dy, const void *y, int64_t R,
    int64_t C) {
  UNUSED(&type, dx, dy, y);
  norm_rows(s, "softmax_backward", R, C);
}

/* ---- sums.cu ---- */

static void
sum_runs(tsr_cuda_stream s, tsr_cuda_type type, float *out, int64_t C, int64_t summands) {
  if (C <= 0) return;
  if (summands <= 0) {
    tsr_cuda_zero(s, out, C * (int64_t)sizeof *out);
    return;
  }
  record(s, "sum_runs", launch_sum_runs(summands, C, type));
  record(s, "add_runs", launch_add_runs(summands, C));
}

void tsr_cuda_sum_rows(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *x, void *scratch, int64_t C,
    int64_t row_first, int64_t row_step, int64_t summands) {
  UNUSED(x, scratch, &row_first, &row_step);
  sum_runs(s, type, out, C, summands);
}
void tsr_cuda_norm_dw(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *dy, const void *x,
    const float *mean, const float *rstd, void *scratch, int64_t C, int64_t row_first,
    int64_t row_step, int64_t summands) {
  UNUSED(dy, x, mean, rstd, scratch, &row_first, &row_step);
  sum_runs(s, type, out, C, summands);
}

void tsr_cuda_sum_heads(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, int64_t R, int64_t D,
    int64_t heads, tsr_tree_shape tree, int64_t units) {
  UNUSED(&type, out, x, &heads, &tree, &units);
  if (R * D > 0) record(s, "sum_heads", launch_map(R * D));
}

void tsr_cuda_sum(tsr_cuda_stream s, float *out, const float *x, void *scratch, int64_t n) {
  UNUSED(x, scratch);
  if (launch_sum_blocks(n) <= 0) {
    tsr_cuda_zero(s, out, sizeof *out);
    return;
  }
  record(s, "sum_elements", launch_sum_elements(n));
  record(s, "add_blocks", launch_add_blocks(n));
}

/* ---- embedding.cu ---- */

void tsr_cuda_embedding(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const int32_t *tokens,
    tsr_cuda_type table_type, const void *table, int64_t R, int64_t C, int64_t v_begin,
    int64_t v_end) {
  UNUSED(out, tokens, table, &v_begin, &v_end);
  rows(s, table_type == type ? "embedding" : "embedding_cast", R, C);
}
void tsr_cuda_embedding_backward(
    tsr_cuda_stream s, tsr_cuda_type type, float *dtable, const int32_t *tokens, const void *dout,
    const int32_t *row_of, void *scratch, int64_t R, int64_t C, int64_t v_begin, int64_t v_end,
    int64_t padding, tsr_tree_shape tree, int64_t units, int64_t inner) {
  int64_t V = v_end - v_begin;
  UNUSED(&padding, &tree, &type, dtable, tokens, dout, row_of, scratch, &units, &inner);
  if (V <= 0 || C <= 0) return;
  record(s, "counts_clear", launch_map(V));
  if (R > 0) record(s, "tokens_count", launch_map(R));
  record(s, "counts_scan", launch_scan());
  if (R > 0) record(s, "rows_gather", launch_map(R)), record(s, "rows_order", launch_map(R));
  record(s, "tokens_sum", launch_tokens(V, C));
}
void tsr_cuda_rows_by_leaves(
    tsr_cuda_stream s, int32_t *by_leaves, int32_t *row_of, const int32_t *tokens,
    const tsr_cuda_leaves *l) {
  UNUSED(by_leaves, row_of, tokens);
  if (l->rows > 0) record(s, "rows_by_leaves", launch_map(l->rows));
}

/* ---- loss.cu ---- */

void tsr_cuda_softmax_stats(
    tsr_cuda_stream s, float *stats, const float *logits, const int32_t *targets, int64_t R,
    int64_t V_local, int64_t v_begin, int64_t v_valid, int64_t units) {
  UNUSED(stats, logits, targets, &v_begin, &v_valid);
  rows(s, "softmax_stats", R * units, V_local / units);
}
void tsr_cuda_softmax_loss(
    tsr_cuda_stream s, float *row_loss, float *row_stats, const float *stats,
    const int32_t *targets, int64_t R, int64_t units) {
  UNUSED(row_loss, row_stats, stats, targets, &units);
  if (R > 0) record(s, "softmax_loss", launch_map(R));
}
void tsr_cuda_softmax_loss_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *dlogits, const float *logits,
    const float *row_stats, const int32_t *targets, const float *factor, const float *more,
    int64_t R, int64_t V_local, int64_t v_begin, int64_t v_valid) {
  UNUSED(&type, dlogits, logits, row_stats, targets, factor, more, &v_begin, &v_valid);
  rows(s, "softmax_loss_backward", R, V_local);
}
void tsr_cuda_squared_error(
    tsr_cuda_stream s, float *row_loss, const float *x, const float *y, int64_t R, int64_t C) {
  UNUSED(row_loss, x, y);
  if (R > 0) record(s, "squared_error", launch_rows(R, C));
}
void tsr_cuda_squared_error_backward(
    tsr_cuda_stream s, float *dx, const float *x, const float *y, float factor, const float *more,
    int64_t n) {
  UNUSED(dx, x, y, &factor, more);
  if (n > 0) record(s, "squared_error_backward", launch_map(n));
}

/* ---- optimizer.cu ---- */

/* As many weights a launch as it has room for. */
static void record_updates(
    tsr_cuda_stream s, const char *kernel, const tsr_cuda_weight *weights, bool rounded,
    int count) {
  int64_t blocks = 0;
  int in_launch = 0;
  for (int i = 0; i < count; i++) {
    if (weights[i].n <= 0) continue;
    blocks += launch_update_blocks(weights[i].n);
    if (++in_launch < launch_weights_max(rounded)) continue;
    record(s, kernel, launch_updates(blocks));
    blocks = in_launch = 0;
  }
  if (in_launch) record(s, kernel, launch_updates(blocks));
}

void tsr_cuda_adamw(
    tsr_cuda_stream s, const tsr_cuda_adamw_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  UNUSED(o);
  record_updates(s, "adamw", weights, roundings != NULL, count);
}
void tsr_cuda_sgd(
    tsr_cuda_stream s, const tsr_cuda_sgd_options *o, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  UNUSED(o);
  record_updates(s, "sgd", weights, roundings != NULL, count);
}

/* ---- gradient_norm.cu ---- */

void tsr_cuda_gradient_squares(
    tsr_cuda_stream s, const tsr_cuda_gradient *gradients, int count, void *scratch) {
  UNUSED(scratch);
  tsr_launch_shape add = launch_add_squares(gradients, count);
  if (count) record(s, "rectangle_squares", launch_rectangle_squares(gradients, count));
  if (add.grid[0]) record(s, "add_squares", add);
}
void tsr_cuda_join_columns(
    tsr_cuda_stream s, float *out, const tsr_cuda_column *columns, int count, int64_t units,
    int64_t R, int64_t n) {
  UNUSED(out, columns, &n);
  if (units * R * count > 0) record(s, "join_columns", launch_map(units * R * count));
}
void tsr_cuda_clip(
    tsr_cuda_stream s, float *clip, const float *stats, int64_t pieces, int64_t n, float max_norm,
    const float *loss_scale) {
  UNUSED(clip, stats, &pieces, &n, &max_norm, loss_scale);
  record(s, "clip_factor", launch_clip());
}
