// SPDX-License-Identifier: Apache-2.0
/* What a tile adds up without tensor cores: a tile of queries over the keys at hand, for out or for
 * dq, and a tile of keys over the queries at hand, for dk and dv. At hand is the whole sequence
 * (attention.cu, attention_backward.cu) or one unit of it (attention_ring.cu), whose positions are
 * counted from its first one; a.T is its length. The arrays of a call begin there, at one head.
 *
 * With f the factors of dropout and dP = dout v^T: dS = P (dP f - delta), P = exp(S - max)/sum,
 * delta = dout . out = sum_j P dP f, times the slope of a soft cap; dv = (P f)^T dout, dq = dS k
 * scale, dk = dS^T q scale; the factor scale comes last. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_SIMT_PASSES_CUH
#define TSR_KERNELS_CUDA_ATTENTION_SIMT_PASSES_CUH
#include "kernels/cuda/attention_simt_tile.cuh"

/* A score of the product q . k. ret_slope: of the soft cap at it, 1 without one. */
static __device__ inline float score_of(const tsr_attention &a, float product, float *ret_slope) {
  float score = product * a.scale;
  *ret_slope = 1;
  if (a.soft_cap == 0) return score;
  float bent = tanhf(score / a.soft_cap);
  *ret_slope = fmaf(-bent, bent, 1.0f);
  return a.soft_cap * bent;
}

/* Keys with their values, or queries with their douts, of one head, row by row. */
template <typename N> struct simt_rows {
  const N *first, *second;
  int64_t first_stride, second_stride;
};

template <typename N>
static __device__ inline simt_rows<N>
simt_keys_of(const attention_head &at, const N *k, const N *v, int64_t row) {
  simt_rows<N> x = {
      k + at.k_start + row * at.k_stride, v + at.v_start + row * at.v_stride, at.k_stride,
      at.v_stride};
  return x;
}
template <typename N>
static __device__ inline simt_rows<N>
simt_queries_of(const attention_head &at, const N *q, const N *dout, int64_t row) {
  simt_rows<N> x = {
      q + at.q_start + row * at.q_stride, dout + at.o_start + row * at.o_stride, at.q_stride,
      at.o_stride};
  return x;
}

/* Rows from `row` on of `left`, with heads of D; and of the second array, with heads of Dv. */
template <int W, int ROWS, typename N>
static __device__ inline void
simt_load_first(float *to, const simt_rows<N> &x, const tsr_attention &a, int64_t row) {
  simt_load<N, W, ROWS>(to, x.first + row * x.first_stride, x.first_stride, a.T - row, a.D);
}
template <int W, int ROWS, typename N>
static __device__ inline void
simt_load_second(float *to, const simt_rows<N> &x, const tsr_attention &a, int64_t row) {
  simt_load<N, W, ROWS>(to, x.second + row * x.second_stride, x.second_stride, a.T - row, a.Dv);
}

/* ---- out ---- */

template <int W> struct forward_tile {
  static constexpr int QUERIES = simt_forward_rows(W), KEYS = QUERIES, STRIDE = W + SIMT_PAD;
  static constexpr int I = QUERIES / SIMT_SIDE, J = KEYS / SIMT_SIDE;
  static constexpr size_t FLOATS = simt_forward_floats(W);
};

/* In shared memory. Keys and values take turns in `tile`. */
typedef struct {
  float *queries, *tile, *weights;
  uint16_t *bits; /* or NULL */
} forward_parts;

template <int W>
static __device__ inline forward_parts forward_layout(float *shared, const tsr_attention &a) {
  typedef forward_tile<W> S;
  forward_parts p;
  p.queries = shared;
  p.tile = p.queries + S::QUERIES * S::STRIDE;
  p.weights = p.tile + S::KEYS * S::STRIDE;
  p.bits = a.dropout != 0 ? (uint16_t *)(shared + S::FLOATS) : NULL;
  return p;
}

/* A thread's rows, i*16+y of the tile: maximum, sum of exp(score - maximum) and weighted values. */
template <int W> struct forward_sums {
  float max[forward_tile<W>::I], sum[forward_tile<W>::I], out[forward_tile<W>::I][W / 16];
};

template <int W> static __device__ inline void forward_begin(forward_sums<W> *s) {
  for (int i = 0; i < forward_tile<W>::I; i++) s->max[i] = -INFINITY, s->sum[i] = 0;
  simt_zero(s->out);
}

/* Scores to exp(score - max), with the scores that are not seen left out; ret_shrunk[i] is what the
 * sums of before are multiplied by. */
