/* The backward pass of one block of queries: what plain and context-parallel attention share. */
#ifndef TSR_KERNELS_CPU_ATTENTION_BACKWARD_H
#define TSR_KERNELS_CPU_ATTENTION_BACKWARD_H
#include "kernels/cpu/attention.h"

/* From the scores S and the gradient dP = dout v^T of a row: P = exp(S - max)/sum, and
 * dS = P (dP f - delta) scale with f the dropout factors and delta = dout . out = sum_j P dP f.
 * Leaves P f in `scores` and dS in `grads`; stats are max, sum, delta. */
static inline void backward_row(
    const tsr_attention *a, float *scores, float *grads, const float *factors, const float *stats,
    int64_t n) {
  float max = stats[0], share = 1.0f / stats[1], delta = stats[2], scale = a->scale;
  if (a->dropout == 0) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      float p = real_exp(scores[j] - max) * share;
      scores[j] = p;
      grads[j] = p * (grads[j] - delta) * scale;
    }
    return;
  }
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    float p = real_exp(scores[j] - max) * share;
    scores[j] = p * factors[j];
    grads[j] = p * (grads[j] * factors[j] - delta) * scale;
  }
}

/* p->scores becomes P f and p->grads dS, from the packed queries, douts and the rows' stats
 * (rows, 3); zeros where causality hides the key. */
static inline void block_backward(
    const tsr_attention *a, const attention_parts *p, block part, const float *stats,
    const float *keys_columns, const float *values_columns) {
  block_scores(a, p, part, p->scores, p->queries, keys_columns);
  block_scores(a, p, part, p->grads, p->douts, values_columns);
  for (int64_t r = 0; r < part.rows; r++) {
    float *scores = p->scores + r * p->scores_width, *grads = p->grads + r * p->scores_width;
    int64_t seen = keys_seen(a, part, r);
    if (a->dropout != 0) dropout_row(p->factors, a, part, r, seen);
    backward_row(a, scores, grads, p->factors, stats + 3 * r, seen);
    row_zero(scores, seen, part.keys);
    row_zero(grads, seen, part.keys);
  }
}

/* to (T, D) += weights^T (keys, rows) times rows (rows, D): dk, or dv. */
static inline void block_spread(
    const tsr_attention *a, const attention_parts *p, block part, float *to, int64_t to_stride,
    const float *weights, const float *rows) {
  product sum = {
      .M = round_to(part.keys, TILE_ROWS),
      .N = p->head_width,
      .K = part.rows,
      .a = weights,
      .a_rs = 1,
      .a_cs = p->scores_width,
      .b = rows,
      .c = to,
      .c_rs = to_stride,
      .add = true,
      .band = a->causal ? BAND_QUERIES : BAND_ALL,
      .first = part.first};
  product_run(&sum);
}

#endif
