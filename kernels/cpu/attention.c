// SPDX-License-Identifier: Apache-2.0
/* Attention forward, and the scratch of both directions. */
#include "kernels/cpu/attention.h"
#include <assert.h>
#include <stddef.h>

int64_t LEVEL(attention_scratch)(const tsr_attention *a) {
  attention_parts p;
  int64_t floats = attention_layout(a, 1, NULL, &p);
  int64_t D = round_to(a->D, WIDEST), Dv = round_to(tsr_attention_value_size(a), WIDEST);
  int64_t sums = QUERIES * (D > Dv ? D : Dv) + round_to(a->T, TILE_ROWS) * (D + Dv);
  return (floats + sums) * (int64_t)sizeof(float); /* out or dq; dk, dv */
}

typedef struct {
  const float *q, *k, *v;
  float *out, *stats;
  int64_t packed; /* keys */
} forward;

/* What the block after this one reads, and what this one writes. */
static fetch ahead_of(const tsr_attention *a, const forward *f, head at, block part) {
  fetch ahead = {.count = 0};
  int64_t next = part.first + part.rows, left = a->T - next;
  fetch_add(&ahead, f->out + at.out_start, at.out_stride, part.first, part.rows);
  fetch_add(&ahead, f->q + at.q_start, at.q_stride, next, left);
  fetch_add(&ahead, f->k + at.k_start, at.k_stride, f->packed, a->T - f->packed);
  fetch_add(&ahead, f->v + at.v_start, at.v_stride, f->packed, a->T - f->packed);
  return ahead;
}

static void
forward_block(const tsr_attention *a, const attention_parts *p, forward *f, head at, block part) {
  int64_t start = at.q_start + part.first * at.q_stride;
  float *out = f->out + at.out_start + part.first * at.out_stride;
  float *stats = f->stats + ((at.b * a->H + at.h) * a->T + part.first) * 2;
  if (f->packed < part.keys)
    pack_keys(a, p, PACK_OUT, 0, f->k + at.k_start, f->v + at.v_start, &at, f->packed, part.keys);
  if (f->packed < part.keys) f->packed = part.keys;
  fetch ahead = ahead_of(a, f, at, part);
  pack_columns(p->queries, f->q + start, at.q_stride, a->scale, a->D, part.rows);
  block_forward(a, p, part, p->keys, p->values_rows, p->sums, p->value_width, &ahead);
  for (int64_t r = 0; r < part.rows; r++) {
    stats[2 * r] = p->max[r];
    stats[2 * r + 1] = p->parts[r];
    row_scale(
        out + r * at.out_stride, p->sums + r * p->value_width, row_complete(a, at.h, stats + 2 * r),
        tsr_attention_value_size(a));
  }
}

void LEVEL(attention)(
    const tsr_attention *a, float *out, float *stats, const float *q, const float *k,
    const float *v, void *scratch, int64_t begin, int64_t end) {
  assert(a->H % a->G == 0);
  forward f = {q, k, v, out, stats, 0};
  int64_t heads = a->H / a->G;
  attention_parts p;
  attention_layout(a, 1, scratch, &p);
  for (int64_t item = begin; item < end; item++) {
    head at = head_at(a, item / a->H, item % a->H);
    if (item % heads == 0) f.packed = 0;
    for (int64_t first = 0; first < a->T; first += QUERIES)
      forward_block(a, &p, &f, at, block_at(a, at, first));
  }
}
