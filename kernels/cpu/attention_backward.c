// SPDX-License-Identifier: Apache-2.0
/* Attention backward: the probabilities are computed again, block by block, from the scores and
 * each row's maximum and sum; dK and dV of a group are summed over its query heads and then over
 * the blocks of queries, in that order. A rank that computes some positions of a sequence has the
 * inputs of all, and leaves out the blocks that none of its rows or keys have a part in. */
#include "kernels/cpu/attention_backward.h"
#include "kernels/cpu/attention_documents.h"
#include <assert.h>

typedef struct {
  const number *dout, *q, *k, *v, *out;
  const float *stats;
  number *dq, *dk, *dv;
  float *dq_rows;         /* (QUERIES, head_width) in the scratch */
  float *dk_sum, *dv_sum; /* (T, head_width) and (T, value_width) there, rows padded to tiles */
  int64_t packed;         /* keys */
} backward;

/* What the block after this one reads, and what this one writes. */
static fetch ahead_of(const tsr_attention *a, const backward *w, head at, block part) {
  fetch ahead = {.count = 0};
  int64_t next = part.first + part.rows, left = a->T - next;
  if (!a->rows.runs) fetch_add(&ahead, w->dq + at.q_start, at.q_stride, part.first, part.rows);
  fetch_add(&ahead, w->q + at.q_start, at.q_stride, next, left);
  fetch_add(&ahead, w->dout + at.out_start, at.out_stride, next, left);
  fetch_add(&ahead, w->out + at.out_start, at.out_stride, next, left);
  fetch_add(&ahead, w->k + at.k_start, at.k_stride, w->packed, a->T - w->packed);
  fetch_add(&ahead, w->v + at.v_start, at.v_stride, w->packed, a->T - w->packed);
  return ahead;
}

static void
block_prepare(const document *d, const attention_parts *p, backward *w, head at, block part) {
  const tsr_attention *a = &d->a;
  int64_t start = at.q_start + part.first * at.q_stride;
  int64_t out_start = at.out_start + part.first * at.out_stride;
  int64_t line = (at.b * a->H + at.h) * d->length + d->first + part.first;
  float rows[3 * QUERIES];
  for (int64_t r = 0; r < part.rows; r++) {
    int64_t row = out_start + r * at.out_stride;
    memcpy(rows + 3 * r, w->stats + 2 * (line + r), 2 * sizeof *w->stats);
    rows[3 * r + 2] = numbers_dot(w->dout + row, w->out + row, tsr_attention_value_size(a));
  }
  block_statistics(p, part, rows);
  block_pack(a, p, part, w->q + start, w->dout + out_start, &at, true);
  if (w->packed >= part.keys) return;
  pack_keys(
      a, p, PACK_GRADIENTS, 0, w->k + at.k_start, w->v + at.v_start, &at, w->packed, part.keys);
  w->packed = part.keys;
}

/* Whether the rank computes some of the rows [begin, end) of a document. */
static bool computes(const document *d, int64_t begin, int64_t end) {
  for (int run = 0; run < own_runs(&d->a); run++) {
    own_rows own = own_rows_at(d, run);
    if (own.begin < own.end && own.begin < end && begin < own.end) return true;
  }
  return false;
}

/* dq of the block's rows that the rank computes. */
static void
write_queries(const document *d, const attention_parts *p, const backward *w, head at, block part) {
  for (int run = 0; run < own_runs(&d->a); run++) {
    own_rows own = own_rows_at(d, run);
    int64_t begin = own.begin > part.first ? own.begin : part.first;
    int64_t end = own.end < part.first + part.rows ? own.end : part.first + part.rows;
    number *to = w->dq + (at.b * own.count + own.own - own.begin) * at.q_stride + at.h * d->a.D;
    for (int64_t row = begin; row < end; row++)
      numbers_store(
          to + row * at.q_stride, w->dq_rows + (row - part.first) * p->head_width, dq_scale(&d->a),
          d->a.D);
  }
}

