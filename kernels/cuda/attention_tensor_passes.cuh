// SPDX-License-Identifier: Apache-2.0
/* What a warp adds up with tensor cores, as FlashAttention-2 (Dao 2023): for out a tile of queries
 * over the keys at hand, for dq the same, for dk and dv a tile of keys over the queries at hand. At
 * hand is a whole sequence or one unit of it, as in attention_simt_passes.cuh, whose formulas these
 * are.
 *
 * Scores, softmax and sums stay in registers; the scores' layout is that of the left operand of the
 * product that follows. The tile that comes next is fetched meanwhile.
 *
 * Powers are of 2: the scores have a factor log2(e), and so has a maximum in forward_rows. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_TENSOR_PASSES_CUH
#define TSR_KERNELS_CUDA_ATTENTION_TENSOR_PASSES_CUH
#include "kernels/cuda/mma.cuh"

#define LOG2_E 1.4426950408889634f
#define LOG_2 0.6931471805599453f

/* The first of the 16 * M rows of this thread's warp. */
static __device__ inline int tensor_row(int M) { return (int)threadIdx.x / TENSOR_LANES * 16 * M; }

/* ---- out: a warp has 16 queries, or twice that. While scores are computed, the values of the tile
 * are fetched, and while these are weighed, the next keys. ---- */

/* M: runs of 16 queries of a warp */
template <int W, int M> struct tensor_forward {
  static constexpr int QUERIES = 16 * M * TENSOR_WARPS, STRIDE = W + TENSOR_PAD;
  static constexpr size_t HALVES = tensor_forward_halves(W);
  static_assert(M == tensor_forward_runs(W), "the tile of launch_attention");
};

/* A lane's numbers for 16 queries: rows lane/4 and lane/4 + 8. `sum` is of this lane's columns,
 * till the end. */
template <int W> struct forward_rows { float max[2], sum[2], out[W / 8][4]; };

template <int W> static __device__ inline void rows_begin(forward_rows<W> *rows) {
  for (int r = 0; r < 2; r++) rows->max[r] = -INFINITY, rows->sum[r] = 0;
#pragma unroll
  for (int n = 0; n < W / 8; n++)
    for (int i = 0; i < 4; i++) rows->out[n][i] = 0;
}

/* scores (16 queries, TENSOR_KEYS), times scale and log2(e); -INFINITY where a key is not seen. */
static __device__ inline void scores_scale(
    float (&scores)[TENSOR_KEYS / 8][4], const tsr_attention &a, int64_t query, int64_t key) {
  bool masked = attention_masked(a, query, 16, key, TENSOR_KEYS);
  float factor = a.scale * LOG2_E;
#pragma unroll
  for (int n = 0; n < TENSOR_KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      scores[n][i] *= factor;
      if (masked && !attention_seen(a, query + tensor_c_row(i), key + n * 8 + tensor_c_column(i)))
        scores[n][i] = -INFINITY;
    }
}

