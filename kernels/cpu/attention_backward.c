/* Attention backward: the probabilities are computed again, block by block, from the scores and
 * each row's maximum and sum; dK and dV of a group are summed over its query heads and then over
 * the blocks of queries, in that order. */
#include "kernels/cpu/attention.h"
#include <assert.h>
#include <stddef.h>

typedef struct {
  const float *dout, *q, *out, *stats;
  float *dq;
} query_tensors;

/* From the scores S and the gradient dP = dout v^T of a row: P = exp(S - max)/sum, and
 * dS = P (dP f - delta) scale with f the dropout factors and delta = dout . out = sum_j P dP f.
 * Leaves P f in `scores` and dS in `grads`. */
static void backward_row(
    const tsr_attention *a, float *scores, float *grads, const float *factors, const float *stats,
    float delta, int64_t n) {
  float max = stats[0], share = 1.0f / stats[1], scale = a->scale;
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

/* to (T, D) += weights^T (keys, rows) times rows (rows, D): dk, or dv. */
static void block_spread(
    const tsr_attention *a, const attention_parts *p, block part, float *to, const float *weights,
    const float *rows) {
  product sum = {
      .M = round_to(part.keys, TILE_ROWS),
      .N = p->head_width,
      .K = part.rows,
      .a = weights,
      .a_rs = 1,
      .a_cs = p->scores_width,
      .b = rows,
      .c = to,
      .c_rs = p->head_width,
      .add = true,
      .band = a->causal ? BAND_QUERIES : BAND_ALL,
      .first = part.first};
  product_run(&sum);
}

static void backward_block(
    const tsr_attention *a, const attention_parts *p, head at, block part, const query_tensors *t) {
  int64_t start = at.q_start + part.first * at.q_stride, D = a->D;
  const float *q = t->q + start, *dout = t->dout + start, *out = t->out + start;
  const float *stats = t->stats + ((at.b * a->H + at.h) * a->T + part.first) * 2;
  pack_block(p->queries, q, at.q_stride, a->scale, part.rows, D);
  pack_block(p->douts, dout, at.q_stride, 1, part.rows, D);
  pack_rows(p->queries_rows, q, at.q_stride, part.rows, D);
  pack_rows(p->douts_rows, dout, at.q_stride, part.rows, D);
  block_scores(a, p, part, p->scores, p->queries, p->keys_columns);
  block_scores(a, p, part, p->grads, p->douts, p->values_columns);
  for (int64_t r = 0; r < part.rows; r++) {
    float *scores = p->scores + r * p->scores_width, *grads = p->grads + r * p->scores_width;
    int64_t seen = keys_seen(a, part, r);
    if (a->dropout != 0) dropout_row(p->factors, a, at, part.first + r, seen);
    float delta = row_dot(dout + r * at.q_stride, out + r * at.q_stride, D);
    backward_row(a, scores, grads, p->factors, stats + 2 * r, delta, seen);
    row_zero(scores, seen, part.keys);
    row_zero(grads, seen, part.keys);
  }
  block_spread(a, p, part, p->dk, p->grads, p->queries_rows);
  block_spread(a, p, part, p->dv, p->scores, p->douts_rows);
  block_weigh(a, p, part, p->grads, p->keys_rows);
  for (int64_t r = 0; r < part.rows; r++)
    memcpy(t->dq + start + r * at.q_stride, p->rows + r * p->head_width, (size_t)D * sizeof(float));
}

void LEVEL(attention_backward)(
    const tsr_attention *a, float *dq, float *dk, float *dv, const float *dout, const float *q,
    const float *k, const float *v, const float *out, const float *stats, void *scratch,
    int64_t begin, int64_t end) {
  assert(a->H % a->G == 0);
  query_tensors tensors = {dout, q, out, stats, dq};
  int64_t heads = a->H / a->G;
  attention_parts p;
  attention_layout(a, scratch, &p);
  for (int64_t item = begin; item < end; item++) {
    int64_t b = item / a->G, h_first = item % a->G * heads;
    head at = head_at(a, b, h_first);
    pack_columns(p.keys_columns, k + at.k_start, at.k_stride, a->D, a->T);
    pack_columns(p.values_columns, v + at.k_start, at.k_stride, a->D, a->T);
    pack_rows(p.keys_rows, k + at.k_start, at.k_stride, a->T, a->D);
    row_zero(p.dk, 0, a->T * p.head_width);
    row_zero(p.dv, 0, a->T * p.head_width);
    for (int64_t h = h_first; h < h_first + heads; h++)
      for (int64_t first = 0; first < a->T; first += QUERIES)
        backward_block(a, &p, head_at(a, b, h), block_at(a, first), &tensors);
    for (int64_t t = 0; t < a->T; t++) {
      int64_t to = at.k_start + t * at.k_stride;
      memcpy(dk + to, p.dk + t * p.head_width, (size_t)a->D * sizeof(float));
      memcpy(dv + to, p.dv + t * p.head_width, (size_t)a->D * sizeof(float));
    }
  }
}
