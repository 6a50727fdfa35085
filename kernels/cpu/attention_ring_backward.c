// SPDX-License-Identifier: Apache-2.0
/* Context-parallel attention backward, in two passes: for dq the keys and values travel, for dk and
 * dv the queries, their gradients and statistics. */
#include "kernels/cpu/attention_backward.h"
#include "kernels/cpu/attention_ring.h"
#include <stddef.h>

typedef struct {
  const number *dout, *q;
  const float *rows;
} query_tensors;

static void leaf_dq(
    const ring_call *c, const ring_target *t, int64_t run, int64_t unit, const void *tensors,
    float *to) {
  const query_tensors *queries = tensors;
  const attention_parts *p = &c->p;
  tsr_attention a = ring_pair(c, t->unit, unit);
  block part = ring_block(c, &a, t->at, t->first, t->unit, unit);
  int64_t row = t->item * c->ring->a.T + t->run * a.T + t->first;
  const float *keys = p->keys + run * p->run, *values = p->values + run * p->values_run;
  fetch none = {.count = 0};
  block_statistics(p, part, queries->rows + 3 * row);
  weigh_begin(p, part, to, c->width, p->head_width);
  for (int64_t begin = part.begin, end; begin < part.keys; begin = end) {
    end = piece_end(part, begin);
    block_gradients(&a, p, part, begin, end, keys, values, &none);
    block_weigh(
        &a, p, part, begin, end, to, c->width, p->head_width, p->grads,
        p->keys_rows + run * p->rows_run);
  }
  weigh_end(p, part, to, c->width, p->head_width);
}

void LEVEL(attention_ring_dq)(
    const tsr_attention_ring *r, float *acc, const void *dout, const void *q, const void *k,
    const void *v, const float *rows, void *scratch, int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(&r->a, attention_ring_dq, (r, acc, dout, q, k, v, rows, scratch, begin, end));
  query_tensors queries = {dout, q, rows};
  int64_t heads = r->a.H / r->a.G;
  ring_call c;
  LEVEL(ring_begin)(&c, r, TSR_ATTENTION_DQ, r->step, acc, scratch);
  int source = tsr_ring_source(&c.map, r->step);
  gemms_begin();
  for (int64_t item = begin; item < end; item++) {
    if (item == begin || item % heads == 0)
      ring_pack(&c, PACK_DQ, source, head_at(&r->a, item / r->a.H, item % r->a.H), k, v);
    for (int64_t run = 0; run < c.runs; run++)
      for (int64_t first = 0; first < c.unit.T; first += QUERIES) {
        ring_target t = ring_target_at(&c, item, run, first, QUERIES);
        int64_t row = run * c.unit.T + first;
        const number *queries_at = (const number *)q + t.at.q_start + row * t.at.q_stride;
        const number *douts_at = (const number *)dout + t.at.out_start + row * t.at.out_stride;
        block part = {.first = first, .rows = t.rows};
        block_pack(&r->a, &c.p, part, queries_at, douts_at, &t.at, false);
        LEVEL(ring_walk)(&c, &t, leaf_dq, &queries);
      }
  }
  gemms_end();
}

void LEVEL(attention_ring_dq_finish)(
    const tsr_attention_ring *r, void *dq, const float *acc, int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(&r->a, attention_ring_dq_finish, (r, dq, acc, begin, end));
  ring_call c;
  LEVEL(ring_begin)(&c, r, TSR_ATTENTION_DQ, r->members, NULL, NULL);
  for (int64_t item = begin; item < end; item++)
    for (int64_t run = 0; run < c.runs; run++) {
      ring_target t = ring_target_at(&c, item, run, 0, c.unit.T);
      const float *sum = acc + ring_offset(&c, &t, ring_slot_whole(&c));
      number *to = (number *)dq + t.at.q_start + run * c.unit.T * t.at.q_stride;
      for (int64_t row = 0; row < t.rows; row++)
        numbers_store(to + row * t.at.q_stride, sum + row * c.width, dq_scale(&r->a), r->a.D);
    }
}