template <int W, int I, int J>
static __device__ inline void softmax_step(
    forward_sums<W> *rows, float (&scores)[I][J], const tsr_attention &a, int64_t query,
    int64_t key, float (&ret_shrunk)[I]) {
  attention_bounds bounds = attention_bounds_of(a, query, key);
  bool masked = attention_masked(bounds, I * SIMT_SIDE, J * SIMT_SIDE);
#pragma unroll
  for (int i = 0; i < I; i++) {
    float max = -INFINITY, sum = 0;
#pragma unroll
    for (int j = 0; j < J; j++) {
      int q = i * SIMT_SIDE + simt_y(), k = j * SIMT_SIDE + simt_x();
      float slope;
      scores[i][j] = score_of(a, scores[i][j], &slope);
      if (masked && !attention_seen(bounds, q, k)) scores[i][j] = -INFINITY;
      max = fmaxf(max, scores[i][j]);
    }
    max = fmaxf(rows->max[i], simt_row_max(max));
    float base = attention_base(max);
    ret_shrunk[i] = expf(rows->max[i] - base);
#pragma unroll
    for (int j = 0; j < J; j++) sum += scores[i][j] = expf(scores[i][j] - base);
    rows->sum[i] = rows->sum[i] * ret_shrunk[i] + simt_row_sum(sum);
    rows->max[i] = max;
  }
}

/* The probabilities into shared memory, without those that dropout takes. */
template <int I, int J>
static __device__ inline void
weights_store(float *weights, const float (&x)[I][J], const uint16_t *bits) {
  const int keys = J * SIMT_SIDE;
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++) {
      int q = i * SIMT_SIDE + simt_y(), k = j * SIMT_SIDE + simt_x();
      bool kept = !bits || attention_bit(bits, keys, q, k);
      weights[q * (keys + SIMT_PAD) + k] = kept ? x[i][j] : 0.0f;
    }
}

/* The tile of queries from `first` on lies in p.queries; behind the last barrier all of p is free.
 */
template <typename N, int W>
static __device__ inline void forward_add(
    forward_sums<W> *sums, const forward_parts &p, const tsr_attention &a,
    const attention_drop &drop, int64_t first, const simt_rows<N> &keys) {
  typedef forward_tile<W> S;
  float scores[S::I][S::J], shrunk[S::I];
  int64_t end = attention_keys(a, first + S::QUERIES);
  for (int64_t t = attention_keys_begin(a, first, end, S::KEYS); t < end; t += S::KEYS) {
    simt_load_first<W, S::KEYS>(p.tile, keys, a, t);
    if (p.bits) attention_mask(p.bits, drop, first, t, S::QUERIES, S::KEYS);
    __syncthreads();
    simt_dot<W>(scores, p.queries, p.tile, a.D);
    softmax_step<W>(sums, scores, a, first, t, shrunk);
    weights_store(p.weights, scores, p.bits);
    __syncthreads();
    simt_load_second<W, S::KEYS>(p.tile, keys, a, t);
    for (int i = 0; i < S::I; i++)
      for (int c = 0; c < W / 16; c++) sums->out[i][c] *= shrunk[i];
    __syncthreads();
    simt_weigh<W, S::KEYS>(sums->out, p.weights, p.tile);
    __syncthreads();
  }
}

/* ---- dq, and dk and dv ---- */

template <int W> struct backward_tile {
  static constexpr int QUERIES = simt_backward_queries(W), KEYS = simt_backward_keys(W);
  static constexpr int STRIDE = W + SIMT_PAD, WIDTH = KEYS + SIMT_PAD;
  static constexpr int I = QUERIES / SIMT_SIDE, J = KEYS / SIMT_SIDE;
  /* floats with one array of a tile's gradients, and with two */
  static constexpr int ONE = simt_backward_floats(W, 1), TWO = simt_backward_floats(W, 2);
};

/* A tile's arrays in shared memory. `kept` = P f and `grads` = dS are (QUERIES, WIDTH); only the
 * pass of dk and dv has `kept`. */
typedef struct {
  float *queries, *douts, *keys, *values, *rows, *grads, *kept;
  uint16_t *bits; /* or NULL */
} backward_parts;

template <int W>
static __device__ inline backward_parts
backward_layout(float *shared, const tsr_attention &a, bool keeps) {
  typedef backward_tile<W> S;
  const int floats = keeps ? S::TWO : S::ONE;
  backward_parts p;
  p.queries = shared;
  p.douts = p.queries + S::QUERIES * S::STRIDE;
  p.keys = p.douts + S::QUERIES * S::STRIDE;
  p.values = p.keys + S::KEYS * S::STRIDE;
  p.grads = p.values + S::KEYS * S::STRIDE;
  p.kept = keeps ? p.grads + S::QUERIES * S::WIDTH : NULL;
  p.rows = shared + floats - 3 * S::QUERIES;
  p.bits = a.dropout != 0 ? (uint16_t *)(shared + floats) : NULL;
  return p;
}

