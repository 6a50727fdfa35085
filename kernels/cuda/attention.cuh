// SPDX-License-Identifier: Apache-2.0
/* What the passes of attention share: where a head lies in its arrays, which keys a query sees, and
 * dropout's mask.
 *
 * All passes go over tiles of queries and tiles of keys (Dao et al. 2022, Dao 2023) whose sizes are
 * constants of a pass and of the padded head size, and begin at multiples of them: a sum's order
 * follows from the position in the sequence alone. A tile that causality or the window hides wholly
 * is left out, which changes no bit: it would add zeros.
 *
 * On the device, heads of values have their width in a.Dv always (attention_with_value_size). */
#ifndef TSR_KERNELS_CUDA_ATTENTION_CUH
#define TSR_KERNELS_CUDA_ATTENTION_CUH
#include "kernels/cuda/attention_shape.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/philox.cuh"

/* One head of one sequence: row t of its queries is at q_start + t * q_stride, and so are its keys
 * (k), its values (v) and its rows of out and dout (o); `line` counts the (b,h) in statistics. */
typedef struct {
  int64_t b, h, line, q_start, k_start, v_start, o_start, q_stride, k_stride, v_stride, o_stride;
} attention_head;

static __device__ inline attention_head
attention_head_at(const tsr_attention &a, int64_t b, int64_t h) {
  attention_head at;
  int64_t g = h / (a.H / a.G);
  at.b = b;
  at.h = h;
  at.line = b * a.H + h;
  at.q_stride = a.H * a.D;
  at.k_stride = a.G * a.D;
  at.v_stride = a.G * a.Dv;
  at.o_stride = a.H * a.Dv;
  at.q_start = b * a.T * at.q_stride + h * a.D;
  at.k_start = b * a.T * at.k_stride + g * a.D;
  at.v_start = b * a.T * at.v_stride + g * a.Dv;
  at.o_start = b * a.T * at.o_stride + h * a.Dv;
  return at;
}

/* A block's tile: those of a head's last queries, which see most keys, come first. `lines` is B*H
 * or, for tiles of keys, B*G (where the first ones are seen by most). */
typedef struct {
  int64_t line, first;
} attention_item;

static __device__ inline attention_item attention_item_of_queries(int64_t lines, int size) {
  int64_t tiles = gridDim.x / lines;
  attention_item item;
  item.line = blockIdx.x % lines;
  item.first = (tiles - 1 - blockIdx.x / lines) * size;
  return item;
}

static __device__ inline attention_item attention_item_of_keys(int64_t lines, int size) {
  attention_item item;
  item.line = blockIdx.x % lines;
  item.first = blockIdx.x / lines * (int64_t)size;
  return item;
}

/* Rows of a block's tile that belong to one document (tsr_attention.positions): `count` rows from
 * `row` on, of those that the rank computes; the first one is the document's token `first`, and
 * stands at `at` in the sequence, where the document has the tokens [begin, begin + length). */
typedef struct {
  int64_t row, count, at, first, begin, length;
} attention_part;

/* How many positions of a sequence the rank computes. */
static __device__ inline int64_t attention_own(const tsr_attention &a) {
  return a.rows.runs ? a.rows.runs * a.rows.each : a.T;
}

/* The first token behind `token`, before `limit`, that begins a document; by warps whose lanes all
 * come here. */
static __device__ inline int64_t
attention_document_end(const int32_t *positions, int64_t token, int64_t limit) {
  for (int64_t t = token + 1; t < limit; t += TSR_WARP) {
    int64_t at = t + threadIdx.x % TSR_WARP;
    int first = at < limit && positions[at] == 0 ? (int)(threadIdx.x % TSR_WARP) : TSR_WARP;
    for (int n = TSR_WARP / 2; n; n /= 2) {
      int other = __shfl_xor_sync(0xffffffffu, first, n);
      first = other < first ? other : first;
    }
    if (first < TSR_WARP) return t + first;
  }
  return limit;
}

/* The part that begins at `row` of the tile's rows before `end`, of sample b. Its document's end is
 * looked for where later tokens matter: to tiles of `keys`, and to queries that see later keys. */
static __device__ inline attention_part
attention_part_at(const tsr_attention &a, int64_t b, int64_t row, int64_t end, bool keys) {
  attention_part p = {row, end - row, row, row, 0, a.T};
  if (a.rows.runs) {
    int64_t run = row / a.rows.each, left = (run + 1) * a.rows.each - row;
    p.at = a.rows.first[run] + row % a.rows.each;
    if (left < p.count) p.count = left;
  }
  p.first = p.at;
  if (!a.positions) return p;
  const int32_t *positions = a.positions + b * a.T;
  int64_t position = positions[p.at];
  p.begin = position > 0 && position <= p.at ? p.at - position : p.at;
  p.first = p.at - p.begin;
  int64_t limit = keys || !a.causal ? a.T : p.at + p.count;
  int64_t document_end = attention_document_end(positions, p.at, limit);
  p.length = document_end - p.begin;
  if (document_end - p.at < p.count) p.count = document_end - p.at;
  return p;
}

