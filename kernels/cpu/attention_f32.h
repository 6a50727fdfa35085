// SPDX-License-Identifier: Apache-2.0
/* The GEMMs of a block of queries in f32, and what they read, packed (attention_gemm.h). */
#ifndef TSR_KERNELS_CPU_ATTENTION_F32_H
#define TSR_KERNELS_CPU_ATTENTION_F32_H
#include "kernels/cpu/attention_block.h"

/* Packs the keys and values [begin, end) of a run, of which k and v are the first. `at`: their
 * strides. */
static inline void pack_keys(
    const tsr_attention *a, const attention_parts *p, packing kind, int64_t run, const number *k,
    const number *v, const head *at, int64_t begin, int64_t end) {
  int64_t n = end - begin, D = a->D, Dv = tsr_attention_value_size(a);
  int64_t padded = round_to(end, TILE_ROWS), first = begin * PANEL;
  float *keys = p->keys + run * p->run, *values = p->values + run * p->values_run;
  k += begin * at->k_stride;
  v += begin * at->v_stride;
  pack_lines(keys + begin * D, k, at->k_stride, n, D);
  row_zero(keys, end * D, padded * D);
  if (kind == PACK_OUT) {
    float *rows = p->values_rows + run * p->values_rows_run + first;
    pack_rows(rows, p->panel, v, at->v_stride, 1, n, Dv);
    return;
  }
  pack_lines(values + begin * Dv, v, at->v_stride, n, Dv);
  row_zero(values, end * Dv, padded * Dv);
  if (kind != PACK_DKV)
    pack_rows(p->keys_rows + run * p->rows_run + first, p->panel, k, at->k_stride, 1, n, D);
}

/* The scale is in the queries. */
static inline void pack_queries(
    const tsr_attention *a, const attention_parts *p, const number *q, int64_t stride,
    int64_t rows) {
  pack_columns(p->queries, q, stride, a->scale, a->D, rows);
}

/* A block's queries and gradients of out, packed; as rows too where dk and dv are wanted. */
static inline void block_pack(
    const tsr_attention *a, const attention_parts *p, block part, const number *q,
    const number *dout, const head *at, bool rows) {
  int64_t Dv = tsr_attention_value_size(a), panel = QUERIES * PANEL;
  pack_queries(a, p, q, at->q_stride, part.rows);
  pack_columns(p->douts, dout, at->out_stride, 1, Dv, part.rows);
  if (!rows) return;
  pack_rows(p->queries_rows, panel, q, at->q_stride, a->scale, part.rows, a->D);
  pack_rows(p->douts_rows, panel, dout, at->out_stride, 1, part.rows, Dv);
}

/* to (TILE_ROWS, QUERIES) = packed keys, or values, of a tile times packed columns (D, queries),
 * for the vectors that see it; max may be NULL. D: of the keys, or Dv. */
static inline void tile_scores(
    const tsr_attention *a, int64_t D, block part, const float *keys, int64_t key,
    const float *columns, float *to, float *max, fetch *ahead) {
  int64_t vectors = block_vectors(part);
  const float *x = keys + key * D;
  for (int64_t v = vector_first(a, part, key); v < vectors;) {
    int64_t in_panel = v % TILE_VECTORS, wide = TILE_VECTORS - in_panel;
    if (wide > vectors - v) wide = vectors - v;
    const float *panel = columns + v / TILE_VECTORS * D * PANEL;
    fetch_some(ahead, D);
    tile_dot(
        (int)wide, x, panel + in_panel * WIDTH, to + v * WIDTH, D, max ? max + v * WIDTH : NULL);
    v += wide;
  }
}

/* Before the first call of block_weigh, and after the last one. */
static inline void
weigh_begin(const attention_parts *p, block part, float *to, int64_t to_stride, int64_t width) {
  (void)p;
  for (int64_t r = 0; r < round_to(part.rows, TILE_ROWS); r++)
    row_zero(to + r * to_stride, 0, width);
}

/* to (queries, width) += weights (keys, queries) turned, times packed rows (keys, width) of the
 * keys [begin, end): out, or dq. */
static inline void block_weigh(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end,
    float *to, int64_t to_stride, int64_t width, const float *weights, const float *rows) {
  gemm sum = {
      .M = round_to(part.rows, TILE_ROWS),
      .N = width,
      .K = end - begin,
      .a = weights,
      .b = rows + begin * PANEL,
      .panel = p->panel,
      .c = to,
      .c_rs = to_stride,
      .causal = a->causal,
      .shift = part.first - begin};
  gemm_weigh(&sum);
}

static inline void
weigh_end(const attention_parts *p, block part, float *to, int64_t to_stride, int64_t width) {
  (void)p, (void)part, (void)to, (void)to_stride, (void)width;
}

/* to (keys, width) += weights (keys, queries) times packed rows (queries, width), for the keys
 * [begin, end): dk, or dv. */
static inline void block_spread(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end,
    float *to, int64_t to_stride, int64_t width, const float *weights, const float *rows) {
  (void)p;
  gemm sum = {
      .M = round_to(end - begin, TILE_ROWS),
      .N = width,
      .K = part.rows,
      .a = weights,
      .b = rows,
      .panel = QUERIES * PANEL,
      .c = to + begin * to_stride,
      .c_rs = to_stride,
      .causal = a->causal,
      .shift = part.first - begin};
  gemm_spread(&sum);
}

#endif