/* Scores to 2^(score - max), and all sums of before to the new maximum. */
template <int W>
static __device__ inline void
softmax_step(forward_rows<W> *rows, float (&scores)[TENSOR_KEYS / 8][4]) {
  float shrunk[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float max = rows->max[r], sum = 0;
#pragma unroll
    for (int n = 0; n < TENSOR_KEYS / 8; n++)
      max = fmaxf(max, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    float base = attention_base(max);
    shrunk[r] = tensor_power(rows->max[r] - base);
#pragma unroll
    for (int n = 0; n < TENSOR_KEYS / 8; n++) {
      sum += scores[n][2 * r] = tensor_power(scores[n][2 * r] - base);
      sum += scores[n][2 * r + 1] = tensor_power(scores[n][2 * r + 1] - base);
    }
    rows->sum[r] = rows->sum[r] * shrunk[r] + sum;
    rows->max[r] = max;
  }
#pragma unroll
  for (int n = 0; n < W / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) rows->out[n][i] *= shrunk[i / 2];
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

/* scores[m] = queries (16 from row + 16m on) . keys turned */
template <tsr_cuda_type TYPE, int W, int M>
static __device__ inline void scores_of(
    float (&scores)[M][TENSOR_KEYS / 8][4], const uint16_t *queries, int row,
    const uint16_t *keys) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < TENSOR_KEYS / 8; n++)
      for (int i = 0; i < 4; i++) scores[m][n][i] = 0;
#pragma unroll
  for (int d = 0; d < W; d += 16) {
    uint32_t a[M][4], b[4];
#pragma unroll
    for (int m = 0; m < M; m++) tensor_a<W>(a[m], queries, row + 16 * m, d);
#pragma unroll
    for (int n = 0; n < TENSOR_KEYS / 8; n += 2) {
      tensor_b_of_rows<W>(b, keys, n * 8, d);
#pragma unroll
      for (int m = 0; m < M; m++) {
        tensor_gemm<TYPE>(scores[m][n], a[m], b);
        tensor_gemm<TYPE>(scores[m][n + 1], a[m], b + 2);
      }
    }
  }
}

/* rows[m].out += scores[m] (16, TENSOR_KEYS) . values */
template <tsr_cuda_type TYPE, int W, int M>
static __device__ inline void values_add(
    forward_rows<W> (&rows)[M], const float (&scores)[M][TENSOR_KEYS / 8][4],
    const uint16_t *values) {
#pragma unroll
  for (int k = 0; k < TENSOR_KEYS; k += 16) {
    uint32_t a[M][4], b[4];
#pragma unroll
    for (int m = 0; m < M; m++)
      tensor_a_of_sums<TYPE>(a[m], scores[m][k / 8], scores[m][k / 8 + 1]);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      tensor_b_of_columns<W>(b, values, k, n * 8);
#pragma unroll
      for (int m = 0; m < M; m++) {
        tensor_gemm<TYPE>(rows[m].out[n], a[m], b);
        tensor_gemm<TYPE>(rows[m].out[n + 1], a[m], b + 2);
      }
    }
  }
}

/* A lane's sums become the rows', the same in all lanes of a row. */
template <int W> static __device__ inline void rows_end(forward_rows<W> *rows) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    rows->sum[r] += __shfl_xor_sync(0xffffffffu, rows->sum[r], 1);
    rows->sum[r] += __shfl_xor_sync(0xffffffffu, rows->sum[r], 2);
  }
}

/* In shared memory. */
typedef struct {
  uint16_t *queries, *keys, *values;
  uint16_t *bits; /* or NULL */
} tensor_forward_parts;

template <int W, int M>
static __device__ inline tensor_forward_parts
tensor_forward_layout(uint16_t *shared, const tsr_attention &a) {
  typedef tensor_forward<W, M> S;
  tensor_forward_parts p;
  p.queries = shared;
  p.keys = p.queries + S::QUERIES * S::STRIDE;
  p.values = p.keys + TENSOR_KEYS * S::STRIDE;
  p.bits = a.dropout != 0 ? shared + S::HALVES : NULL;
  return p;
}

/* The tile of queries from `first` on lies in p.queries, or is being fetched. No warp reads p.keys
 * any more when this begins, nor when it has ended. */
