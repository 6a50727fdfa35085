// SPDX-License-Identifier: Apache-2.0
/* What a warp adds up with tensor cores, as FlashAttention-2 (Dao 2023): for out a tile of queries
 * over the keys at hand, for dq the same, for dk and dv a tile of keys over the queries at hand. At
 * hand is a whole sequence or one unit of it, as in attention_simt_passes.cuh, whose formulas these
 * are.
 *
 * Scores, softmax and sums stay in registers; the scores' layout is that of the left operand of the
 * product that follows. The tile that comes next is fetched meanwhile. Tiles that the diagonal, the
 * window or the sequence's end cuts are masked; in the others nothing is compared.
 *
 * Heads of queries and keys are padded to W, of values, out and dout to V = tensor_value_width(W).
 *
 * Powers are of 2: the factor of scores is scale * log2(e), which is positive, and a maximum in
 * forward_rows has it. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_TENSOR_PASSES_CUH
#define TSR_KERNELS_CUDA_ATTENTION_TENSOR_PASSES_CUH
#include "kernels/cuda/attention_tensor_gemms.cuh"

#define LOG2_E 1.4426950408889634f
#define LOG_2 0.6931471805599453f

/* The first of the 16 * M rows of this thread's warp. */
static __device__ inline int tensor_row(int M) { return (int)threadIdx.x / TENSOR_LANES * 16 * M; }

/* DROP: there may be dropout, without which the state of its mask takes no registers. What a loop
 * needs once a tile lies in shared memory: sums take most of the 255 registers of a thread, and
 * what does not fit into them is spilled (scripts/kernel_registers). */

/* Keys at hand, of one head, with their values. */
typedef struct {
  const uint16_t *k, *v;
  int64_t k_stride, v_stride;
} tensor_keys;

/* Scores (16, N) of keys that a query does not see become -INFINITY. Rows are queries, or where
 * `transposed` keys; the bounds are of the first of both. */
template <int N, bool transposed>
static __device__ inline void
scores_hide(float (&scores)[N / 8][4], const attention_bounds &bounds) {
  if (!attention_masked(bounds, transposed ? N : 16, transposed ? 16 : N)) return;
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int own = tensor_c_row(i), other = n * 8 + tensor_c_column(i);
      if (!attention_seen(bounds, transposed ? other : own, transposed ? own : other))
        scores[n][i] = -INFINITY;
    }
}

/* ---- out: a warp has M runs of 16 queries ---- */

template <int W, int M> struct tensor_forward {
  static constexpr int QUERIES = 16 * M * TENSOR_WARPS, STRIDE = W + TENSOR_PAD;
  static constexpr int V = tensor_value_width(W), KEYS_SIZE = TENSOR_KEYS * STRIDE;
  static constexpr int TILE_SIZE = TENSOR_KEYS * tensor_row_halves(W); /* keys and values */
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

/* Scores to 2^(score * factor - max), and all sums of before to the new maximum. */
static __device__ inline void softmax_step(
    float (&max)[2], float (&sum)[2], float (&shrunk)[2], float (&scores)[TENSOR_KEYS / 8][4],
    float factor) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float most = -INFINITY, added = 0;
#pragma unroll
    for (int n = 0; n < TENSOR_KEYS / 8; n++)
      most = fmaxf(most, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(max[r], fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)) * factor);
    float base = attention_base(most);
    shrunk[r] = tensor_power(max[r] - base);
#pragma unroll
    for (int n = 0; n < TENSOR_KEYS / 8; n++)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; i++)
        added += scores[n][i] = tensor_power(fmaf(scores[n][i], factor, -base));
    sum[r] = sum[r] * shrunk[r] + added;
    max[r] = most;
  }
}