/* Of a sequence that has the part's document alone. */
static __device__ inline tsr_attention
attention_of_part(const tsr_attention &a, const attention_part &part) {
  tsr_attention alone = a;
  alone.T = part.length;
  return alone;
}

/* A head at the part's document, in arrays that have all positions; and the number of its part's
 * first row of D or Dv in an array that has those that the rank computes, of `heads` heads, of
 * which it is the h-th. */
static __device__ inline attention_head
attention_head_of_part(const tsr_attention &a, const attention_part &part, int64_t b, int64_t h) {
  attention_head at = attention_head_at(a, b, h);
  at.q_start += part.begin * at.q_stride;
  at.k_start += part.begin * at.k_stride;
  at.v_start += part.begin * at.v_stride;
  at.o_start += part.begin * at.o_stride;
  return at;
}
static __device__ inline int64_t attention_own_row(
    const tsr_attention &a, const attention_part &part, int64_t b, int64_t h, int64_t heads) {
  return (b * attention_own(a) + part.row) * heads + h;
}

/* The end of a tile of rows that the rank computes. */
static __device__ inline int64_t
attention_tile_end(const tsr_attention &a, int64_t first, int size) {
  int64_t own = attention_own(a);
  return first + size < own ? first + size : own;
}

/* Keys before this one are seen by some query before `end`. */
static __device__ inline int64_t attention_keys(const tsr_attention &a, int64_t end) {
  return a.causal && end < a.T ? end : a.T;
}

/* The first key of the first tile that query `first` sees, of those before `end`: a tile at least
 * is left. */
static __device__ inline int64_t
attention_keys_begin(const tsr_attention &a, int64_t first, int64_t end, int size) {
  int64_t hidden = a.window ? first + a.behind - a.window + 1 : 0;
  if (hidden > end - 1) hidden = end - 1;
  return hidden > 0 ? hidden / size * size : 0;
}

/* The first query of the first tile that sees key `first`. */
static __device__ inline int64_t
attention_queries(const tsr_attention &a, int64_t first, int size) {
  return a.causal ? first / size * size : 0;
}

/* Queries before this one see some key before `end`, from query `begin` on: one at least is left.
 */
static __device__ inline int64_t
attention_queries_end(const tsr_attention &a, int64_t begin, int64_t end) {
  int64_t seen = a.window ? end - 1 + a.window - a.behind : a.T;
  if (seen <= begin) seen = begin + 1;
  return seen < a.T ? seen : a.T;
}

/* What is seen of a tile pair that begins at a query and a key: the n-th key behind the first one,
 * by the m-th query, where n < end and lower < n - m <= upper. */
typedef struct {
  int end, lower, upper;
} attention_bounds;

static __device__ inline int attention_clamp(int64_t n) {
  const int64_t most = 1 << 30;
  return (int)(n > most ? most : n < -most ? -most : n);
}

static __device__ inline attention_bounds
attention_bounds_of(const tsr_attention &a, int64_t query, int64_t key) {
  attention_bounds b;
  b.end = attention_clamp(a.T - key);
  b.upper = attention_clamp(a.causal ? query - key : INT64_MAX);
  b.lower = attention_clamp(a.window ? query - key + a.behind - a.window : INT64_MIN);
  return b;
}

static __device__ inline bool attention_seen(const attention_bounds &b, int query, int key) {
  return key < b.end && key - query <= b.upper && key - query > b.lower;
}

/* Whether some query of a tile pair does not see some key of it. */
static __device__ inline bool attention_masked(const attention_bounds &b, int queries, int keys) {
  return keys > b.end || keys - 1 > b.upper || 1 - queries <= b.lower;
}

/* What is subtracted from scores whose maximum this is: a window may show a query none of the keys
 * so far. */
static __device__ inline float attention_base(float max) { return max == -INFINITY ? 0.0f : max; }

/* One term more in a row's sum of exp(score - max): the sink of its head, if there are sinks.
 * Returns what the row of weighted values is multiplied by. */
static __device__ inline float
attention_sink(const tsr_attention &a, int64_t h, float *max, float *sum) {
  if (!a.sinks) return 1;
  float most = fmaxf(*max, a.sinks[h]), base = attention_base(most), shrunk = expf(*max - base);
  *sum = *sum * shrunk + expf(a.sinks[h] - base);
  *max = most;
  return shrunk;
}

/* 1/(1-p) */
static __device__ inline float attention_kept(const tsr_attention &a) {
  return 1.0f / (1.0f - a.dropout);
}

