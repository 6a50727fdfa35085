// SPDX-License-Identifier: Apache-2.0
/* What a warp adds up with tensor cores, as FlashAttention-2 (Dao 2023): for out a tile of queries
 * over the keys at hand, for dq the same, for dk and dv a tile of keys over the queries at hand. At
 * hand is a whole sequence or one unit of it, as in attention_simt_passes.cuh, whose formulas these
 * are.
 *
 * Scores, softmax and sums stay in registers; the scores' layout is that of the left operand of the
 * product that follows. The tile that comes next is fetched meanwhile, or of the widest heads, of
 * which one tile lies in shared memory, each of its two matrices while the other is computed with.
 * Tiles that the diagonal, the window or the sequence's end cuts are masked; in the others nothing
 * is compared.
 *
 * Heads of queries and keys are padded to W, of values, out and dout to V = tensor_value_width(W).
 */
#ifndef TSR_KERNELS_CUDA_ATTENTION_TENSOR_PASSES_CUH
#define TSR_KERNELS_CUDA_ATTENTION_TENSOR_PASSES_CUH
#include "kernels/cuda/attention_tensor_gemms.cuh"
#include "kernels/cuda/attention_tensor_scores.cuh"

/* The first of the 16 * M rows of this thread's warp. */
static __device__ inline int tensor_row(int M) { return (int)threadIdx.x / TENSOR_LANES * 16 * M; }

/* Keys at hand, of one head, with their values. */
typedef struct {
  const uint16_t *k, *v;
  int64_t k_stride, v_stride;
} tensor_keys;

/* Fetches the tile from key t on: the keys, padded to W, or the values, to V. */
template <int W, int ROWS>
static __device__ inline void
keys_load(uint16_t *to, const tensor_keys &x, const tsr_attention &a, int64_t t) {
  tensor_load<W, ROWS, TENSOR_THREADS>(to, x.k + t * x.k_stride, x.k_stride, a.T - t, a.D);
}
template <int V, int ROWS>
static __device__ inline void
values_load(uint16_t *to, const tensor_keys &x, const tsr_attention &a, int64_t t) {
  tensor_load<V, ROWS, TENSOR_THREADS>(to, x.v + t * x.v_stride, x.v_stride, a.T - t, a.Dv);
}

/* ---- out: a warp has M runs of 16 queries ---- */

template <int W, int M> struct tensor_forward {
  static constexpr int QUERIES = 16 * M * TENSOR_WARPS, STRIDE = W + TENSOR_PAD;
  static constexpr int KEYS = tensor_forward_keys(W), KEYS_SIZE = KEYS * STRIDE;
  static constexpr int V = tensor_value_width(W);
  static constexpr int TILE_SIZE = KEYS * tensor_row_halves(W); /* keys and values */
  static constexpr int OTHER = tensor_tiles(W) - 1; /* of a tile's number, the other one's */
  static constexpr size_t HALVES = tensor_forward_halves(W);
  static constexpr bool HELD = M == 1 && W <= 128; /* the queries, in 32 registers at most */
  static_assert(M == tensor_forward_runs(W), "the tile of launch_attention");
};

/* A lane's numbers for M runs of 16 queries: rows lane/4 and lane/4 + 8 of each. `sum` is of this
 * lane's columns, till the end. */
template <int W, int M> struct forward_rows {
  static constexpr int V = tensor_value_width(W);
  float max[M][2], sum[M][2], out[M][V / 8][4];
};

template <int W, int M> static __device__ inline void rows_begin(forward_rows<W, M> *rows) {
#pragma unroll
  for (int m = 0; m < M; m++)
    for (int r = 0; r < 2; r++) rows->max[m][r] = -INFINITY, rows->sum[m][r] = 0;
  zero<forward_rows<W, M>::V, M>(rows->out);
}

/* A lane's sums become the rows', the same in all lanes of a row. */
template <int W, int M> static __device__ inline void rows_end(forward_rows<W, M> *rows) {
#pragma unroll
  for (int m = 0; m < M; m++)
    for (int r = 0; r < 2; r++) {
      rows->sum[m][r] += __shfl_xor_sync(0xffffffffu, rows->sum[m][r], 1);
      rows->sum[m][r] += __shfl_xor_sync(0xffffffffu, rows->sum[m][r], 2);
    }
}

