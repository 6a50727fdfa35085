// SPDX-License-Identifier: Apache-2.0
/* Context-parallel attention: the walk over the units at hand, and the forward pass. */
#include "kernels/cpu/attention_ring.h"
#include <assert.h>
#include <stddef.h>

/* Of a partial result with heads of D, and of values of Dv. */
static int64_t row_width(tsr_attention_sum sum, int64_t D, int64_t Dv) {
  return sum == TSR_ATTENTION_OUT ? Dv + 2 : sum == TSR_ATTENTION_DQ ? D : D + Dv;
}

int64_t LEVEL(ring_begin)(
    ring_call *c, const tsr_attention_ring *r, tsr_attention_sum sum, int step, float *acc,
    void *scratch) {
  assert(r->members > 0 && r->units > 0 && r->length % r->units == 0 && r->a.H % r->a.G == 0);
  assert(r->units % r->members == 0 && r->a.T == r->length / r->members);
  c->ring = r;
  c->sum = sum;
  c->map = (tsr_ring){r->units, r->members, r->coord, r->zigzag, sum == TSR_ATTENTION_DKV};
  tsr_ring_before(&c->map, step, &c->before);
  c->unit = r->a;
  c->unit.T = r->length / r->units;
  c->runs = r->units / r->members;
  int queries = sum == TSR_ATTENTION_DKV ? tsr_ring_source(&c->map, step) : r->coord;
  c->query_last = tsr_ring_unit(&c->map, queries, c->runs - 1);
  int64_t floats = attention_layout(&c->unit, c->runs, scratch, &c->p);
  int64_t Dv = tsr_attention_value_size(&c->unit);
  int64_t room = row_width(/* of any level's row */
                           sum, room_width(&c->unit, c->unit.D), room_width(&c->unit, Dv));
  int64_t temp_rows =
      sum == TSR_ATTENTION_DKV ? room_rows(&c->unit, c->unit.T) : room_queries(&c->unit);
  c->width = row_width(sum, c->p.head_width, c->p.value_width);
  c->temp_size = round_to(temp_rows * room, 16);
  c->slots = tsr_ring_slots(&c->map);
  c->item_size = round_to(c->runs * c->slots * c->unit.T * room, 16);
  c->acc = acc;
  return floats + tsr_ring_temps(&c->map) * c->temp_size;
}

int64_t LEVEL(attention_ring_acc)(const tsr_attention_ring *r, tsr_attention_sum sum) {
  ring_call c;
  LEVEL(ring_begin)(&c, r, sum, 0, NULL, NULL);
  int64_t items = r->a.B * (sum == TSR_ATTENTION_DKV ? r->a.G : r->a.H);
  return items * c.item_size * (int64_t)sizeof(float);
}

int64_t LEVEL(attention_ring_scratch)(const tsr_attention_ring *r) {
  const tsr_attention_sum sums[] = {TSR_ATTENTION_OUT, TSR_ATTENTION_DQ, TSR_ATTENTION_DKV};
  int64_t most = 0;
  for (int i = 0; i < 3; i++) {
    ring_call c;
    int64_t floats = LEVEL(ring_begin)(&c, r, sums[i], 0, NULL, NULL);
    most = floats > most ? floats : most;
  }
  return most * (int64_t)sizeof(float);
}

/* (m, l, o) + (m', l', o') = (M, l e + l' e', o e + o' e') with M = max(m, m'), e = exp(m - M) and
 * e' = exp(m' - M); a row is o, m, l. */
static void merge_softmax(const ring_call *c, float *to, const float *from, int64_t rows) {
  const int64_t D = c->p.value_width, width = c->width;
  for (int64_t r = 0; r < rows; r++, to += width, from += width) {
    float max = to[D] > from[D] ? to[D] : from[D];
    if (max == -INFINITY) continue; /* a window shows the query nothing of both */
    float share = real_exp(to[D] - max), other = real_exp(from[D] - max);
#pragma omp simd
    for (int64_t d = 0; d < D; d++) to[d] = to[d] * share + from[d] * other;
    to[D] = max;
    to[D + 1] = to[D + 1] * share + from[D + 1] * other;
  }
}

/* Whether causality and a window leave anything of the partial result of these units. The nearest
 * of them may be so many units away that its nearest position is behind the window. */
static bool present(const ring_call *c, const ring_target *t, const tsr_ring_part *part) {
  const tsr_attention *a = &c->unit;
  bool queries = c->map.queries;
  int64_t away = queries ? part->begin - t->unit : t->unit - part->end + 1;
  if (!a->causal) return true;
  if (queries ? part->end <= t->unit : part->begin > t->unit) return false;
  return !a->window || (away - 1) * a->T + 1 < a->window;
}

static float *part_at(const ring_call *c, const ring_target *t, int slot) {
  if (slot >= TSR_RING_TEMP) return c->p.sums + (slot - TSR_RING_TEMP) * c->temp_size;
  return c->acc + ring_offset(c, t, slot);
}

static void part_copy(const ring_call *c, const ring_target *t, int to, int from) {
  memcpy(part_at(c, t, to), part_at(c, t, from), (size_t)(t->rows * c->width) * sizeof(float));
}

