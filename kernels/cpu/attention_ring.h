// SPDX-License-Identifier: Apache-2.0
/* What the passes of context-parallel attention share: the walk over the units at hand, and where
 * partial results lie.
 *
 * A walk adds the partial results of all units at hand to one target: a block of queries (out, dq)
 * or a unit of keys (dk, dv). A partial result is rows of `width` floats: the weighted values, the
 * maximum and the sum; or dq; or dk and dv. Heads are padded to vectors there. */
#ifndef TSR_KERNELS_CPU_ATTENTION_RING_H
#define TSR_KERNELS_CPU_ATTENTION_RING_H
#include "kernels/cpu/attention.h"
#include "kernels/ring_attention_merge.h"

/* One call of a kernel. */
typedef struct {
  const tsr_attention_ring *ring;
  tsr_attention_sum sum;
  tsr_ring map;
  tsr_ring_pending before; /* what waits when the step begins */
  tsr_attention unit;      /* attention over a sequence of one unit */
  int64_t runs;            /* units that a member holds */
  int64_t query_last;      /* the last unit of the queries at hand */
  int64_t width, temp_size, item_size;
  int slots;
  attention_parts p;
  float *acc;
} ring_call;

/* A call at that step, of which `members` is the end of the sum; acc and scratch may be NULL where
 * they are not used. Gives the floats of scratch. */
int64_t LEVEL(ring_begin)(
    ring_call *c, const tsr_attention_ring *r, tsr_attention_sum sum, int step, float *acc,
    void *scratch);

/* What a walk adds to: the rows [first, first + rows) of the member's own unit `run`, whose global
 * index is `unit`. `at` is the head, of dk and dv the group's first. */
typedef struct {
  int64_t item, run, first, rows, unit;
  head at;
} ring_target;

static inline ring_target
ring_target_at(const ring_call *c, int64_t item, int64_t run, int64_t first, int64_t rows) {
  const tsr_attention *a = &c->ring->a;
  int64_t b = item / a->H, h = item % a->H;
  if (c->sum == TSR_ATTENTION_DKV) b = item / a->G, h = item % a->G * (a->H / a->G);
  if (rows > c->unit.T - first) rows = c->unit.T - first;
  int64_t unit = tsr_ring_unit(&c->map, c->map.coord, run);
  return (ring_target){item, run, first, rows, unit, head_at(a, b, h)};
}

/* Where a kept slot's rows for the target lie in acc (items, runs, slots, rows of a unit, width).
 */
static inline int64_t ring_offset(const ring_call *c, const ring_target *t, int slot) {
  int64_t row = (t->run * c->slots + slot) * c->unit.T + t->first;
  return t->item * c->item_size + row * c->width;
}

/* The slot of the whole sum, of a call at the end. */
static inline int ring_slot_whole(const ring_call *c) { return c->before.parts[0].slot; }

/* Writes the partial result that unit `run` of the source, whose global index is `unit`, has for
 * the target: its rows, and those that pad them to tiles. */
typedef void ring_leaf(
    const ring_call *c, const ring_target *t, int64_t run, int64_t unit, const void *tensors,
    float *to);

/* A step's part of the sum of one target. */
void LEVEL(ring_walk)(
    const ring_call *c, const ring_target *t, ring_leaf *leaf, const void *tensors);

/* Whether any query at hand sees keys of that unit. */
static inline bool ring_key_seen(const ring_call *c, int64_t key_unit) {
  return !c->ring->a.causal || key_unit <= c->query_last;
}

/* Packs all keys and values that are seen, of the member that holds them. */
static inline void
ring_pack(const ring_call *c, packing kind, int member, head at, const number *k, const number *v) {
  for (int64_t run = 0; run < c->runs; run++) {
    if (!ring_key_seen(c, tsr_ring_unit(&c->map, member, run))) continue;
    const number *keys = k + at.k_start + run * c->unit.T * at.k_stride;
    const number *values = v + at.v_start + run * c->unit.T * at.v_stride;
    pack_keys(&c->unit, &c->p, kind, run, keys, values, &at, 0, c->unit.T);
  }
}

/* Attention between two units: of the same one it is causal. */
static inline tsr_attention ring_pair(const ring_call *c, int64_t query_unit, int64_t key_unit) {
  tsr_attention a = c->unit;
  a.causal = a.causal && query_unit == key_unit;
  a.behind = (query_unit - key_unit) * a.T;
  return a;
}

/* The block of queries `first`.. of a unit against the keys of another. */
static inline block ring_block(
    const ring_call *c, const tsr_attention *pair, head at, int64_t first, int64_t query_unit,
    int64_t key_unit) {
  int64_t rows = c->unit.T, length = c->ring->length;
  block part = block_at(pair, at, first);
  part.element = dropout_element(pair, at, length, query_unit * rows + first, key_unit * rows);
  part.element_step = (uint64_t)length;
  return part;
}

#endif