/* p->grads, and p->kept where there is one, of the tile of queries and keys that is loaded. */
template <int W>
static __device__ inline void
tile_gradients(const backward_parts &p, const tsr_attention &a, int64_t query, int64_t key) {
  typedef backward_tile<W> S;
  float scores[S::I][S::J], grads[S::I][S::J], factor = p.bits ? attention_kept(a) : 1.0f;
  attention_bounds bounds = attention_bounds_of(a, query, key);
  bool masked = attention_masked(bounds, S::QUERIES, S::KEYS);
  simt_dot<W>(scores, p.queries, p.keys, a.D);
  simt_dot<W>(grads, p.douts, p.values, a.Dv);
#pragma unroll
  for (int i = 0; i < S::I; i++)
#pragma unroll
    for (int j = 0; j < S::J; j++) {
      int q = i * SIMT_SIDE + simt_y(), k = j * SIMT_SIDE + simt_x();
      float slope, score = score_of(a, scores[i][j], &slope);
      float x = expf(score - p.rows[3 * q]) * p.rows[3 * q + 1];
      if (masked && !attention_seen(bounds, q, k)) x = 0;
      float f = !p.bits || attention_bit(p.bits, S::KEYS, q, k) ? factor : 0.0f;
      p.grads[q * S::WIDTH + k] = x * (grads[i][j] * f - p.rows[3 * q + 2]) * slope;
      if (p.kept) p.kept[q * S::WIDTH + k] = x * f;
    }
}

/* A thread's rows are i*16+y of the tile of queries from `first` on, which lies in p with its douts
 * and rows. */
template <int W> struct dq_sums { float dq[backward_tile<W>::I][W / 16]; };

template <typename N, int W>
static __device__ inline void dq_add(
    dq_sums<W> *sums, const backward_parts &p, const tsr_attention &a, const attention_drop &drop,
    int64_t first, const simt_rows<N> &keys) {
  typedef backward_tile<W> S;
  int64_t end = attention_keys(a, first + S::QUERIES);
  for (int64_t t = attention_keys_begin(a, first, end, S::KEYS); t < end; t += S::KEYS) {
    simt_load_first<W, S::KEYS>(p.keys, keys, a, t);
    simt_load_second<W, S::KEYS>(p.values, keys, a, t);
    if (p.bits) attention_mask(p.bits, drop, first, t, S::QUERIES, S::KEYS);
    __syncthreads();
    tile_gradients<W>(p, a, first, t);
    __syncthreads();
    simt_weigh<W, S::KEYS>(sums->dq, p.grads, p.keys);
    __syncthreads();
  }
}

/* A thread's rows are y*J+j of the tile of keys from `first` on, which lies in p with its values.
 */
template <int W> struct dkv_sums {
  float dk[backward_tile<W>::J][W / 16], dv[backward_tile<W>::J][W / 16];
};

template <typename N, int W>
static __device__ inline void dkv_add(
    dkv_sums<W> *sums, const backward_parts &p, const tsr_attention &a, const attention_drop &drop,
    const attention_statistics &rows, int64_t first, const simt_rows<N> &queries) {
  typedef backward_tile<W> S;
  int64_t begin = attention_queries(a, first, S::QUERIES);
  int64_t end = attention_queries_end(a, begin, first + S::KEYS);
  for (int64_t t = begin; t < end; t += S::QUERIES) {
    simt_load_first<W, S::QUERIES>(p.queries, queries, a, t);
    simt_load_second<W, S::QUERIES>(p.douts, queries, a, t);
    attention_rows(p.rows, rows, t, a.T, S::QUERIES);
    if (p.bits) attention_mask(p.bits, drop, t, first, S::QUERIES, S::KEYS);
    __syncthreads();
    tile_gradients<W>(p, a, t, first);
    __syncthreads();
    simt_spread<W, S::QUERIES, S::KEYS>(sums->dv, p.kept, p.douts);
    simt_spread<W, S::QUERIES, S::KEYS>(sums->dk, p.grads, p.queries);
    __syncthreads();
  }
}

/* The row of (B,H,T) that a thread has a part of. */
static __device__ inline int64_t attention_row_here(void) {
  return map_thread() / ATTENTION_ROW_LANES;
}

/* delta = dout . out of one row of (B,H,T), by neighbouring lanes which all come here; where the
 * row is not `real`, 0. */
template <typename N>
static __device__ inline float row_delta(
    const tsr_attention &a, int64_t row, bool real, const N *dout, const N *out, bool packed) {
  constexpr int P = pack_of<N>::width;
  int64_t line = row / a.T, t = row % a.T, lane = threadIdx.x % ATTENTION_ROW_LANES;
  int64_t at = ((line / a.H * a.T + t) * a.H + line % a.H) * a.Dv;
  float sum = 0, x[P], y[P];
  for (int64_t d = lane * P; real && d < a.Dv; d += ATTENTION_ROW_LANES * P) {
    row_load(x, dout + at, d, a.Dv, packed);
    row_load(y, out + at, d, a.Dv, packed);
#pragma unroll
    for (int i = 0; i < P; i++) sum = fmaf(x[i], y[i], sum);
  }
  for (int n = ATTENTION_ROW_LANES / 2; n; n /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, n);
  return sum;
}

/* Whether a thread may read packs of rows. */
template <typename N>
static inline bool rows_are_packed(const tsr_attention &a, const void *dout, const void *out) {
  return a.Dv % pack_of<N>::width == 0 && is_aligned(dout, 16) && is_aligned(out, 16);
}

#endif