static void
backward_block(const document *d, const attention_parts *p, backward *w, head at, block part) {
  const tsr_attention *a = &d->a;
  int64_t width = p->head_width;
  bool rows = computes(d, part.first, part.first + part.rows);
  if (!rows && !computes(d, part.begin, part.keys)) return;
  block_prepare(d, p, w, at, part);
  fetch ahead = ahead_of(a, w, at, part);
  fetch_share(&ahead, part);
  weigh_begin(p, part, w->dq_rows, width, width);
  for (int64_t begin = part.begin, end; begin < part.keys; begin = end) {
    end = piece_end(part, begin);
    bool keys = computes(d, begin, end);
    if (!rows && !keys) continue;
    block_gradients(a, p, part, begin, end, p->keys, p->values, &ahead);
    if (keys) {
      block_spread(a, p, part, begin, end, w->dk_sum, width, width, p->grads, p->queries_rows);
      block_spread(
          a, p, part, begin, end, w->dv_sum, p->value_width, p->value_width, p->scores,
          p->douts_rows);
    }
    if (rows) block_weigh(a, p, part, begin, end, w->dq_rows, width, width, p->grads, p->keys_rows);
  }
  if (!rows) return;
  weigh_end(p, part, w->dq_rows, width, width);
  write_queries(d, p, w, at, part);
}

/* dk and dv of the document's rows that the rank computes. */
static void write_keys(const document *d, const attention_parts *p, const backward *w, head at) {
  int64_t G = d->a.G, g = at.h / (d->a.H / G), Dv = tsr_attention_value_size(&d->a);
  for (int run = 0; run < own_runs(&d->a); run++) {
    own_rows own = own_rows_at(d, run);
    for (int64_t row = own.begin; row < own.end; row++) {
      int64_t line = (at.b * own.count + own.own + row - own.begin) * G + g;
      numbers_store(w->dk + line * d->a.D, w->dk_sum + row * p->head_width, 1, d->a.D);
      numbers_store(w->dv + line * Dv, w->dv_sum + row * p->value_width, 1, Dv);
    }
  }
}

static void
backward_document(const document *d, const attention_parts *p, backward *w, int64_t b, int64_t g) {
  int64_t heads = d->a.H / d->a.G, rows = round_to(d->a.T, TILE_ROWS);
  if (!computes(d, 0, d->a.T)) return;
  w->packed = 0;
  row_zero(w->dk_sum, 0, rows * p->head_width);
  row_zero(w->dv_sum, 0, rows * p->value_width);
  for (int64_t h = g * heads; h < (g + 1) * heads; h++) {
    head at = document_head(d, b, h);
    for (int64_t first = 0; first < d->a.T; first += QUERIES)
      backward_block(d, p, w, at, document_block(d, at, first, d->a.T));
  }
  write_keys(d, p, w, document_head(d, b, g * heads));
}

void LEVEL(attention_backward)(
    const tsr_attention *a, void *dq, void *dk, void *dv, const void *dout, const void *q,
    const void *k, const void *v, const void *out, const float *stats, void *scratch, int64_t begin,
    int64_t end) {
  LEAVE_TO_BELOW(
      a, attention_backward, (a, dq, dk, dv, dout, q, k, v, out, stats, scratch, begin, end));
  assert(a->H % a->G == 0);
  attention_parts p;
  attention_layout(a, 1, scratch, &p);
  backward w = {dout, q, k, v, out, stats, dq, dk, dv, .packed = 0};
  w.dq_rows = p.sums;
  w.dk_sum = p.sums + QUERIES * p.head_width;
  w.dv_sum = w.dk_sum + round_to(a->T, TILE_ROWS) * p.head_width;
  gemms_begin();
  for (int64_t item = begin; item < end; item++)
    for (int64_t first = 0; first < a->T;) {
      document d = document_at(a, item / a->G, first);
      backward_document(&d, &p, &w, item / a->G, item % a->G);
      first += d.a.T;
    }
  gemms_end();
}

void LEVEL(attention_sinks_backward)(
    const tsr_attention *a, float *d, const void *dout, const void *out, const float *stats,
    int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(a, attention_sinks_backward, (a, d, dout, out, stats, begin, end));
  const number *x = dout, *y = out;
  int64_t Dv = tsr_attention_value_size(a);
  for (int64_t row = begin; row < end; row++)
    for (int64_t h = 0; h < a->H; h++) {
      int64_t at = row * a->H + h;
      const float *of = stats + ((row / a->T * a->H + h) * a->T + row % a->T) * 2;
      float p = real_exp(a->sinks[h] - of[0]) / of[1];
      d[at] = -p * numbers_dot(x + at * Dv, y + at * Dv, Dv);
    }
}
