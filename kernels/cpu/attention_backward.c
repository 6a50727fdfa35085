// SPDX-License-Identifier: Apache-2.0
/* Attention backward: the probabilities are computed again, block by block, from the scores and
 * each row's maximum and sum; dK and dV of a group are summed over its query heads and then over
 * the blocks of queries, in that order. */
#include "kernels/cpu/attention_backward.h"
#include <assert.h>

typedef struct {
  const float *dout, *q, *k, *v, *out, *stats;
  float *dq;
  float *dq_rows; /* (QUERIES, head_width) in the scratch */
  float *dk, *dv; /* (T, head_width) and (T, value_width) there, rows padded to tiles */
  int64_t packed; /* keys */
} backward;

/* What the block after this one reads, and what this one writes. */
static fetch ahead_of(const tsr_attention *a, const backward *w, head at, block part) {
  fetch ahead = {.count = 0};
  int64_t next = part.first + part.rows, left = a->T - next;
  fetch_add(&ahead, w->dq + at.q_start, at.q_stride, part.first, part.rows);
  fetch_add(&ahead, w->q + at.q_start, at.q_stride, next, left);
  fetch_add(&ahead, w->dout + at.out_start, at.out_stride, next, left);
  fetch_add(&ahead, w->out + at.out_start, at.out_stride, next, left);
  fetch_add(&ahead, w->k + at.k_start, at.k_stride, w->packed, a->T - w->packed);
  fetch_add(&ahead, w->v + at.v_start, at.v_stride, w->packed, a->T - w->packed);
  return ahead;
}

static void
block_prepare(const tsr_attention *a, const attention_parts *p, backward *w, head at, block part) {
  int64_t start = at.q_start + part.first * at.q_stride;
  int64_t out_start = at.out_start + part.first * at.out_stride;
  const float *stats = w->stats + ((at.b * a->H + at.h) * a->T + part.first) * 2;
  float rows[3 * QUERIES];
  for (int64_t r = 0; r < part.rows; r++) {
    int64_t row = out_start + r * at.out_stride;
    memcpy(rows + 3 * r, stats + 2 * r, 2 * sizeof *stats);
    rows[3 * r + 2] = row_dot(w->dout + row, w->out + row, tsr_attention_value_size(a));
  }
  block_statistics(p, part, rows);
  block_pack(a, p, part, w->q + start, w->dout + out_start, &at, true);
  if (w->packed >= part.keys) return;
  pack_keys(
      a, p, PACK_GRADIENTS, 0, w->k + at.k_start, w->v + at.v_start, &at, w->packed, part.keys);
  w->packed = part.keys;
}

static void
backward_block(const tsr_attention *a, const attention_parts *p, backward *w, head at, block part) {
  int64_t start = at.q_start + part.first * at.q_stride, width = p->head_width;
  block_prepare(a, p, w, at, part);
  fetch ahead = ahead_of(a, w, at, part);
  fetch_share(&ahead, part);
  block_zero(part, w->dq_rows, width, width);
  for (int64_t begin = part.begin, end; begin < part.keys; begin = end) {
    end = piece_end(part, begin);
    block_gradients(a, p, part, begin, end, p->keys, p->values, &ahead);
    block_spread(a, part, begin, end, w->dk, width, width, p->grads, p->queries_rows);
    block_spread(
        a, part, begin, end, w->dv, p->value_width, p->value_width, p->scores, p->douts_rows);
    block_weigh(a, p, part, begin, end, w->dq_rows, width, width, p->grads, p->keys_rows);
  }
  for (int64_t r = 0; r < part.rows; r++)
    row_scale(w->dq + start + r * at.q_stride, w->dq_rows + r * width, a->scale, a->D);
}

void LEVEL(attention_backward)(
    const tsr_attention *a, float *dq, float *dk, float *dv, const float *dout, const float *q,
    const float *k, const float *v, const float *out, const float *stats, void *scratch,
    int64_t begin, int64_t end) {
  assert(a->H % a->G == 0);
  int64_t heads = a->H / a->G, size = round_to(a->T, TILE_ROWS);
  size_t values = (size_t)tsr_attention_value_size(a) * sizeof(float);
  attention_parts p;
  attention_layout(a, 1, scratch, &p);
  backward w = {dout, q, k, v, out, stats, dq};
  w.dq_rows = p.sums;
  w.dk = p.sums + QUERIES * p.head_width;
  w.dv = w.dk + size * p.head_width;
  for (int64_t item = begin; item < end; item++) {
    int64_t b = item / a->G, h_first = item % a->G * heads;
    head at = head_at(a, b, h_first);
    w.packed = 0;
    row_zero(w.dk, 0, size * (p.head_width + p.value_width));
    for (int64_t h = h_first; h < h_first + heads; h++)
      for (int64_t first = 0; first < a->T; first += QUERIES) {
        head query = head_at(a, b, h);
        backward_block(a, &p, &w, query, block_at(a, query, first));
      }
    for (int64_t t = 0; t < a->T; t++) {
      float *to = dk + at.k_start + t * at.k_stride;
      memcpy(to, w.dk + t * p.head_width, (size_t)a->D * sizeof(float));
      memcpy(dv + at.v_start + t * at.v_stride, w.dv + t * p.value_width, values);
    }
  }
}

void LEVEL(attention_sinks_backward)(
    const tsr_attention *a, float *d, const float *dout, const float *out, const float *stats,
    int64_t begin, int64_t end) {
  int64_t Dv = tsr_attention_value_size(a);
  for (int64_t row = begin; row < end; row++)
    for (int64_t h = 0; h < a->H; h++) {
      int64_t at = row * a->H + h;
      const float *of = stats + ((row / a->T * a->H + h) * a->T + row % a->T) * 2;
      float p = real_exp(a->sinks[h] - of[0]) / of[1];
      d[at] = -p * row_dot(dout + at * Dv, out + at * Dv, Dv);
    }
}
