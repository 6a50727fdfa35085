/* Attention backward: the probabilities are computed again, block by block, from the scores and
 * each row's maximum and sum; dK and dV of a group are summed over its query heads and then over
 * the blocks of queries, in that order. */
#include "kernels/cpu/attention_backward.h"
#include <assert.h>

typedef struct {
  const float *dout, *q, *out, *stats;
  float *dq;
} query_tensors;

/* In the scratch after the parts. */
typedef struct {
  float *rows;    /* (QUERIES, head_width): dq */
  float *dk, *dv; /* (T, head_width), rows padded to tiles */
} gradients;

static void backward_block(
    const tsr_attention *a, const attention_parts *p, const gradients *sums, head at, block part,
    const query_tensors *t) {
  int64_t start = at.q_start + part.first * at.q_stride, D = a->D, width = p->head_width;
  const float *q = t->q + start, *dout = t->dout + start, *out = t->out + start;
  const float *stats = t->stats + ((at.b * a->H + at.h) * a->T + part.first) * 2;
  pack_block(p->queries, q, at.q_stride, a->scale, part.rows, D);
  pack_block(p->douts, dout, at.q_stride, 1, part.rows, D);
  pack_rows(p->queries_rows, q, at.q_stride, part.rows, D);
  pack_rows(p->douts_rows, dout, at.q_stride, part.rows, D);
  for (int64_t r = 0; r < part.rows; r++) {
    memcpy(p->stats + 3 * r, stats + 2 * r, 2 * sizeof *stats);
    p->stats[3 * r + 2] = row_dot(dout + r * at.q_stride, out + r * at.q_stride, D);
  }
  block_backward(a, p, part, p->stats, p->keys_columns, p->values_columns);
  block_spread(a, p, part, sums->dk, width, p->grads, p->queries_rows);
  block_spread(a, p, part, sums->dv, width, p->scores, p->douts_rows);
  block_weigh(a, p, part, sums->rows, width, p->grads, p->keys_rows);
  for (int64_t r = 0; r < part.rows; r++)
    memcpy(t->dq + start + r * at.q_stride, sums->rows + r * width, (size_t)D * sizeof(float));
}

void LEVEL(attention_backward)(
    const tsr_attention *a, float *dq, float *dk, float *dv, const float *dout, const float *q,
    const float *k, const float *v, const float *out, const float *stats, void *scratch,
    int64_t begin, int64_t end) {
  assert(a->H % a->G == 0);
  query_tensors tensors = {dout, q, out, stats, dq};
  int64_t heads = a->H / a->G, size_padded = round_to(a->T, TILE_ROWS);
  attention_parts p;
  attention_layout(a, 1, scratch, &p);
  float *gradients_at = p.sums + QUERIES * p.head_width;
  gradients sums = {p.sums, gradients_at, gradients_at + size_padded * p.head_width};
  for (int64_t item = begin; item < end; item++) {
    int64_t b = item / a->G, h_first = item % a->G * heads;
    head at = head_at(a, b, h_first);
    pack_columns(p.keys_columns, k + at.k_start, at.k_stride, a->D, a->T);
    pack_columns(p.values_columns, v + at.k_start, at.k_stride, a->D, a->T);
    pack_rows(p.keys_rows, k + at.k_start, at.k_stride, a->T, a->D);
    row_zero(sums.dk, 0, a->T * p.head_width);
    row_zero(sums.dv, 0, a->T * p.head_width);
    for (int64_t h = h_first; h < h_first + heads; h++)
      for (int64_t first = 0; first < a->T; first += QUERIES) {
        head query = head_at(a, b, h);
        backward_block(a, &p, &sums, query, block_at(a, query, first), &tensors);
      }
    for (int64_t t = 0; t < a->T; t++) {
      int64_t to = at.k_start + t * at.k_stride;
      memcpy(dk + to, sums.dk + t * p.head_width, (size_t)a->D * sizeof(float));
      memcpy(dv + to, sums.dv + t * p.head_width, (size_t)a->D * sizeof(float));
    }
  }
}