template <tsr_cuda_type TYPE, int W, int M>
static __device__ inline void tensor_forward_add(
    forward_rows<W> (&rows)[M], const tensor_forward_parts &p, const tsr_attention &a,
    const attention_drop &drop, int64_t first, const uint16_t *k, const uint16_t *v,
    int64_t stride) {
  const int QUERIES = tensor_forward<W, M>::QUERIES;
  int64_t end = attention_keys(a, first + QUERIES);
  int64_t begin = attention_keys_begin(a, first, end, TENSOR_KEYS);
  int row = tensor_row(M);
  float scores[M][TENSOR_KEYS / 8][4];
  tensor_load<W, TENSOR_KEYS, TENSOR_THREADS>(p.keys, k + begin * stride, stride, a.T - begin, a.D);
  for (int64_t t = begin; t < end; t += TENSOR_KEYS) {
    int64_t next = t + TENSOR_KEYS;
    tensor_fetch_wait();
    __syncthreads();
    tensor_load<W, TENSOR_KEYS, TENSOR_THREADS>(p.values, v + t * stride, stride, a.T - t, a.D);
    if (p.bits) attention_mask(p.bits, drop, first, t, QUERIES, TENSOR_KEYS);
    scores_of<TYPE, W, M>(scores, p.queries, row, p.keys);
    tensor_fetch_wait();
    __syncthreads();
    if (next < end)
      tensor_load<W, TENSOR_KEYS, TENSOR_THREADS>(
          p.keys, k + next * stride, stride, a.T - next, a.D);
#pragma unroll
    for (int m = 0; m < M; m++) {
      scores_scale(scores[m], a, first + row + 16 * m, t);
      softmax_step(&rows[m], scores[m]);
      if (p.bits) scores_drop(scores[m], p.bits, row + 16 * m);
    }
    values_add<TYPE, W, M>(rows, scores, p.values);
  }
}

/* ---- dq, and dk and dv: a warp has 16 rows of the tile that stays, which has TENSOR_TILE rows;
 * those that come have OTHERS. Scores and dP are computed with the own tile to the left, so that P
 * f and dS lie in registers as the left operand of the products that follow. ---- */

template <int W> struct tensor_backward {
  static constexpr int OTHERS = tensor_backward_others(W), STRIDE = W + TENSOR_PAD;
  static constexpr int OWN_SIZE = TENSOR_TILE * STRIDE, OTHER_SIZE = OTHERS * STRIDE;
  static constexpr int ROWS = 3 * TENSOR_TILE; /* floats, of the one or the other tile */
  static constexpr size_t HALVES = tensor_backward_halves(W);
};

/* own: queries and douts, or keys and values, one behind the other; others: the other two, and the
 * same again for the tile that comes next; so the rows. */
typedef struct {
  uint16_t *own, *others;
  float *rows;
  uint16_t *bits; /* or NULL */
} tensor_backward_parts;

template <int W>
static __device__ inline tensor_backward_parts
tensor_backward_layout(uint16_t *shared, const tsr_attention &a) {
  typedef tensor_backward<W> S;
  tensor_backward_parts p;
  p.own = shared;
  p.others = shared + 2 * S::OWN_SIZE;
  p.rows = (float *)(shared + S::HALVES);
  p.bits = a.dropout != 0 ? (uint16_t *)(p.rows + 2 * S::ROWS) : NULL;
  return p;
}

/* sums (16, N) = own (16 rows from `row` on) . others turned */
template <tsr_cuda_type TYPE, int W, int N>
static __device__ inline void
dot(float (&sums)[N / 8][4], const uint16_t *own, int row, const uint16_t *others) {
#pragma unroll
  for (int n = 0; n < N / 8; n++)
    for (int i = 0; i < 4; i++) sums[n][i] = 0;
#pragma unroll
  for (int d = 0; d < W; d += 16) {
    uint32_t a[4], b[4];
    tensor_a<W>(a, own, row, d);
#pragma unroll
    for (int n = 0; n < N / 8; n += 2) {
      tensor_b_of_rows<W>(b, others, n * 8, d);
      tensor_gemm<TYPE>(sums[n], a, b);
      tensor_gemm<TYPE>(sums[n + 1], a, b + 2);
    }
  }
}

/* sums (16, W) += weights (16, N) . others */
template <tsr_cuda_type TYPE, int W, int N>
static __device__ inline void
add(float (&sums)[W / 8][4], const float (&weights)[N / 8][4], const uint16_t *others) {
#pragma unroll
  for (int k = 0; k < N; k += 16) {
    uint32_t a[4], b[4];
    tensor_a_of_sums<TYPE>(a, weights[k / 8], weights[k / 8 + 1]);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      tensor_b_of_columns<W>(b, others, k, n * 8);
      tensor_gemm<TYPE>(sums[n], a, b);
      tensor_gemm<TYPE>(sums[n + 1], a, b + 2);
    }
  }
}