/* Writes the statistics of run m of 16 queries of head h, of which `left` exist; `factor` is what
 * their sums are multiplied by, of the upper and the lower 8 rows. */
template <int W, int M>
static __device__ inline void rows_statistics(
    float (&factor)[2], const forward_rows<W, M> &rows, int m, const tsr_attention &a, int64_t h,
    int64_t left, float *stats) {
  float kept = a.dropout != 0 ? attention_kept(a) : 1.0f;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int t = tensor_c_row(2 * r);
    float max = rows.max[m][r] * LOG_2, sum = rows.sum[m][r];
    float shrunk = attention_sink(a, h, &max, &sum);
    factor[r] = kept * shrunk / sum;
    if (t >= left || tensor_lane() % 4 > 0) continue;
    stats[2 * t] = max;
    stats[2 * t + 1] = sum;
  }
}

/* In shared memory; a tile of keys lies before its values, and behind both the ones that come
 * next, of two tiles. */
typedef struct {
  uint16_t *queries, *keys;
  uint16_t *bits; /* of dropout */
} tensor_forward_parts;

template <int W, int M>
static __device__ inline tensor_forward_parts tensor_forward_layout(uint16_t *shared) {
  typedef tensor_forward<W, M> S;
  tensor_forward_parts p;
  p.queries = shared;
  p.keys = p.queries + S::QUERIES * S::STRIDE;
  p.bits = shared + S::HALVES;
  return p;
}

/* The tile of queries from `first` on lies in p.queries, or is being fetched. No warp reads p.keys
 * any more when this begins. */
template <tsr_cuda_type TYPE, int W, int M, tensor_variant VARIANT>
static __device__ inline void tensor_forward_add(
    forward_rows<W, M> *rows, const tensor_forward_parts &p, const tsr_attention &a,
    const attention_drop &dropout, int64_t first, const tensor_keys &all) {
  typedef tensor_forward<W, M> S;
  const int V = S::V, KEYS = S::KEYS;
  __shared__ attention_drop drop;
  __shared__ tensor_keys x;
  if (threadIdx.x == 0) x = all;
  if (VARIANT == TENSOR_DROPOUT && threadIdx.x == 0) drop = dropout;
  __syncthreads();
  int64_t end = attention_keys(a, first + S::QUERIES);
  int64_t begin = attention_keys_begin(a, first, end, KEYS);
  int row = tensor_row(M), turn = 0;
  float scores[M][KEYS / 8][4];
  keys_load<W, KEYS>(p.keys, x, a, begin);
  if (S::OTHER) values_load<V, KEYS>(p.keys + S::KEYS_SIZE, x, a, begin);
  tensor_fetch_wait();
  __syncthreads();
  const tensor_left<W, M, S::HELD> queries(p.queries, row);
  for (int64_t t = begin; t < end; t += KEYS, turn ^= S::OTHER) {
    uint16_t *keys = p.keys + turn * S::TILE_SIZE, *values = keys + S::KEYS_SIZE;
    uint16_t *after = p.keys + (turn ^ S::OTHER) * S::TILE_SIZE;
    int64_t next = t + KEYS;
    tensor_fetch_wait();
    __syncthreads();
    if (!S::OTHER) values_load<V, KEYS>(values, x, a, t);
    else if (next < end) {
      keys_load<W, KEYS>(after, x, a, next);
      values_load<V, KEYS>(after + S::KEYS_SIZE, x, a, next);
    }
    if (has_dropout<VARIANT>(a)) {
      attention_mask(p.bits, drop, first, t, S::QUERIES, KEYS);
      __syncthreads();
    }
    dot<TYPE, W, M, KEYS>(scores, queries, keys);
#pragma unroll
    for (int m = 0; m < M; m++) {
      /* asked of every call that may have one: a block of its own takes fewer registers */
      bool soft_cap = VARIANT != TENSOR_PLAIN && a.soft_cap != 0;
      float shrunk[2], factor = scores_factor<KEYS>(scores[m], a, soft_cap);
      scores_hide<KEYS, false>(scores[m], attention_bounds_of(a, first + row + 16 * m, t));
      softmax_step<KEYS>(rows->max[m], rows->sum[m], shrunk, scores[m], factor);
      if (has_dropout<VARIANT>(a)) scores_drop<KEYS>(scores[m], p.bits, row + 16 * m);
#pragma unroll
      for (int n = 0; n < V / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) rows->out[m][n][i] *= shrunk[i / 2];
    }
    if (!S::OTHER) {
      tensor_fetch_wait();
      __syncthreads();
      if (next < end) keys_load<W, KEYS>(keys, x, a, next);
    }
    add<TYPE, V, M, KEYS>(rows->out, scores, values);
  }
}

