// SPDX-License-Identifier: Apache-2.0
/* The recorder's attention, copies and collectives. */
#include "device/cuda/launch_recorder.h"
#include "kernels/cuda/attention_shape.h"
#include "kernels/cuda/copy_walk.h"
#include "kernels/cuda/ring_turns.h"

/* ---- attention.cu, attention_backward.cu, attention_wgmma.cu, attention_wgmma_backward.cu ---- */

static attention_tile tile_of(tsr_attention_sum pass, bool tensor, const tsr_attention *a) {
  return tensor ? tensor_tile(pass, tensor_width(a)) : simt_tile(pass, simt_width(a));
}

static int dkv_passes(bool tensor, const tsr_attention *a) {
  return tensor ? tensor_dkv_passes(tensor_width(a)) : 1;
}

static void record_pass(
    tsr_cuda_stream s, const char *kernel, const attention_tile *t, int64_t T, int64_t lines) {
  record_tile(s, kernel, launch_attention(t, T, lines), product(s, t->own, t->others, t->width));
}

void tsr_cuda_attention(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *out,
    float *stats, const void *q, const void *k, const void *v) {
  const void *arrays[] = {out, q, k, v};
  UNUSED(key, stats);
  if (a->B * a->T * a->H * a->D == 0) return;
  bool tensor = attention_tensor_can(type, a, arrays, 4);
  attention_tile tile = tile_of(TSR_ATTENTION_OUT, tensor, a);
  record_pass(
      s, tensor ? "attention_tensor_forward" : "attention_forward", &tile, tsr_attention_own(a),
      a->B * a->H);
}

void tsr_cuda_attention_wgmma(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *out, float *stats,
    const void *q, const void *k, const void *v) {
  attention_tile tile = wgmma_tile((int)a->D);
  UNUSED(&type, out, stats, q, k, v);
  if (a->B * a->T * a->H * a->D == 0) return;
  record_pass(s, "attention_wgmma_forward", &tile, tsr_attention_own(a), a->B * a->H);
}

void tsr_cuda_attention_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *dq,
    void *dk, void *dv, const void *dout, const void *q, const void *k, const void *v,
    const void *out, const float *stats, void *scratch) {
  const void *arrays[] = {dq, dk, dv, dout, q, k, v};
  UNUSED(key, out, stats, scratch);
  if (a->B * a->T * a->H * a->D == 0) return;
  record(s, "attention_delta", launch_attention_rows(a->B * a->H * a->T));
  bool tensor = attention_tensor_can(type, a, arrays, 7);
  attention_tile of_keys = tile_of(TSR_ATTENTION_DKV, tensor, a),
                 of_queries = tile_of(TSR_ATTENTION_DQ, tensor, a);
  int64_t own = tsr_attention_own(a);
  for (int n = 0; n < dkv_passes(tensor, a); n++)
    record_pass(s, tensor ? "attention_tensor_dkv" : "attention_dkv", &of_keys, own, a->B * a->G);
  record_pass(s, tensor ? "attention_tensor_dq" : "attention_dq", &of_queries, own, a->B * a->H);
}

void tsr_cuda_attention_wgmma_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *dq, void *dk, void *dv,
    const void *dout, const void *q, const void *k, const void *v, const void *out,
    const float *stats, void *scratch) {
  attention_tile tile = wgmma_backward_tile((int)a->D);
  UNUSED(&type, dq, dk, dv, dout, q, k, v, out, stats, scratch);
  if (a->B * a->T * a->H * a->D == 0) return;
  record(s, "attention_delta", launch_attention_rows(a->B * a->H * a->T));
  record_pass(s, "attention_wgmma_backward", &tile, tsr_attention_own(a), a->B * a->G);
  record_pass(s, "attention_wgmma_backward", &tile, tsr_attention_own(a), a->B * a->H);
}

void tsr_cuda_attention_cached(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_cached *c, void *out, const void *q,
    const void *keys, const void *values) {
  UNUSED(&type, out, q, keys, values);
  if (c->a.B * c->a.T * c->a.H * c->a.D == 0) return;
  record(s, "attention_cached", launch_attention_cached(&c->a));
}

/* ---- attention_ring.cu ---- */

typedef struct {
  tsr_cuda_stream stream;
  const attention_tile *tile;
  int64_t T, lines;
} ring_launch;

static void record_turns(void *context, const ring_turns *turns) {
  const ring_launch *l = context;
  UNUSED(turns);
  record_pass(l->stream, "ring_walk", l->tile, l->T, l->lines);
}

static void ring_step(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, tsr_attention_sum pass,
    const void *const arrays[4]) {
  if (r->a.B * r->a.T * r->a.H * r->a.D == 0) return;
  bool tensor = attention_ring_tensor_can(type, &r->a, arrays, 4);
  attention_tile tile = tile_of(pass, tensor, &r->a);
  tsr_cuda_ring_size size = tsr_cuda_ring_size_of(r, pass);
  tsr_ring map = ring_map_of(r, pass);
  int passes = pass == TSR_ATTENTION_DKV ? dkv_passes(tensor, &r->a) : 1;
  int64_t most = size.lines_at_once;
  for (int n = 0; n < passes; n++)
    for (int64_t line = 0; line < size.lines; line += most) {
      int64_t left = size.lines - line, lines = left < most ? left : most;
      ring_launch launch = {s, &tile, size.unit, lines * size.runs};
      ring_each_turns(&map, r->step, record_turns, &launch);
    }
}