/* Where a tile pair lies: its first query and key. `keys` is the width of the mask. */
typedef struct {
  int64_t query, key;
  int keys;
} tile_place;

/* A score and its dP to P f and dS, for query q and key k of the tiles. */
static __device__ inline void gradient(
    float *score, float *grad, const tsr_attention &a, const float *rows, const uint16_t *bits,
    tile_place at, bool masked, int q, int k) {
  float max = rows[3 * q], share = rows[3 * q + 1], delta = rows[3 * q + 2], f = 1;
  float x = tensor_power(*score * (a.scale * LOG2_E) - max * LOG2_E) * share;
  if (masked && !attention_seen(a, at.query + q, at.key + k)) x = 0;
  if (bits) f = attention_bit(bits, at.keys, q, k) ? attention_kept(a) : 0.0f;
  *score = x * f;
  *grad = x * (*grad * f - delta);
}

/* The same for a warp's numbers (16, N): rows are queries, or where `turned` keys, from row on. */
template <int N, bool transposed>
static __device__ inline void gradients(
    float (&scores)[N / 8][4], float (&grads)[N / 8][4], const tsr_attention &a, const float *rows,
    const uint16_t *bits, tile_place at, int row) {
  bool masked = attention_masked(a, at.query, transposed ? N : TENSOR_TILE, at.key, at.keys);
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int own = row + tensor_c_row(i), other = n * 8 + tensor_c_column(i);
      int q = transposed ? other : own, k = transposed ? own : other;
      gradient(&scores[n][i], &grads[n][i], a, rows, bits, at, masked, q, k);
    }
}

template <int W> static __device__ inline void zero(float (&sums)[W / 8][4]) {
#pragma unroll
  for (int n = 0; n < W / 8; n++)
    for (int i = 0; i < 4; i++) sums[n][i] = 0;
}

/* The tile of queries from `first` on lies in p.own with its douts, or is being fetched, and its
 * rows in p.rows. No warp reads p.others any more when this begins. */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void tensor_dq_add(
    float (&sums)[W / 8][4], const tensor_backward_parts &p, const tsr_attention &a,
    const attention_drop &drop, int64_t first, const uint16_t *k, const uint16_t *v,
    int64_t stride) {
  typedef tensor_backward<W> S;
  const int N = S::OTHERS;
  int64_t end = attention_keys(a, first + TENSOR_TILE);
  int64_t begin = attention_keys_begin(a, first, end, N), left = a.T - begin;
  int row = tensor_row(1), turn = 0;
  float scores[N / 8][4], grads[N / 8][4];
  tensor_load<W, N, TENSOR_THREADS>(p.others, k + begin * stride, stride, left, a.D);
  tensor_load<W, N, TENSOR_THREADS>(
      p.others + S::OTHER_SIZE, v + begin * stride, stride, left, a.D);
  for (int64_t t = begin; t < end; t += N, turn ^= 1) {
    const uint16_t *tile = p.others + turn * 2 * S::OTHER_SIZE;
    uint16_t *after = p.others + (turn ^ 1) * 2 * S::OTHER_SIZE;
    int64_t next = t + N;
    tensor_fetch_wait();
    __syncthreads();
    if (next < end) {
      tensor_load<W, N, TENSOR_THREADS>(after, k + next * stride, stride, a.T - next, a.D);
      tensor_load<W, N, TENSOR_THREADS>(
          after + S::OTHER_SIZE, v + next * stride, stride, a.T - next, a.D);
    }
    if (p.bits) {
      attention_mask(p.bits, drop, first, t, TENSOR_TILE, N);
      __syncthreads();
    }
    dot<TYPE, W, N>(scores, p.own, row, tile);
    dot<TYPE, W, N>(grads, p.own + S::OWN_SIZE, row, tile + S::OTHER_SIZE);
    tile_place place = {first, t, N};
    gradients<N, false>(scores, grads, a, p.rows, p.bits, place, row);
    add<TYPE, W, N>(sums, grads, tile);
  }
}