/* ---- dq, and dk and dv: a warp has M runs of 16 rows of the tile that stays; those that come have
 * OTHERS. Scores and dP are computed with the own tile to the left, so that P f and dS lie in
 * registers as the left operand of the products that follow. ---- */

template <int W, int M> struct tensor_backward {
  static constexpr int OWN = 16 * M * TENSOR_WARPS, OTHERS = tensor_backward_others(W);
  static constexpr int STRIDE = W + TENSOR_PAD, V = tensor_value_width(W);
  static constexpr bool ONE_WIDTH = W <= 128; /* D is Dv: one stride serves, to save registers */
  static constexpr int OTHER = tensor_tiles(W) - 1; /* of a tile's number, the other one's */
  static constexpr int VALUE_STRIDE = V + TENSOR_PAD;
  static constexpr int OWN_SIZE = OWN * STRIDE, OTHER_SIZE = OTHERS * STRIDE; /* of width W */
  static constexpr int OWN_SIZES = OWN * tensor_row_halves(W); /* of W and V together */
  static constexpr int OTHERS_SIZE = OTHERS * tensor_row_halves(W);
  static constexpr int ROWS = tensor_backward_rows(W); /* floats, of the one or the other tile */
  static constexpr size_t HALVES = tensor_backward_halves(W);
  static_assert(M == tensor_backward_runs(W), "the tile of launch_attention");
};

/* own: queries and douts, or keys and values, one behind the other; others: the other two, and of
 * two tiles the same again for the one that comes next; rows: of two tiles always. */
typedef struct {
  uint16_t *own, *others;
  float *rows;
  uint16_t *bits; /* of dropout */
} tensor_backward_parts;

template <int W, int M>
static __device__ inline tensor_backward_parts tensor_backward_layout(uint16_t *shared) {
  typedef tensor_backward<W, M> S;
  tensor_backward_parts p;
  p.own = shared;
  p.others = shared + S::OWN_SIZES;
  p.rows = (float *)(shared + S::HALVES);
  p.bits = (uint16_t *)(p.rows + 2 * S::ROWS);
  return p;
}

/* The tile of queries from `first` on lies in p.own with its douts, or is being fetched, and its
 * rows in p.rows. No warp reads p.others any more when this begins. */