void tsr_cuda_attention_ring(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *q, const void *k, const void *v, void *scratch) {
  UNUSED(key, acc, scratch);
  ring_step(s, type, r, TSR_ATTENTION_OUT, (const void *const[4]){q, k, v, NULL});
}
void tsr_cuda_attention_ring_dq(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *dout, const void *q, const void *k, const void *v, const float *rows,
    void *scratch) {
  UNUSED(key, acc, rows, scratch);
  ring_step(s, type, r, TSR_ATTENTION_DQ, (const void *const[4]){q, k, v, dout});
}
void tsr_cuda_attention_ring_dkv(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *dout, const void *q, const float *rows, const void *k, const void *v,
    void *scratch) {
  UNUSED(key, acc, rows, scratch);
  ring_step(s, type, r, TSR_ATTENTION_DKV, (const void *const[4]){q, k, v, dout});
}

void tsr_cuda_attention_sinks_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *d, const void *dout,
    const void *out, const float *stats) {
  int64_t n = a->B * a->H * a->T;
  UNUSED(&type, d, dout, out, stats);
  if (n > 0) record(s, "attention_sinks", launch_attention_rows(n));
}

void tsr_cuda_attention_ring_rows(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, float *rows,
    const void *dout, const void *out, const float *stats) {
  int64_t n = r->a.B * r->a.H * r->a.T;
  UNUSED(&type, rows, dout, out, stats);
  if (n > 0) record(s, "ring_rows", launch_attention_rows(n));
}

static void ring_finish(tsr_cuda_stream s, const tsr_attention_ring *r, tsr_attention_sum pass) {
  tsr_cuda_ring_size size = tsr_cuda_ring_size_of(r, pass);
  int64_t n = size.lines * r->a.T * size.sums;
  if (n > 0) record(s, "ring_finish", launch_map(n));
}

void tsr_cuda_attention_ring_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *out, float *stats,
    const float *acc) {
  UNUSED(&type, out, stats, acc);
  ring_finish(s, r, TSR_ATTENTION_OUT);
}
void tsr_cuda_attention_ring_dq_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *dq,
    const float *acc) {
  UNUSED(&type, dq, acc);
  ring_finish(s, r, TSR_ATTENTION_DQ);
}
void tsr_cuda_attention_ring_dkv_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *dk, void *dv,
    const float *acc) {
  UNUSED(&type, dk, dv, acc);
  ring_finish(s, r, TSR_ATTENTION_DKV);
}

/* ---- kv_cache.cu ---- */

static void
rows_move(tsr_cuda_stream s, const void *out, const void *x, int64_t bytes, int64_t rows) {
  int64_t n = rows * (bytes / copy_row_element(out, x, bytes));
  if (n > 0) record(s, "rows_move", launch_map(n));
}

void tsr_cuda_kv_cache_append(
    tsr_cuda_stream s, void *out, const void *x, const int32_t *positions, const int32_t *counts,
    const tsr_cuda_pages *pages, int64_t bytes, int64_t B, int64_t C) {
  UNUSED(positions, counts, pages);
  rows_move(s, out, x, bytes, B * C);
}
void tsr_cuda_gather_rows(
    tsr_cuda_stream s, void *out, const void *table, const int32_t *positions, int64_t bytes,
    int64_t B, int64_t C, int64_t rows, int64_t first) {
  UNUSED(positions, &rows, &first);
  rows_move(s, out, table, bytes, B * C);
}
void tsr_cuda_slice_last(
    tsr_cuda_stream s, void *out, const void *x, const int32_t *counts, int64_t bytes, int64_t B,
    int64_t C) {
  UNUSED(counts, &C);
  rows_move(s, out, x, bytes, B);
}

/* ---- data_movement.cu, collective.cu ---- */

void tsr_cuda_zero(tsr_cuda_stream s, void *out, int64_t bytes) {
  UNUSED(out, &bytes);
  record_library(s, "cudaMemset", "");
}
void tsr_cuda_move(
    tsr_cuda_stream s, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  copy_walk w = copy_walk_new(bytes, ndim, shape, out_step, x_step);
  if (w.n <= 0) return;
  copy_walk_widen(&w, out, x);
  record(s, "copy", launch_map(w.n));
}
void tsr_cuda_gather(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start) {
  tsr_cuda_move(s, out, NULL, (const char *)x + start * bytes, step, bytes, ndim, shape);
}
void tsr_cuda_scatter(
    tsr_cuda_stream s, void *out, const void *x, int bytes, int ndim, const int64_t *shape,
    const int64_t *step, int64_t start) {
  tsr_cuda_move(s, (char *)out + start * bytes, step, x, NULL, bytes, ndim, shape);
}

void tsr_cuda_sum_members(tsr_cuda_stream s, const tsr_members_sum *sum) {
  int64_t n = sum->outer * sum->part;
  if (n > 0) record(s, "sum_members", launch_map(n));
}