/* The queries at hand of a group's heads: of the first head, and from one to the next, whose
 * numbers are `lines` rows apart. */
typedef struct {
  const uint16_t *q, *dout;
  int64_t stride, heads, lines;
  attention_statistics rows;
  attention_drop drop;
} tensor_queries;

/* A step of the pass of dk and dv: a tile of queries of one of the group's heads. */
typedef struct {
  int64_t head, query;
} query_step;

static __device__ inline query_step query_step_at(int64_t begin, int64_t end, int size, int64_t n) {
  int64_t tiles = (end - begin + size - 1) / size;
  query_step step = {n / tiles, begin + n % tiles * size};
  return step;
}

template <int W>
static __device__ inline void step_load(
    const tensor_backward_parts &p, int turn, const tsr_attention &a, const tensor_queries &x,
    query_step s) {
  const int N = tensor_backward<W>::OTHERS, SIZE = tensor_backward<W>::OTHER_SIZE;
  uint16_t *to = p.others + turn * 2 * SIZE;
  int64_t start = s.head * a.D + s.query * x.stride, left = a.T - s.query;
  attention_statistics rows = x.rows;
  rows.stats += s.head * x.lines * rows.stats_step;
  rows.delta += s.head * x.lines * rows.delta_step;
  tensor_load<W, N, TENSOR_THREADS>(to, x.q + start, x.stride, left, a.D);
  tensor_load<W, N, TENSOR_THREADS>(to + SIZE, x.dout + start, x.stride, left, a.D);
  attention_rows(p.rows + turn * tensor_backward<W>::ROWS, rows, s.query, a.T, N);
}

/* The tile of keys from `first` on lies in p.own with its values, or is being fetched. No warp
 * reads p.others or p.rows any more when this begins. The heads are added in their order. */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void tensor_dkv_add(
    float (&dk)[W / 8][4], float (&dv)[W / 8][4], const tensor_backward_parts &p,
    const tsr_attention &a, const tensor_queries &x, int64_t first) {
  typedef tensor_backward<W> S;
  const int N = S::OTHERS;
  int64_t begin = attention_queries(a, first, N);
  int64_t end = attention_queries_end(a, begin, first + TENSOR_TILE);
  int64_t steps = x.heads * ((end - begin + N - 1) / N);
  int row = tensor_row(1);
  float scores[N / 8][4], grads[N / 8][4];
  step_load<W>(p, 0, a, x, query_step_at(begin, end, N, 0));
  for (int64_t n = 0; n < steps; n++) {
    int turn = (int)(n % 2);
    const uint16_t *tile = p.others + turn * 2 * S::OTHER_SIZE;
    query_step step = query_step_at(begin, end, N, n);
    tensor_fetch_wait();
    __syncthreads();
    if (n + 1 < steps) step_load<W>(p, turn ^ 1, a, x, query_step_at(begin, end, N, n + 1));
    if (p.bits) {
      attention_drop drop = attention_drop_next(x.drop, step.head);
      attention_mask(p.bits, drop, step.query, first, N, TENSOR_TILE);
      __syncthreads();
    }
    dot<TYPE, W, N>(scores, p.own, row, tile);
    dot<TYPE, W, N>(grads, p.own + S::OWN_SIZE, row, tile + S::OTHER_SIZE);
    tile_place place = {step.query, first, TENSOR_TILE};
    gradients<N, true>(scores, grads, a, p.rows + turn * S::ROWS, p.bits, place, row);
    add<TYPE, W, N>(dv, scores, tile + S::OTHER_SIZE);
    add<TYPE, W, N>(dk, grads, tile);
  }
}

#endif