template <tsr_cuda_type TYPE, int W, int M, tensor_variant VARIANT>
static __device__ inline void tensor_dq_add(
    float (&sums)[M][W / 8][4], const tensor_backward_parts &p, const tsr_attention &a,
    const attention_drop &dropout, int64_t first, const tensor_keys &all) {
  typedef tensor_backward<W, M> S;
  const int V = S::V, N = S::OTHERS;
  __shared__ attention_drop drop;
  __shared__ tensor_keys x;
  if (threadIdx.x == 0) x = all;
  if (VARIANT == TENSOR_DROPOUT && threadIdx.x == 0) drop = dropout;
  __syncthreads();
  int64_t end = attention_keys(a, first + S::OWN), begin = attention_keys_begin(a, first, end, N);
  int row = tensor_row(M), turn = 0;
  float scores[M][N / 8][4], grads[M][N / 8][4];
  const tensor_left<W, M, false> queries(p.own, row);
  const tensor_left<V, M, false> douts(p.own + S::OWN_SIZE, row);
  if (S::OTHER) keys_load<W, N>(p.others, x, a, begin);
  values_load<V, N>(p.others + S::OTHER_SIZE, x, a, begin);
  for (int64_t t = begin; t < end; t += N, turn ^= S::OTHER) {
    uint16_t *keys = p.others + turn * S::OTHERS_SIZE, *values = keys + S::OTHER_SIZE;
    uint16_t *after = p.others + (turn ^ S::OTHER) * S::OTHERS_SIZE;
    int64_t next = t + N;
    tensor_fetch_wait();
    __syncthreads();
    if (!S::OTHER) keys_load<W, N>(keys, x, a, t);
    else if (next < end) {
      keys_load<W, N>(after, x, a, next);
      values_load<V, N>(after + S::OTHER_SIZE, x, a, next);
    }
    if (has_dropout<VARIANT>(a)) {
      attention_mask(p.bits, drop, first, t, S::OWN, N);
      __syncthreads();
    }
    if (S::OTHER) dot<TYPE, W, M, N>(scores, queries, keys);
    dot<TYPE, V, M, N>(grads, douts, values);
    if (!S::OTHER) {
      tensor_fetch_wait();
      __syncthreads();
      if (next < end) values_load<V, N>(values, x, a, next);
      dot<TYPE, W, M, N>(scores, queries, keys);
    }
#pragma unroll
    for (int m = 0; m < M; m++)
      gradients<VARIANT, N, false>(
          scores[m], grads[m], a, p.rows, p.bits, attention_bounds_of(a, first + row + 16 * m, t),
          row + 16 * m, N);
    add<TYPE, W, M, N>(sums, grads, keys);
  }
}

/* The queries at hand of a group's heads: of the first head, and from one to the next, whose
 * numbers are `lines` rows apart. */
typedef struct {
  const uint16_t *q, *dout;
  int64_t stride, dout_stride, heads, lines;
  attention_statistics rows;
  attention_drop drop;
} tensor_queries;

/* A step of the pass of dk and dv: a tile of queries of one of the group's heads. */
typedef struct {
  int head, query;
} query_step;

static __device__ inline query_step
query_step_after(query_step step, int begin, int end, int size) {
  step.query += size;
  if (step.query >= end) step.query = begin, step.head++;
  return step;
}

/* Fetches of the tile the queries, the douts, or both; its rows are returned. */
template <int W, int M, bool QUERIES, bool DOUTS>
static __device__ inline query_row
step_load(uint16_t *to, const tsr_attention &a, const tensor_queries &x, query_step s) {
  typedef tensor_backward<W, M> S;
  int64_t start = s.head * a.D + s.query * x.stride, left = a.T - s.query;
  int64_t Dv = S::ONE_WIDTH ? a.D : a.Dv, dout_stride = S::ONE_WIDTH ? x.stride : x.dout_stride;
  int64_t dout_start = S::ONE_WIDTH ? start : s.head * Dv + s.query * dout_stride;
  attention_statistics rows = x.rows;
  rows.stats += s.head * x.lines * rows.stats_step;
  rows.delta += s.head * x.lines * rows.delta_step;
  if (QUERIES) tensor_load<W, S::OTHERS, TENSOR_THREADS>(to, x.q + start, x.stride, left, a.D);
  if (DOUTS)
    tensor_load<S::V, S::OTHERS, TENSOR_THREADS>(
        to + S::OTHER_SIZE, x.dout + dout_start, dout_stride, left, Dv);
  return query_row_read(rows, s.query, a.T, S::OTHERS);
}

/* Of which sums a pass over the queries is. */
typedef enum { TENSOR_DK = 1, TENSOR_DV = 2, TENSOR_DKV = TENSOR_DK | TENSOR_DV } tensor_sums;

/* The tile of keys from `first` on lies in p.own with its values, or is being fetched. No warp
 * reads p.others or p.rows any more when this begins. The heads are added in their order. Of one
 * tile the matrix that is needed first, douts for dk and queries for dv, is fetched before the
 * other. */