static __device__ inline void
scores_drop(float (&scores)[TENSOR_KEYS / 8][4], const uint16_t *bits, int row) {
#pragma unroll
  for (int n = 0; n < TENSOR_KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (!attention_bit(bits, TENSOR_KEYS, row + tensor_c_row(i), n * 8 + tensor_c_column(i)))
        scores[n][i] = 0;
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

/* In shared memory; a tile of keys lies before its values, and behind both the ones that come
 * next. */
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
template <tsr_cuda_type TYPE, int W, int M, bool DROP>
static __device__ inline void tensor_forward_add(
    forward_rows<W, M> *rows, const tensor_forward_parts &p, const tsr_attention &a,
    const attention_drop &dropout, int64_t first, const tensor_keys &all) {
  typedef tensor_forward<W, M> S;
  const int V = S::V;
  __shared__ attention_drop drop;
  __shared__ tensor_keys x;
  if (threadIdx.x == 0) x = all;
  if (DROP && threadIdx.x == 0) drop = dropout;
  __syncthreads();
  const int QUERIES = S::QUERIES, KEYS = TENSOR_KEYS, THREADS = TENSOR_THREADS;
  int64_t end = attention_keys(a, first + QUERIES);
  int64_t begin = attention_keys_begin(a, first, end, KEYS);
  int row = tensor_row(M), turn = 0;
  float factor = a.scale * LOG2_E, scores[M][KEYS / 8][4];
  tensor_load<W, KEYS, THREADS>(p.keys, x.k + begin * x.k_stride, x.k_stride, a.T - begin, a.D);
  tensor_load<V, KEYS, THREADS>(
      p.keys + S::KEYS_SIZE, x.v + begin * x.v_stride, x.v_stride, a.T - begin, a.Dv);
  tensor_fetch_wait();
  __syncthreads();
  const tensor_left<W, M, S::HELD> queries(p.queries, row);
  for (int64_t t = begin; t < end; t += KEYS, turn ^= 1) {
    const uint16_t *keys = p.keys + turn * S::TILE_SIZE;
    uint16_t *after = p.keys + (turn ^ 1) * S::TILE_SIZE;
    int64_t next = t + KEYS;
    tensor_fetch_wait();
    __syncthreads();
    if (next < end) {
      tensor_load<W, KEYS, THREADS>(after, x.k + next * x.k_stride, x.k_stride, a.T - next, a.D);
      tensor_load<V, KEYS, THREADS>(
          after + S::KEYS_SIZE, x.v + next * x.v_stride, x.v_stride, a.T - next, a.Dv);
    }
    if (DROP && a.dropout != 0) {
      attention_mask(p.bits, drop, first, t, QUERIES, KEYS);
      __syncthreads();
    }
    dot<TYPE, W, M, KEYS>(scores, queries, keys);
#pragma unroll
    for (int m = 0; m < M; m++) {
      float shrunk[2];
      scores_hide<KEYS, false>(scores[m], attention_bounds_of(a, first + row + 16 * m, t));
      softmax_step(rows->max[m], rows->sum[m], shrunk, scores[m], factor);
      if (DROP && a.dropout != 0) scores_drop(scores[m], p.bits, row + 16 * m);
#pragma unroll
      for (int n = 0; n < V / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) rows->out[m][n][i] *= shrunk[i / 2];
    }
    add<TYPE, V, M, KEYS>(rows->out, scores, keys + S::KEYS_SIZE);
  }
}

/* ---- dq, and dk and dv: a warp has M runs of 16 rows of the tile that stays; those that come have
 * OTHERS. Scores and dP are computed with the own tile to the left, so that P f and dS lie in
 * registers as the left operand of the products that follow. ---- */

template <int W, int M> struct tensor_backward {
  static constexpr int OWN = 16 * M * TENSOR_WARPS, OTHERS = TENSOR_OTHERS;
  static constexpr int STRIDE = W + TENSOR_PAD, V = tensor_value_width(W);
  static constexpr bool ONE_WIDTH = V == W; /* one stride serves, which saves registers */
  static constexpr int VALUE_STRIDE = V + TENSOR_PAD;
  static constexpr int OWN_SIZE = OWN * STRIDE, OTHER_SIZE = OTHERS * STRIDE; /* of width W */
  static constexpr int OWN_SIZES = OWN * tensor_row_halves(W); /* of W and V together */
  static constexpr int OTHERS_SIZE = OTHERS * tensor_row_halves(W);
  static constexpr int ROWS = tensor_backward_rows(W); /* floats, of the one or the other tile */
  static constexpr size_t HALVES = tensor_backward_halves(W);
  static_assert(M == tensor_backward_runs(W), "the tile of launch_attention");
};

/* own: queries and douts, or keys and values, one behind the other; others: the other two, and the
 * same again for the tile that comes next; so the rows. */
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

/* A thread's query of a tile: log2 of the sum of 2^(score * factor), and delta. A query that pads
 * the tile has a sum that makes its probabilities 0. */
typedef struct {
  float sum, delta;
} query_row;

/* Query `first` + n of those before `end`; the tile has `queries`. */
static __device__ inline query_row
query_row_read(const attention_statistics &at, int64_t first, int64_t end, int queries) {
  query_row row = {INFINITY, 0};
  int64_t query = first + (int)threadIdx.x;
  if ((int)threadIdx.x >= queries || query >= end) return row;
  const float *stats = at.stats + query * at.stats_step;
  row.sum = fmaf(stats[0], LOG2_E, log2f(stats[1]));
  row.delta = at.delta[query * at.delta_step];
  return row;
}

/* rows (queries, 2) */
static __device__ inline void query_row_write(float *rows, const query_row &row, int queries) {
  if ((int)threadIdx.x >= queries) return;
  rows[2 * threadIdx.x] = row.sum;
  rows[2 * threadIdx.x + 1] = row.delta;
}

/* Scores and dP of a warp (16, N) to P f and dS. Rows are queries, or where `transposed` keys, from
 * `row` of the tile on; `keys` is the width of the mask, and the bounds are of the warp's. */
template <int N, bool transposed, bool DROP>
static __device__ inline void gradients(
    float (&scores)[N / 8][4], float (&grads)[N / 8][4], const tsr_attention &a, const float *rows,
    const uint16_t *bits, const attention_bounds &bounds, int row, int keys) {
  float factor = a.scale * LOG2_E;
  scores_hide<N, transposed>(scores, bounds);
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int own = row + tensor_c_row(i), other = n * 8 + tensor_c_column(i);
      int q = transposed ? other : own, k = transposed ? own : other;
      float x = tensor_power(fmaf(scores[n][i], factor, -rows[2 * q])), delta = rows[2 * q + 1];
      if (DROP && a.dropout != 0) {
        float kept = attention_bit(bits, keys, q, k) ? attention_kept(a) : 0.0f;
        scores[n][i] = x * kept;
        grads[n][i] = x * fmaf(grads[n][i], kept, -delta);
      } else {
        scores[n][i] = x;
        grads[n][i] = x * (grads[n][i] - delta);
      }
    }
}

/* The tile of queries from `first` on lies in p.own with its douts, or is being fetched, and its
 * rows in p.rows. No warp reads p.others any more when this begins. */
template <tsr_cuda_type TYPE, int W, int M, bool DROP>
static __device__ inline void tensor_dq_add(
    float (&sums)[M][W / 8][4], const tensor_backward_parts &p, const tsr_attention &a,
    const attention_drop &dropout, int64_t first, const tensor_keys &all) {
  typedef tensor_backward<W, M> S;
  const int V = S::V;
  __shared__ attention_drop drop;
  __shared__ tensor_keys x;
  if (threadIdx.x == 0) x = all;
  if (DROP && threadIdx.x == 0) drop = dropout;
  __syncthreads();
  const int N = S::OTHERS;
  int64_t end = attention_keys(a, first + S::OWN);
  int64_t begin = attention_keys_begin(a, first, end, N), left = a.T - begin;
  int row = tensor_row(M), turn = 0;
  float scores[M][N / 8][4], grads[M][N / 8][4];
  const tensor_left<W, M, false> queries(p.own, row);
  const tensor_left<V, M, false> douts(p.own + S::OWN_SIZE, row);
  tensor_load<W, N, TENSOR_THREADS>(p.others, x.k + begin * x.k_stride, x.k_stride, left, a.D);
  tensor_load<V, N, TENSOR_THREADS>(
      p.others + S::OTHER_SIZE, x.v + begin * x.v_stride, x.v_stride, left, a.Dv);
  for (int64_t t = begin; t < end; t += N, turn ^= 1) {
    const uint16_t *tile = p.others + turn * S::OTHERS_SIZE;
    uint16_t *after = p.others + (turn ^ 1) * S::OTHERS_SIZE;
    int64_t next = t + N;
    tensor_fetch_wait();
    __syncthreads();
    if (next < end) {
      tensor_load<W, N, TENSOR_THREADS>(
          after, x.k + next * x.k_stride, x.k_stride, a.T - next, a.D);
      tensor_load<V, N, TENSOR_THREADS>(
          after + S::OTHER_SIZE, x.v + next * x.v_stride, x.v_stride, a.T - next, a.Dv);
    }
    if (DROP && a.dropout != 0) {
      attention_mask(p.bits, drop, first, t, S::OWN, N);
      __syncthreads();
    }
    dot<TYPE, W, M, N>(scores, queries, tile);
    dot<TYPE, V, M, N>(grads, douts, tile + S::OTHER_SIZE);
#pragma unroll
    for (int m = 0; m < M; m++)
      gradients<N, false, DROP>(
          scores[m], grads[m], a, p.rows, p.bits, attention_bounds_of(a, first + row + 16 * m, t),
          row + 16 * m, N);
    add<TYPE, W, M, N>(sums, grads, tile);
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

/* Fetches the tile; its rows are returned. */
template <int W, int M>
static __device__ inline query_row step_load(
    const tensor_backward_parts &p, int turn, const tsr_attention &a, const tensor_queries &x,
    query_step s) {
  typedef tensor_backward<W, M> S;
  uint16_t *to = p.others + turn * S::OTHERS_SIZE;
  int64_t start = s.head * a.D + s.query * x.stride, left = a.T - s.query;
  int64_t Dv = S::ONE_WIDTH ? a.D : a.Dv, dout_stride = S::ONE_WIDTH ? x.stride : x.dout_stride;
  int64_t dout_start = S::ONE_WIDTH ? start : s.head * Dv + s.query * dout_stride;
  attention_statistics rows = x.rows;
  rows.stats += s.head * x.lines * rows.stats_step;
  rows.delta += s.head * x.lines * rows.delta_step;
  tensor_load<W, S::OTHERS, TENSOR_THREADS>(to, x.q + start, x.stride, left, a.D);
  tensor_load<S::V, S::OTHERS, TENSOR_THREADS>(
      to + S::OTHER_SIZE, x.dout + dout_start, dout_stride, left, Dv);
  return query_row_read(rows, s.query, a.T, S::OTHERS);
}

/* The tile of keys from `first` on lies in p.own with its values, or is being fetched. No warp
 * reads p.others or p.rows any more when this begins. The heads are added in their order. */
template <tsr_cuda_type TYPE, int W, int M, bool DROP>
static __device__ inline void tensor_dkv_add(
    float (&dk)[M][W / 8][4], float (&dv)[M][tensor_value_width(W) / 8][4],
    const tensor_backward_parts &p, const tsr_attention &of, const tensor_queries &all,
    int64_t first) {
  typedef tensor_backward<W, M> S;
  const int N = S::OTHERS, V = S::V;
  __shared__ tensor_queries x;
  __shared__ tsr_attention a;
  if (threadIdx.x == 0) x = all, a = of;
  __syncthreads();
  int begin = (int)attention_queries(a, first, N);
  int end = (int)attention_queries_end(a, begin, first + S::OWN);
  int row = tensor_row(M), turn = 0;
  /* queries at once: sums of wide heads take registers, and so does the mask beside those of two
   * runs */
  const int H = W > 128 || (DROP && M > 1) ? N / 2 : N;
  float scores[M][H / 8][4], grads[M][H / 8][4];
  const tensor_left<W, M, false> keys(p.own, row);
  const tensor_left<V, M, false> values(p.own + S::OWN_SIZE, row);
  query_step step = {0, begin};
  query_row_write(p.rows, step_load<W, M>(p, 0, a, x, step), N);
  while (step.head < x.heads) {
    const uint16_t *tile = p.others + turn * S::OTHERS_SIZE;
    query_step next = query_step_after(step, begin, end, N);
    query_row coming = {};
    tensor_fetch_wait();
    __syncthreads();
    if (next.head < x.heads) coming = step_load<W, M>(p, turn ^ 1, a, x, next);
    if (DROP && a.dropout != 0) {
      attention_drop drop = attention_drop_next(x.drop, step.head);
      attention_mask(p.bits, drop, step.query, first, N, S::OWN);
      __syncthreads();
    }
#pragma unroll 1
    for (int h = 0; h < N; h += H, tile += H * S::STRIDE) {
      const uint16_t *douts = tile + S::OTHER_SIZE - h * (W - V);
      dot<TYPE, W, M, H>(scores, keys, tile);
      dot<TYPE, V, M, H>(grads, values, douts);
#pragma unroll
      for (int m = 0; m < M; m++)
        gradients<H, true, DROP>(
            scores[m], grads[m], a, p.rows + turn * S::ROWS + 2 * h,
            p.bits + h * S::OWN / ATTENTION_RUN,
            attention_bounds_of(a, step.query + h, first + row + 16 * m), row + 16 * m, S::OWN);
      add<TYPE, V, M, H>(dv, scores, douts);
      add<TYPE, W, M, H>(dk, grads, tile);
    }
    turn ^= 1;
    query_row_write(p.rows + turn * S::ROWS, coming, N); /* nobody reads these by now */
    step = next;
  }
}

#endif
