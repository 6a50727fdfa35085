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

/* From the scores S and the gradient dP = dout v^T of a tile and a vector of queries, with f the
 * factors of dropout: P f in place of S, and in place of dP
 * dS = P (dP f - delta), P = exp(S - max)/sum, delta = dout . out = sum_j P dP f. With a soft cap S
 * is the capped score c tanh(s / c), and dS is times its slope 1 - (S / c)^2. Where queries are not
 * scaled, scores are, and so is dS. */
static inline void tile_gradients(
    const tsr_attention *a, const attention_parts *p, block part, int64_t key, int64_t v,
    float *scores, float *grads, const float *factors) {
  vector max = lanes_load(p->max, (int)v), share = lanes_load(p->share, (int)v);
  vector delta = lanes_load(p->delta, (int)v);
  float scale = scale_left(a);
  bool masked = tile_masked(a, part, v, key);
  EACH_ROW(i) {
    int64_t at = i * QUERIES + v * WIDTH;
    vector score = lanes_load(scores + at, 0) * scale, slope = vector_all(1);
    if (a->soft_cap != 0) {
      vector_store(scores + at, score);
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
    grad *= scale;
    if (masked) {
      vector_mask seen = seen_by(a, part, v, key + i);
      kept = (vector)((vector_mask)kept & seen);
      grad = (vector)((vector_mask)grad & seen);
    }
    vector_store(scores + at, kept);
    vector_store(grads + at, grad);
  }
}

/* What dq is multiplied by at the end: dS lacks the scale where packed queries have it. */
static inline float dq_scale(const tsr_attention *a) { return SCORES_ARE_SCALED ? a->scale : 1; }

/* P f to p->scores and dS to p->grads, for the keys [begin, end) of packed keys and values; zeros
 * where causality hides a key. */
static inline void block_gradients(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end,
    const float *keys, const float *values, fetch *ahead) {
  int64_t vectors = block_vectors(part), D = a->D, Dv = tsr_attention_value_size(a);
  if (a->dropout != 0) block_dropout(a, p, part, begin, end);
  for (int64_t key = begin; key < end; key += TILE_ROWS) {
    int64_t at = (key - begin) * QUERIES, from = vector_first(a, part, key);
    float *scores = p->scores + at, *grads = p->grads + at;
    tile_scores(a, D, part, keys, key, p->queries, scores, NULL, ahead);
    tile_scores(a, Dv, part, values, key, p->douts, grads, NULL, ahead);
    for (int64_t v = from; v < vectors; v++)
      tile_gradients(a, p, part, key, v, scores, grads, p->factors + at);
    for (int64_t i = 0; i < TILE_ROWS && from > 0; i++) {
      row_zero(scores + i * QUERIES, 0, from * WIDTH);
      row_zero(grads + i * QUERIES, 0, from * WIDTH);
    }
  }
}

/* The end of the piece of keys that begins there. */
static inline int64_t piece_end(block part, int64_t begin) {
  return part.keys - begin < PIECE ? part.keys : begin + PIECE;
}

#endif