template <tsr_cuda_type TYPE, int W, int M, tensor_variant VARIANT, tensor_sums SUMS>
static __device__ inline void tensor_dkv_add(
    float (&dk)[M][W / 8][4], float (&dv)[M][tensor_value_width(W) / 8][4],
    const tensor_backward_parts &p, const tsr_attention &of, const tensor_queries &all,
    int64_t first) {
  typedef tensor_backward<W, M> S;
  constexpr bool QUERIES = S::OTHER || SUMS == TENSOR_DV, DOUTS = S::OTHER || SUMS == TENSOR_DK;
  static_assert(S::OTHER || SUMS != TENSOR_DKV, "one tile serves one sum");
  const int N = S::OTHERS, V = S::V;
  __shared__ tensor_queries x;
  __shared__ tsr_attention a;
  if (threadIdx.x == 0) x = all, a = of;
  __syncthreads();
  int begin = (int)attention_queries(a, first, N);
  int end = (int)attention_queries_end(a, begin, first + S::OWN);
  int row = tensor_row(M), turn = 0;
  /* queries at once: sums of wide heads take registers, and so do a soft cap, and a mask beside the
   * sums of two runs */
  constexpr bool HALF =
      W > 128 || VARIANT == TENSOR_SOFT_CAP || (VARIANT == TENSOR_DROPOUT && M > 1);
  const int H = S::OTHER && HALF ? N / 2 : N;
  float scores[M][H / 8][4], grads[M][H / 8][4];
  if (SUMS == TENSOR_DV) zero<H, M>(grads); /* which nothing reads */
  const tensor_left<W, M, false> keys(p.own, row);
  const tensor_left<V, M, false> values(p.own + S::OWN_SIZE, row);
  query_step step = {0, begin};
  query_row_write(p.rows, step_load<W, M, QUERIES, DOUTS>(p.others, a, x, step), N);
  while (step.head < x.heads) {
    uint16_t *tile = p.others + turn * S::OTHER * S::OTHERS_SIZE;
    query_step next = query_step_after(step, begin, end, N);
    query_row coming = {};
    tensor_fetch_wait();
    __syncthreads();
    if (!S::OTHER) step_load<W, M, !QUERIES, !DOUTS>(tile, a, x, step);
    else if (next.head < x.heads)
      coming = step_load<W, M, QUERIES, DOUTS>(p.others + (turn ^ 1) * S::OTHERS_SIZE, a, x, next);
    if (has_dropout<VARIANT>(a)) {
      attention_drop drop = attention_drop_next(x.drop, step.head);
      attention_mask(p.bits, drop, step.query, first, N, S::OWN);
      __syncthreads();
    }
#pragma unroll 1
    for (int h = 0; h < N; h += H, tile += H * S::STRIDE) {
      const uint16_t *douts = tile + S::OTHER_SIZE - h * (W - V);
      if (SUMS != TENSOR_DK) dot<TYPE, W, M, H>(scores, keys, tile);
      if (SUMS != TENSOR_DV) dot<TYPE, V, M, H>(grads, values, douts);
      if (!S::OTHER) {
        tensor_fetch_wait();
        __syncthreads();
        if (next.head < x.heads) coming = step_load<W, M, QUERIES, DOUTS>(tile, a, x, next);
      }
      if (SUMS == TENSOR_DK) dot<TYPE, W, M, H>(scores, keys, tile);
#pragma unroll
      for (int m = 0; m < M; m++)
        gradients<VARIANT, H, true>(
            scores[m], grads[m], a, p.rows + turn * S::ROWS + 2 * h,
            p.bits + h * S::OWN / ATTENTION_RUN,
            attention_bounds_of(a, step.query + h, first + row + 16 * m), row + 16 * m, S::OWN);
      if (SUMS & TENSOR_DV) add<TYPE, V, M, H>(dv, scores, douts);
      if (SUMS & TENSOR_DK) add<TYPE, W, M, H>(dk, grads, tile);
    }
    turn ^= 1;
    query_row_write(p.rows + turn * S::ROWS, coming, N); /* nobody reads these by now */
    step = next;
  }
}

#endif
