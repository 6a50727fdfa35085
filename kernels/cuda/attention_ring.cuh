// SPDX-License-Identifier: Apache-2.0
/* What the passes of attention over units share (kernels/ring_attention_merge.h): a block has a
 * tile of one of the member's own units and walks over the units at hand. A leaf, the partial
 * result of one unit, is made in registers; it and what it is merged with stay there until the
 * sibling is not there yet. Then they wait in a slot: a kept one, which lies in acc, or a
 * temporary one, which lies in the scratch. Both are (lines, runs, slots, rows of a unit, width),
 * where lines are (b,h), or (b,g) for dk and dv; the scratch has only as many lines as one launch
 * takes. A row is out, maximum and sum; or dq; or dk and dv.
 *
 * What the walk does is the same for all blocks, but for units that causality hides: the host makes
 * a list of turns, which is a kernel's argument. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_RING_CUH
#define TSR_KERNELS_CUDA_ATTENTION_RING_CUH
#include "kernels/cuda/attention.cuh"
extern "C" {
#include "kernels/ring_attention_merge.h"
}

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

typedef struct {
  tsr_attention a, unit; /* of what a member has; of a sequence of one unit */
  int64_t length, runs, width;
  int64_t chunk, low,
      high;     /* the member's own units: from low on, behind `chunk` ones from high on */
  bool queries; /* are at hand */
  int slots, temps;
  int64_t line, lines; /* of a launch: the first, and how many */
  float *acc, *temp;
} ring_shape;

template <typename N> struct ring_arrays {
  const N *q, *k, *v, *dout;
  const float *rows; /* (B,H,T,3) */
};

/* ---- the host's side ---- */

static inline ring_shape
ring_shape_of(const tsr_attention_ring *r, tsr_attention_sum sum, tsr_ring *ret_map) {
  bool queries = sum == TSR_ATTENTION_DKV;
  tsr_cuda_ring_size size = tsr_cuda_ring_size_of(r, sum);
  ring_shape s = {};
  *ret_map = {r->units, r->members, r->coord, r->zigzag, queries};
  s.a = s.unit = r->a;
  s.length = r->length;
  s.runs = size.runs;
  s.unit.T = size.unit;
  s.width = size.width;
  s.chunk = r->zigzag && r->members > 1 ? s.runs / 2 : s.runs;
  s.low = tsr_ring_unit(ret_map, r->coord, 0);
  s.high = s.chunk < s.runs ? tsr_ring_unit(ret_map, r->coord, s.chunk) : 0;
  s.queries = queries;
  s.slots = size.slots;
  s.temps = size.temps;
  return s;
}