/* A block of queries of the source's unit `run`, added to dk and dv of the target. */
static void spread_block(
    const ring_call *c, const ring_target *t, const query_tensors *queries, head at, int64_t run,
    const tsr_attention *a, block part, float *to) {
  const attention_parts *p = &c->p;
  int64_t position = run * a->T + part.first;
  const number *q = queries->q + at.q_start + position * at.q_stride;
  const number *dout = queries->dout + at.out_start + position * at.out_stride;
  int64_t row = (at.b * a->H + at.h) * c->ring->a.T + position;
  const float *keys = p->keys + t->run * p->run, *values = p->values + t->run * p->values_run;
  fetch none = {.count = 0};
  block_statistics(p, part, queries->rows + 3 * row);
  float *values_to = to + p->head_width;
  block_pack(a, p, part, q, dout, &at, true);
  for (int64_t begin = part.begin, end; begin < part.keys; begin = end) {
    end = piece_end(part, begin);
    block_gradients(a, p, part, begin, end, keys, values, &none);
    block_spread(a, p, part, begin, end, to, c->width, p->head_width, p->grads, p->queries_rows);
    block_spread(
        a, p, part, begin, end, values_to, c->width, p->value_width, p->scores, p->douts_rows);
  }
}

static void leaf_dkv(
    const ring_call *c, const ring_target *t, int64_t run, int64_t unit, const void *tensors,
    float *to) {
  tsr_attention a = ring_pair(c, unit, t->unit);
  int64_t heads = a.H / a.G;
  row_zero(to, 0, round_to(a.T, TILE_ROWS) * c->width);
  for (int64_t h = t->at.h; h < t->at.h + heads; h++)
    for (int64_t first = 0; first < a.T; first += QUERIES) {
      head at = head_at(&c->ring->a, t->at.b, h);
      block part = ring_block(c, &a, at, first, unit, t->unit);
      spread_block(c, t, tensors, at, run, &a, part, to);
    }
}

void LEVEL(attention_ring_dkv)(
    const tsr_attention_ring *r, float *acc, const void *dout, const void *q, const float *rows,
    const void *k, const void *v, void *scratch, int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(&r->a, attention_ring_dkv, (r, acc, dout, q, rows, k, v, scratch, begin, end));
  query_tensors queries = {dout, q, rows};
  ring_call c;
  LEVEL(ring_begin)(&c, r, TSR_ATTENTION_DKV, r->step, acc, scratch);
  gemms_begin();
  for (int64_t item = begin; item < end; item++) {
    for (int64_t run = 0; run < c.runs; run++) {
      ring_target t = ring_target_at(&c, item, run, 0, c.unit.T);
      if (run == 0) ring_pack(&c, PACK_DKV, r->coord, t.at, k, v);
      LEVEL(ring_walk)(&c, &t, leaf_dkv, &queries);
    }
  }
  gemms_end();
}

void LEVEL(attention_ring_dkv_finish)(
    const tsr_attention_ring *r, void *dk, void *dv, const float *acc, int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(&r->a, attention_ring_dkv_finish, (r, dk, dv, acc, begin, end));
  int64_t Dv = tsr_attention_value_size(&r->a);
  ring_call c;
  LEVEL(ring_begin)(&c, r, TSR_ATTENTION_DKV, r->members, NULL, NULL);
  for (int64_t item = begin; item < end; item++)
    for (int64_t run = 0; run < c.runs; run++) {
      ring_target t = ring_target_at(&c, item, run, 0, c.unit.T);
      const float *sum = acc + ring_offset(&c, &t, ring_slot_whole(&c));
      number *keys = (number *)dk + t.at.k_start + run * c.unit.T * t.at.k_stride;
      number *to = (number *)dv + t.at.v_start + run * c.unit.T * t.at.v_stride;
      for (int64_t row = 0; row < t.rows; row++, sum += c.width) {
        numbers_store(keys + row * t.at.k_stride, sum, 1, r->a.D);
        numbers_store(to + row * t.at.v_stride, sum + c.p.head_width, 1, Dv);
      }
    }
}
