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
#include "kernels/cuda/ring_turns.h"

typedef struct {
  tsr_attention a, unit;             /* of what a member has; of a sequence of one unit */
  int64_t length, runs, width, sums; /* sums: of a row's width */
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
  tsr_cuda_ring_size size = tsr_cuda_ring_size_of(r, sum);
  ring_shape s = {};
  *ret_map = ring_map_of(r, sum);
  s.a = s.unit = attention_with_value_size(&r->a);
  s.length = r->length;
  s.runs = size.runs;
  s.unit.T = size.unit;
  s.width = size.width;
  s.sums = size.sums;
  s.chunk = r->zigzag && r->members > 1 ? s.runs / 2 : s.runs;
  s.low = tsr_ring_unit(ret_map, r->coord, 0);
  s.high = s.chunk < s.runs ? tsr_ring_unit(ret_map, r->coord, s.chunk) : 0;
  s.queries = ret_map->queries;
  s.slots = size.slots;
  s.temps = size.temps;
  return s;
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
 * P::COLUMNS columns: p.at(i, c), which is column p.column(c, a) of row p.row(i) of a part, or none
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
      if (p->column(c, r.a) >= 0) p->at(i, c) = row[p->column(c, r.a)];
    if constexpr (P::SUM == TSR_ATTENTION_OUT) p->max(i) = row[r.a.Dv], p->sum(i) = row[r.a.Dv + 1];
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
      if (p->column(c, r.a) >= 0) row[p->column(c, r.a)] = p->at(i, c);
    if constexpr (P::SUM == TSR_ATTENTION_OUT)
      if (p->leads()) row[r.a.Dv] = p->max(i), row[r.a.Dv + 1] = p->sum(i);
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
      p->max(i) = softmax_shares(p->max(i), row[r.a.Dv], before, &own, &other);
      p->sum(i) = p->sum(i) * own + row[r.a.Dv + 1] * other;
    }
#pragma unroll
    for (int c = 0; c < P::COLUMNS; c++)
      if (p->column(c, r.a) >= 0) p->at(i, c) = p->at(i, c) * own + row[p->column(c, r.a)] * other;
  }
}

/* A turn begins with a barrier: what a row's other threads wrote into slots, and what the block
 * read in shared memory and in slots, is done. */
template <typename P>
static __global__ void __launch_bounds__(P::THREADS) ring_walk(
    const ring_shape r, const __grid_constant__ ring_turns turns, const uint64_t *key,
    const ring_arrays<typename P::N> x) {
  TSR_SHARED(float, shared);
  __shared__ ring_target t;
  if (threadIdx.x == 0) t = ring_target_of(r, P::OWN);
  __syncthreads();
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

template <typename P> struct ring_launch {
  tsr_cuda_stream s;
  tsr_launch_shape shape;
  ring_shape r;
  const uint64_t *key;
  const ring_arrays<typename P::N> &x;
};

template <typename P> static void ring_launch_turns(void *context, const ring_turns *turns) {
  const ring_launch<P> *l = (const ring_launch<P> *)context;
  TSR_LAUNCH((ring_walk<P>), l->shape, l->s, l->r, *turns, l->key, l->x);
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
  const attention_tile tile = P::tile();
  TSR_ALLOW_SHARED((ring_walk<P>), tile.shared_bytes);
  for (r.line = 0; r.line < lines; r.line += at_once) {
    r.lines = lines - r.line < at_once ? lines - r.line : at_once;
    ring_launch<P> launch = {s, launch_attention(&tile, r.unit.T, r.lines * r.runs), r, key, x};
    ring_each_turns(&map, of->step, ring_launch_turns<P>, &launch);
  }
}

/* attention_ring_tensor.cu: a step of each pass, for what attention_ring_tensor_can. */
void tsr_cuda_attention_ring_tensor(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, tsr_attention_sum sum,
    const uint64_t *key, float *acc, void *scratch, const ring_arrays<uint16_t> &x);

#endif
