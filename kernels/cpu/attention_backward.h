// SPDX-License-Identifier: Apache-2.0
/* The backward pass of one block of queries: what plain and context-parallel attention share. */
#ifndef TSR_KERNELS_CPU_ATTENTION_BACKWARD_H
#define TSR_KERNELS_CPU_ATTENTION_BACKWARD_H
#include "kernels/cpu/attention.h"

/* A block's statistics: p->max, p->share = 1 / the sum, and p->delta = dout . out; what pads the
 * rows has the share 0. Row r's are at rows[3 * r]. */
static inline void block_statistics(const attention_parts *p, block part, const float *rows) {
  for (int64_t r = 0; r < QUERIES; r++) {
    bool real = r < part.rows;
    p->max[r] = real ? rows[3 * r] : 0;
    p->share[r] = real ? 1.0f / rows[3 * r + 1] : 0;
    p->delta[r] = real ? rows[3 * r + 2] : 0;
  }
}

/* A block's queries and gradients of out, packed; as rows too where dk and dv are wanted. The scale
 * is in the queries. */
static inline void block_pack(
    const tsr_attention *a, const attention_parts *p, block part, const float *q, const float *dout,
    const head *at, bool rows) {
  int64_t Dv = tsr_attention_value_size(a), panel = QUERIES * PANEL;
  pack_columns(p->queries, q, at->q_stride, a->scale, a->D, part.rows);
  pack_columns(p->douts, dout, at->out_stride, 1, Dv, part.rows);
  if (!rows) return;
  pack_rows(p->queries_rows, panel, q, at->q_stride, a->scale, part.rows, a->D);
  pack_rows(p->douts_rows, panel, dout, at->out_stride, 1, part.rows, Dv);
}

/* From the scores S and the gradient dP = dout v^T of a tile and a vector of queries, with f the
 * factors of dropout: P f in place of S, and in place of dP
 * dS = P (dP f - delta), P = exp(S - max)/sum, delta = dout . out = sum_j P dP f. With a soft cap S
 * is the capped score c tanh(s / c), and dS is times its slope 1 - (S / c)^2. */
static inline void tile_gradients(
    const tsr_attention *a, const attention_parts *p, block part, int64_t key, int64_t v,
    float *scores, float *grads, const float *factors) {
  vector max = lanes_load(p->max, (int)v), share = lanes_load(p->share, (int)v);
  vector delta = lanes_load(p->delta, (int)v);
  bool masked = tile_masked(a, part, v, key);
  EACH_ROW(i) {
    int64_t at = i * QUERIES + v * WIDTH;
    vector score = lanes_load(scores + at, 0), slope = vector_all(1);
    if (a->soft_cap != 0) {
      row_cap(scores + at, a->soft_cap, WIDTH);
      score = lanes_load(scores + at, 0);
      vector tanh = score / a->soft_cap;
      slope = vector_fused(-tanh, tanh, slope);
    }
    vector x = vector_exp(score - max) * share;
    vector kept = x, grad = lanes_load(grads + at, 0);
    if (a->dropout != 0) {
      vector factor = lanes_load(factors + at, 0);
      kept = x * factor;
      grad *= factor;
    }
    grad = x * (grad - delta);
    if (a->soft_cap != 0) grad *= slope;
    if (masked) {
      vector_mask seen = seen_by(a, part, v, key + i);
      kept = (vector)((vector_mask)kept & seen);
      grad = (vector)((vector_mask)grad & seen);
    }
    vector_store(scores + at, kept);
    vector_store(grads + at, grad);
  }
}

/* P f to p->scores and dS to p->grads, for the keys [begin, end) of packed keys and values; zeros
 * where causality hides a key. dS lacks the scale: packed queries have it, dq gets it at the end.
 */
static inline void block_gradients(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end,
    const float *keys, const float *values, fetch *ahead) {
  int64_t vectors = block_vectors(part), D = a->D, Dv = tsr_attention_value_size(a);
  if (a->dropout != 0) block_dropout(a, p, part, begin, end);
  for (int64_t key = begin; key < end; key += TILE_ROWS) {
    int64_t at = (key - begin) * QUERIES, from = vector_first(a, part, key);
    float *scores = p->scores + at, *grads = p->grads + at;
    tile_scores(D, part, keys + key * D, from, p->queries, scores, NULL, ahead);
    tile_scores(Dv, part, values + key * Dv, from, p->douts, grads, NULL, ahead);
    for (int64_t v = from; v < vectors; v++)
      tile_gradients(a, p, part, key, v, scores, grads, p->factors + at);
    for (int64_t i = 0; i < TILE_ROWS && from > 0; i++) {
      row_zero(scores + i * QUERIES, 0, from * WIDTH);
      row_zero(grads + i * QUERIES, 0, from * WIDTH);
    }
  }
}

/* to (keys, width) += weights (keys, queries) times packed rows (queries, width), for the keys
 * [begin, end): dk, or dv. */
static inline void block_spread(
    const tsr_attention *a, block part, int64_t begin, int64_t end, float *to, int64_t to_stride,
    int64_t width, const float *weights, const float *rows) {
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

/* The end of the piece of keys that begins there. */
static inline int64_t piece_end(block part, int64_t begin) {
  return part.keys - begin < PIECE ? part.keys : begin + PIECE;
}

#endif
