// SPDX-License-Identifier: Apache-2.0
/* What a step of attention over units does, as lists of turns: a launch of attention_ring.cuh's
 * walk takes one. C and C++. */
#ifndef TSR_KERNELS_CUDA_RING_TURNS_H
#define TSR_KERNELS_CUDA_RING_TURNS_H
#include "kernels/cuda/kernels.h"
#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/ring_attention_merge.h"
#ifdef __cplusplus
}
#endif

/* RING_LEAF:  the unit `begin`, which is the `run`-th of those at hand, into registers
 * RING_MERGE: what waits in `slot` is added to it
 * RING_KEEP:  it goes to `slot`
 * RING_COPY:  from `slot` to slot `run`
 * Parts of the sum are units [begin, end). */
typedef enum { RING_LEAF, RING_MERGE, RING_KEEP, RING_COPY } ring_kind;
typedef struct {
  int32_t begin, end, run;
  int16_t slot, kind;
} ring_turn;

enum { RING_TURNS = 128, RING_LEAF_TURNS = TSR_RING_TEMP + 2 };
typedef struct {
  int count;
  ring_turn turn[RING_TURNS];
} ring_turns;

/* Who holds which units, for a pass over keys or, of dk and dv, over queries. */
static inline tsr_ring ring_map_of(const tsr_attention_ring *r, tsr_attention_sum sum) {
  tsr_ring map = {r->units, r->members, r->coord, r->zigzag, sum == TSR_ATTENTION_DKV};
  return map;
}

static inline void
turn_add(ring_turns *turns, ring_kind kind, int64_t begin, int64_t end, int64_t run, int slot) {
  ring_turn turn = {(int32_t)begin, (int32_t)end, (int32_t)run, (int16_t)slot, (int16_t)kind};
  turns->turn[turns->count++] = turn;
}

/* One unit and all that it completes; its part is in registers, whose slot would be `slot`. */
static inline void
leaf_add(ring_turns *turns, tsr_ring_pending *pending, int64_t run, int64_t unit) {
  tsr_ring_part left, right;
  int slot = tsr_ring_push(pending, unit);
  turn_add(turns, RING_LEAF, unit, unit + 1, run, 0);
  while (tsr_ring_merge(pending, &left, &right)) {
    const tsr_ring_part *other = left.slot == slot ? &right : &left;
    turn_add(turns, RING_MERGE, other->begin, other->end, 0, other->slot);
    slot = left.slot;
  }
  turn_add(turns, RING_KEEP, 0, 0, 0, slot);
}

typedef void ring_launch_fn(void *context, const ring_turns *turns);

/* The turns of a step, given to launch(context, turns) in as many lists as they take. */
static inline void
ring_each_turns(const tsr_ring *map, int step, ring_launch_fn *launch, void *context) {
  int source = tsr_ring_source(map, step), to;
  tsr_ring_pending pending;
  tsr_ring_part from;
  ring_turns turns;
  turns.count = 0;
  tsr_ring_before(map, step, &pending);
  for (int64_t run = 0; run < map->units / map->members; run++) {
    if (turns.count + RING_LEAF_TURNS > RING_TURNS) launch(context, &turns), turns.count = 0;
    leaf_add(&turns, &pending, run, tsr_ring_unit(map, source, run));
  }
  while (tsr_ring_settle(&pending, &from, &to)) {
    if (turns.count == RING_TURNS) launch(context, &turns), turns.count = 0;
    turn_add(&turns, RING_COPY, from.begin, from.end, to, from.slot);
  }
  launch(context, &turns);
}

#endif