static inline void
turn_add(ring_turns *turns, ring_kind kind, int64_t begin, int64_t end, int64_t run, int slot) {
  turns->turn[turns->count++] = {
      (int32_t)begin, (int32_t)end, (int32_t)run, (int16_t)slot, (int16_t)kind};
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

/* The turns of a step, given to launch(turns) in as many lists as they take. */
template <typename LAUNCH>
static void ring_each_turns(const tsr_ring *map, int step, const LAUNCH &launch) {
  int source = tsr_ring_source(map, step), to;
  tsr_ring_pending pending;
  tsr_ring_part from;
  ring_turns turns;
  turns.count = 0;
  tsr_ring_before(map, step, &pending);
  for (int64_t run = 0; run < map->units / map->members; run++) {
    if (turns.count + RING_LEAF_TURNS > RING_TURNS) launch(turns), turns.count = 0;
    leaf_add(&turns, &pending, run, tsr_ring_unit(map, source, run));
  }
  while (tsr_ring_settle(&pending, &from, &to)) {
    if (turns.count == RING_TURNS) launch(turns), turns.count = 0;
    turn_add(&turns, RING_COPY, from.begin, from.end, to, from.slot);
  }
  launch(turns);
}

/* ---- a block's tile ---- */

/* Rows [first, unit.T) of the member's own unit `run`, whose number in the sequence is `unit`;
 * `position` is the row's place in what the member has. `at` is the head, of dk and dv the group's
 * first. */
typedef struct {
  attention_head at;
  int64_t line, run, first, unit, position;
} ring_target;

static __device__ inline ring_target ring_target_of(const ring_shape &r, int size) {
  int64_t heads = r.queries ? r.a.H / r.a.G : 1, in_batch = r.a.H / heads;
  int64_t tiles = (r.unit.T + size - 1) / size, tile = blockIdx.x / r.lines;
  ring_target t;
  t.line = r.line + blockIdx.x % r.lines;
  t.run = tile / tiles;
  t.first = tile % tiles * size;
  t.position = t.run * r.unit.T + t.first;
  t.unit = t.run < r.chunk ? r.low + t.run : r.high + t.run - r.chunk;
  t.at = attention_head_at(r.a, t.line / in_batch, t.line % in_batch * heads);
  return t;
}

/* Whether causality and a window leave anything of the units [begin, end). The nearest of them may
 * be so many units away that its nearest position is behind the window. */
static __device__ inline bool
ring_present(const ring_shape &r, const ring_target &t, int64_t begin, int64_t end) {
  int64_t away = r.queries ? begin - t.unit : t.unit - end + 1;
  if (!r.a.causal) return true;
  if (r.queries ? end <= t.unit : begin > t.unit) return false;
  return !r.a.window || (away - 1) * r.unit.T + 1 < r.a.window;
}

/* Attention between two units: of the same one it is causal. */
static __device__ inline tsr_attention
ring_pair(const ring_shape &r, int64_t query_unit, int64_t key_unit) {
  tsr_attention pair = r.unit;
  pair.causal = pair.causal && query_unit == key_unit;
  pair.behind = (query_unit - key_unit) * pair.T;
  return pair;
}

static __device__ inline attention_drop ring_drop(
    const ring_shape &r, const uint64_t *key, const attention_head &at, int64_t query_unit,
    int64_t key_unit) {
  return attention_drop_at(r.a, key, at, r.length, query_unit * r.unit.T, key_unit * r.unit.T);
}

/* Of the queries of a head's run. */
static __device__ inline attention_statistics
ring_statistics(const ring_shape &r, const float *rows, const attention_head &at, int64_t run) {
  const float *first = rows + 3 * (at.line * r.a.T + run * r.unit.T);
  attention_statistics s = {first, first + 2, 3, 3};
  return s;
}

static __device__ inline float *ring_slot(const ring_shape &r, const ring_target &t, int slot) {
  bool temporary = slot >= TSR_RING_TEMP;
  int64_t slots = temporary ? r.temps : r.slots, number = temporary ? slot - TSR_RING_TEMP : slot;
  int64_t line = temporary ? t.line - r.line : t.line;
  int64_t row = ((line * r.runs + t.run) * slots + number) * r.unit.T + t.first;
  return (temporary ? r.temp : r.acc) + row * r.width;
}

/* ---- a pass P: what a thread holds of a part. It has P::ROWS rows of the tile and of each
 * P::COLUMNS columns: p.at(i, c), which is column p.column(c, D) of row p.row(i) of a part, or none
 * (-1); of softmax the row's p.max(i) and p.sum(i), which the thread with p.leads() writes.
 * p.open() fetches the own tile, before p.leaf() makes the first unit's part. ---- */

template <typename P>
static __device__ inline void
part_load(P *p, const ring_shape &r, const ring_target &t, const float *from) {
#pragma unroll
  for (int i = 0; i < P::ROWS; i++) {
    const float *row = from + p->row(i) * r.width;
    if (t.first + p->row(i) >= r.unit.T) continue;
#pragma unroll
    for (int c = 0; c < P::COLUMNS; c++)
      if (p->column(c, r.a.D) >= 0) p->at(i, c) = row[p->column(c, r.a.D)];
    if constexpr (P::SUM == TSR_ATTENTION_OUT) p->max(i) = row[r.a.D], p->sum(i) = row[r.a.D + 1];
  }
}

template <typename P>
static __device__ inline void
part_store(P *p, const ring_shape &r, const ring_target &t, float *to) {
#pragma unroll
  for (int i = 0; i < P::ROWS; i++) {
    float *row = to + p->row(i) * r.width;
    if (t.first + p->row(i) >= r.unit.T) continue;
#pragma unroll
    for (int c = 0; c < P::COLUMNS; c++)
      if (p->column(c, r.a.D) >= 0) row[p->column(c, r.a.D)] = p->at(i, c);
    if constexpr (P::SUM == TSR_ATTENTION_OUT)
      if (p->leads()) row[r.a.D] = p->max(i), row[r.a.D + 1] = p->sum(i);
  }
}

/* own = own * ret_own + other * ret_other, where the parts' maxima are brought to one:
 * (m, l, o) + (m', l', o') = (M, l e + l' e', o e + o' e') with M = max(m, m'), e = exp(m - M) and
 * e' = exp(m' - M). */
static __device__ inline float
softmax_shares(float own, float other, bool before, float *ret_own, float *ret_other) {
  float max = fmaxf(before ? other : own, before ? own : other), base = attention_base(max);
  *ret_own = expf(own - base);
  *ret_other = expf(other - base);
  return max;
}

/* `before`: the other part's units come before. a + b has the bits of b + a, so that matters to the
 * maximum alone, which may be one of two zeros. */
template <typename P>
static __device__ inline void
part_merge(P *p, const ring_shape &r, const ring_target &t, const float *from, bool before) {
#pragma unroll
  for (int i = 0; i < P::ROWS; i++) {
    const float *row = from + p->row(i) * r.width;
    float own = 1, other = 1;
    if (t.first + p->row(i) >= r.unit.T) continue;
    if constexpr (P::SUM == TSR_ATTENTION_OUT) {
      p->max(i) = softmax_shares(p->max(i), row[r.a.D], before, &own, &other);
      p->sum(i) = p->sum(i) * own + row[r.a.D + 1] * other;
    }
#pragma unroll
    for (int c = 0; c < P::COLUMNS; c++)
      if (p->column(c, r.a.D) >= 0)
        p->at(i, c) = p->at(i, c) * own + row[p->column(c, r.a.D)] * other;
  }
}

/* A turn begins with a barrier: what a row's other threads wrote into slots, and what the block
 * read in shared memory and in slots, is done. */
template <typename P>
static __global__ void __launch_bounds__(P::THREADS) ring_walk(
    const ring_shape r, const __grid_constant__ ring_turns turns, const uint64_t *key,
    const ring_arrays<typename P::N> x) {
  TSR_SHARED(float, shared);
  ring_target t = ring_target_of(r, P::OWN);
  int64_t begin = 0;                 /* of the part in registers */
  bool here = false, opened = false; /* here: it is not hidden */
  P p;
  for (int i = 0; i < turns.count; i++) {
    const ring_turn turn = turns.turn[i];
    bool there = ring_present(r, t, turn.begin, turn.end);
    __syncthreads();
    if (turn.kind == RING_LEAF) {
      begin = turn.begin;
      here = there;
      if (there && !opened) p.open(shared, r, x, t), opened = true;
      if (there) p.leaf(r, key, x, t, turn.run, turn.begin);
    } else if (turn.kind == RING_MERGE) {
      const float *other = ring_slot(r, t, turn.slot);
      if (there && here) part_merge(&p, r, t, other, turn.begin < begin);
      else if (there) part_load(&p, r, t, other);
      if (turn.begin < begin) begin = turn.begin;
      here |= there;
    } else if (turn.kind == RING_KEEP) {
      if (here) part_store(&p, r, t, ring_slot(r, t, turn.slot));
    } else if (there) {
      part_load(&p, r, t, ring_slot(r, t, turn.slot));
      part_store(&p, r, t, ring_slot(r, t, turn.run));
    }
  }
}

/* A step of the pass. */
template <typename P>
static void ring_step(
    tsr_cuda_stream s, const tsr_attention_ring *of, const uint64_t *key, float *acc, void *scratch,
    const ring_arrays<typename P::N> &x) {
  tsr_ring map;
  ring_shape r = ring_shape_of(of, P::SUM, &map);
  tsr_cuda_ring_size size = tsr_cuda_ring_size_of(of, P::SUM);
  int64_t lines = size.lines, at_once = size.lines_at_once;
  r.acc = acc;
  r.temp = (float *)scratch;
  TSR_ALLOW_SHARED((ring_walk<P>), P::BYTES);
  for (r.line = 0; r.line < lines; r.line += at_once) {
    r.lines = lines - r.line < at_once ? lines - r.line : at_once;
    unsigned blocks = attention_blocks(r.unit.T, r.lines * r.runs, P::OWN);
    ring_each_turns(&map, of->step, [&](const ring_turns &turns) {
      TSR_LAUNCH((ring_walk<P>), blocks, P::THREADS, P::BYTES, s, r, turns, key, x);
    });
  }
}

/* attention_ring_tensor.cu: a step of each pass, for what tsr_cuda_attention_tensor_can. */
void tsr_cuda_attention_ring_tensor(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, tsr_attention_sum sum,
    const uint64_t *key, float *acc, void *scratch, const ring_arrays<uint16_t> &x);

#endif