static void part_merge(
    const ring_call *c, const ring_target *t, const tsr_ring_part *left,
    const tsr_ring_part *right) {
  if (!present(c, t, right)) return;
  if (!present(c, t, left)) {
    part_copy(c, t, left->slot, right->slot);
    return;
  }
  float *to = part_at(c, t, left->slot), *from = part_at(c, t, right->slot);
  if (c->sum == TSR_ATTENTION_OUT) {
    merge_softmax(c, to, from, t->rows);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < t->rows * c->width; i++) to[i] += from[i];
}

void LEVEL(ring_walk)(
    const ring_call *c, const ring_target *t, ring_leaf *leaf, const void *tensors) {
  tsr_ring_pending pending = c->before;
  tsr_ring_part left, right, from;
  int to, source = tsr_ring_source(&c->map, c->ring->step);
  for (int64_t run = 0; run < c->runs; run++) {
    int64_t unit = tsr_ring_unit(&c->map, source, run);
    tsr_ring_part part = {unit, unit + 1, tsr_ring_push(&pending, unit)};
    if (present(c, t, &part)) leaf(c, t, run, unit, tensors, part_at(c, t, part.slot));
    while (tsr_ring_merge(&pending, &left, &right)) part_merge(c, t, &left, &right);
  }
  while (tsr_ring_settle(&pending, &from, &to))
    if (present(c, t, &from)) part_copy(c, t, to, from.slot);
}

static void leaf_out(
    const ring_call *c, const ring_target *t, int64_t run, int64_t unit, const void *tensors,
    float *to) {
  (void)tensors;
  const attention_parts *p = &c->p;
  tsr_attention a = ring_pair(c, t->unit, unit);
  block part = ring_block(c, &a, t->at, t->first, t->unit, unit);
  fetch none = {.count = 0};
  block_forward(
      &a, p, part, p->keys + run * p->run, p->values_rows + run * p->values_rows_run, to, c->width,
      &none);
  for (int64_t r = 0; r < part.rows; r++) {
    to[r * c->width + p->value_width] = p->max[r];
    to[r * c->width + p->value_width + 1] = p->parts[r];
  }
}

void LEVEL(attention_ring)(
    const tsr_attention_ring *r, float *acc, const void *q, const void *k, const void *v,
    void *scratch, int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(&r->a, attention_ring, (r, acc, q, k, v, scratch, begin, end));
  ring_call c;
  LEVEL(ring_begin)(&c, r, TSR_ATTENTION_OUT, r->step, acc, scratch);
  int64_t heads = r->a.H / r->a.G;
  int source = tsr_ring_source(&c.map, r->step);
  gemms_begin();
  for (int64_t item = begin; item < end; item++) {
    if (item == begin || item % heads == 0)
      ring_pack(&c, PACK_OUT, source, head_at(&r->a, item / r->a.H, item % r->a.H), k, v);
    for (int64_t run = 0; run < c.runs; run++)
      for (int64_t first = 0; first < c.unit.T; first += QUERIES) {
        ring_target t = ring_target_at(&c, item, run, first, QUERIES);
        int64_t start = t.at.q_start + (run * c.unit.T + first) * t.at.q_stride;
        pack_queries(&r->a, &c.p, (const number *)q + start, t.at.q_stride, t.rows);
        LEVEL(ring_walk)(&c, &t, leaf_out, NULL);
      }
  }
  gemms_end();
}

void LEVEL(attention_ring_finish)(
    const tsr_attention_ring *r, void *out, float *stats, const float *acc, int64_t begin,
    int64_t end) {
  LEAVE_TO_BELOW(&r->a, attention_ring_finish, (r, out, stats, acc, begin, end));
  int64_t Dv = tsr_attention_value_size(&r->a);
  ring_call c;
  LEVEL(ring_begin)(&c, r, TSR_ATTENTION_OUT, r->members, NULL, NULL);
  for (int64_t item = begin; item < end; item++)
    for (int64_t run = 0; run < c.runs; run++) {
      ring_target t = ring_target_at(&c, item, run, 0, c.unit.T);
      const float *sum = acc + ring_offset(&c, &t, ring_slot_whole(&c));
      number *to = (number *)out + t.at.out_start + run * c.unit.T * t.at.out_stride;
      float *row_stats = stats + (item * r->a.T + run * c.unit.T) * 2;
      for (int64_t row = 0; row < t.rows; row++, sum += c.width) {
        memcpy(row_stats + 2 * row, sum + c.p.value_width, 2 * sizeof *stats);
        float factor = row_complete(&r->a, t.at.h, row_stats + 2 * row);
        numbers_store(to + row * t.at.out_stride, sum, factor, Dv);
      }
    }
}

void LEVEL(attention_ring_rows)(
    const tsr_attention_ring *r, float *rows, const void *dout, const void *out, const float *stats,
    int64_t begin, int64_t end) {
  LEAVE_TO_BELOW(&r->a, attention_ring_rows, (r, rows, dout, out, stats, begin, end));
  const number *x = dout, *y = out;
  for (int64_t item = begin; item < end; item++) {
    head at = head_at(&r->a, item / r->a.H, item % r->a.H);
    for (int64_t t = 0; t < r->a.T; t++) {
      int64_t row = item * r->a.T + t, start = at.out_start + t * at.out_stride;
      memcpy(rows + 3 * row, stats + 2 * row, 2 * sizeof *rows);
      rows[3 * row + 2] = numbers_dot(x + start, y + start, tsr_attention_value_size(&r->a));
    }
  }
}