/* Which of the run of keys that begins at the element are kept: one bit each. */
static __device__ inline uint16_t attention_run(uint64_t element, float p, uint64_t key) {
  uint64_t counter = element / 4;
  uint32_t bits = 0;
  for (int i = -(int)(element % 4); i < ATTENTION_RUN; i += 4, counter++) {
    philox_words words = philox_at(counter, key);
#pragma unroll
    for (int w = 0; w < 4; w++)
      if (i + w >= 0 && i + w < ATTENTION_RUN && !(philox_uniform(words.word[w]) < p))
        bits |= 1u << (i + w);
  }
  return (uint16_t)bits;
}

/* Dropout of one head: `element` is the number of its first query and key at hand, and those of one
 * query lie `step` behind the ones of the query before. Heads from `gap_from` behind this one on
 * lie `gap` heads further. */
typedef struct {
  float p;
  uint64_t key, element, step;
  int64_t gap_from, gap;
} attention_drop;

/* Of a sequence of `length`, from that query and key on. */
static __device__ inline attention_drop attention_drop_at(
    const tsr_attention &a, const uint64_t *key, const attention_head &at, int64_t length,
    int64_t query, int64_t key_first) {
  uint64_t line = (uint64_t)((at.b + a.batch_offset) * a.heads_global + at.h + a.head_offset);
  if (2 * at.h >= a.H) line += (uint64_t)a.head_gap;
  attention_drop drop;
  drop.p = a.dropout;
  drop.key = a.dropout != 0 ? *key : 0;
  drop.step = (uint64_t)length;
  drop.element = (line * drop.step + (uint64_t)query) * drop.step + (uint64_t)key_first;
  drop.gap_from = (a.H + 1) / 2 - at.h;
  drop.gap = 2 * at.h >= a.H ? 0 : a.head_gap; /* it is in `element` then */
  return drop;
}

/* The same of the n-th head behind it. */
static __device__ inline attention_drop attention_drop_next(attention_drop drop, int64_t n) {
  int64_t heads = n + (n >= drop.gap_from ? drop.gap : 0);
  drop.element += (uint64_t)heads * drop.step * drop.step;
  return drop;
}

/* bits (queries, keys / RUN) of a tile, by all threads of the block. */
static __device__ inline void attention_mask(
    uint16_t *bits, const attention_drop &drop, int64_t query, int64_t key, int queries, int keys) {
  int runs = keys / ATTENTION_RUN;
  for (int i = (int)threadIdx.x; i < queries * runs; i += (int)blockDim.x) {
    uint64_t row = drop.element + (uint64_t)(query + i / runs) * drop.step;
    bits[i] = attention_run(row + (uint64_t)(key + i % runs * ATTENTION_RUN), drop.p, drop.key);
  }
}

static __device__ inline bool attention_bit(const uint16_t *bits, int keys, int query, int key) {
  return bits[query * (keys / ATTENTION_RUN) + key / ATTENTION_RUN] >> key % ATTENTION_RUN & 1;
}

/* Where the numbers of a head's queries are, from some query on: the maximum and the sum beside it,
 * and delta = dout . out. */
typedef struct {
  const float *stats, *delta;
  int stats_step, delta_step;
} attention_statistics;

static __device__ inline attention_statistics
attention_statistics_at(const float *stats, const float *delta, int64_t row) {
  attention_statistics at = {stats + 2 * row, delta + row, 2, 1};
  return at;
}

/* rows (queries, 3): what the backward passes without tensor cores need of a query, the maximum,
 * 1 / the sum, and delta, for the queries from `first` on, which exist up to `end`; zeros for what
 * pads a tile, which makes its probabilities 0. */
static __device__ inline void attention_rows(
    float *rows, const attention_statistics &at, int64_t first, int64_t end, int queries) {
  for (int i = (int)threadIdx.x; i < queries; i += (int)blockDim.x) {
    bool real = first + i < end;
    const float *stats = at.stats + (first + i) * at.stats_step;
    rows[3 * i] = real ? stats[0] : 0;
    rows[3 * i + 1] = real ? 1.0f / stats[1] : 0;
    rows[3 * i + 2] = real ? at.delta[(first + i) * at.delta_step] : 0;
  }
}

static inline tsr_attention attention_with_value_size(const tsr_attention *a) {
  tsr_attention b = *a;
  b.Dv = tsr_attention_value_size(a);
  return b;
}

/* attention_tensor.cu and attention_tensor_backward.cu: the tensor cores' passes, for what
 * attention_tensor_can. */
void tsr_cuda_attention_tensor(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *out,
    float *stats, const void *q, const void *k, const void *v);
/* delta (B,H,T) */
void tsr_cuda_attention_tensor_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *dq,
    void *dk, void *dv, const void *dout, const void *q, const void *k, const void *v,
    const float *stats, const float *delta);
/* attention_wgmma_backward.cu: the same for what attention_wgmma_can */
void tsr_cuda_attention_wgmma_gradients(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *dq, void *dk, void *dv,
    const void *dout, const void *q, const void *k, const void *v, const float *stats,
    const float *delta);

#endif
