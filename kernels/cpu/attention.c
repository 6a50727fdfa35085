// SPDX-License-Identifier: Apache-2.0
/* Attention forward, and the scratch of both directions. */
#include "kernels/cpu/attention_documents.h"
#include <assert.h>
#include <stddef.h>

bool LEVEL(attention_bf16)(void) { return sizeof(number) == sizeof(uint16_t); }

int64_t LEVEL(attention_scratch)(const tsr_attention *a) {
  attention_parts p;
  int64_t floats = attention_layout(a, 1, NULL, &p);
  int64_t D = room_width(a, a->D), Dv = room_width(a, tsr_attention_value_size(a));
  int64_t sums = room_queries(a) * (D > Dv ? D : Dv) + room_rows(a, a->T) * (D + Dv);
  return (floats + sums) * (int64_t)sizeof(float); /* out or dq; dk, dv */
}

typedef struct {
  const number *q, *k, *v;
  number *out;
  float *stats;
  int64_t packed; /* keys */
} forward;

/* Where a head's rows of a document are. q and out have the positions that the rank computes. */
typedef struct {
  head at;
  const number *q;
  number *out;
  float *stats;
} forward_rows;

static forward_rows rows_at(const document *d, const forward *f, head at, own_rows own) {
  int64_t first = at.b * own.count + own.own - own.begin; /* row 0 of the document */
  return (forward_rows){
      .at = at,
      .q = f->q + first * at.q_stride + at.h * d->a.D,
      .out = f->out + first * at.out_stride + at.h * tsr_attention_value_size(&d->a),
      .stats = f->stats + ((at.b * d->a.H + at.h) * own.count + own.own - own.begin) * 2};
}

/* What the block after this one reads, and what this one writes. */
static fetch
ahead_of(const document *d, const forward *f, const forward_rows *rows, block part, int64_t end) {
  fetch ahead = {.count = 0};
  int64_t next = part.first + part.rows, left = d->a.T - f->packed;
  const head *at = &rows->at;
  fetch_add(&ahead, rows->out, at->out_stride, part.first, part.rows);
  fetch_add(&ahead, rows->q, at->q_stride, next, end - next);
  fetch_add(&ahead, f->k + at->k_start, at->k_stride, f->packed, left);
  fetch_add(&ahead, f->v + at->v_start, at->v_stride, f->packed, left);
  return ahead;
}

static void forward_block(
    const document *d, const attention_parts *p, forward *f, const forward_rows *rows, block part,
    int64_t end) {
  const tsr_attention *a = &d->a;
  head at = rows->at;
  number *out = rows->out + part.first * at.out_stride;
  float *stats = rows->stats + part.first * 2;
  if (f->packed < part.keys)
    pack_keys(a, p, PACK_OUT, 0, f->k + at.k_start, f->v + at.v_start, &at, f->packed, part.keys);
  if (f->packed < part.keys) f->packed = part.keys;
  fetch ahead = ahead_of(d, f, rows, part, end);
  pack_queries(a, p, rows->q + part.first * at.q_stride, at.q_stride, part.rows);
  block_forward(a, p, part, p->keys, p->values_rows, p->sums, p->value_width, &ahead);
  for (int64_t r = 0; r < part.rows; r++) {
    stats[2 * r] = p->max[r];
    stats[2 * r + 1] = p->parts[r];
    numbers_store(
        out + r * at.out_stride, p->sums + r * p->value_width, row_complete(a, at.h, stats + 2 * r),
        tsr_attention_value_size(a));
  }
}

/* Heads [first, end) of a group, which share the packed keys of a document. */
static void forward_document(
    const document *d, const attention_parts *p, forward *f, int64_t first, int64_t end) {
  f->packed = 0;
  for (int64_t item = first; item < end; item++) {
    head at = document_head(d, item / d->a.H, item % d->a.H);
    for (int run = 0; run < own_runs(&d->a); run++) {
      own_rows own = own_rows_at(d, run);
      forward_rows rows = rows_at(d, f, at, own);
      for (int64_t row = own.begin; row < own.end; row += QUERIES)
        forward_block(d, p, f, &rows, document_block(d, at, row, own.end), own.end);
    }
  }
}

void LEVEL(attention)(
    const tsr_attention *a, void *out, float *stats, const void *q, const void *k, const void *v,
    void *scratch, int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(a, attention, (a, out, stats, q, k, v, scratch, begin, end));
  assert(a->H % a->G == 0);
  forward f = {q, k, v, out, stats, 0};
  int64_t heads = a->H / a->G;
  attention_parts p;
  attention_layout(a, 1, scratch, &p);
  gemms_begin();
  for (int64_t item = begin, last; item < end; item = last) {
    last = (item / heads + 1) * heads < end ? (item / heads + 1) * heads : end;
    for (int64_t first = 0; first < a->T;) {
      document d = document_at(a, item / a->H, first);
      forward_document(&d, &p, &f, item, last);
      first += d.a.T;
    }
  }
  gemms_end();
}
