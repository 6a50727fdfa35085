/* Attention forward with tensor cores, as FlashAttention-2 (Dao 2023): a warp has 16 queries, or
 * twice that, whose scores, softmax and output stay in its registers; the scores' layout is that of
 * the left operand of the product with the values. While scores are computed, the values of the
 * tile are fetched, and while these are weighed, the next keys.
 *
 * Powers are of 2: the scores have a factor log2(e), the maximum in the statistics has it not. */
#include "kernels/cuda/tensor.cuh"

enum { WARPS = 4, THREADS = WARPS * TENSOR_LANES, KEYS = 64 };
#define LOG2_E 1.4426950408889634f
#define LOG_2 0.6931471805599453f

/* M: runs of 16 queries of a warp */
template <int W, int M> struct tensor_forward {
  static constexpr int QUERIES = 16 * M * WARPS, STRIDE = W + TENSOR_PAD;
  static constexpr size_t HALVES = (size_t)(QUERIES + 2 * KEYS) * STRIDE;
  static constexpr size_t BYTES = (HALVES + QUERIES * (KEYS / ATTENTION_RUN)) * 2;
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

/* scores (16 queries, KEYS), times scale and log2(e); -INFINITY where a key is not seen. */
template <int W>
static __device__ inline void
scores_scale(float (&scores)[KEYS / 8][4], const tsr_attention &a, int64_t query, int64_t key) {
  bool masked = attention_masked(a, query, key, KEYS);
  float factor = a.scale * LOG2_E;
#pragma unroll
  for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      scores[n][i] *= factor;
      if (masked && !attention_seen(a, query + tensor_c_row(i), key + n * 8 + tensor_c_column(i)))
        scores[n][i] = -INFINITY;
    }
}

/* Scores to 2^(score - max), and all sums of before to the new maximum. */
template <int W>
static __device__ inline void softmax_step(forward_rows<W> *rows, float (&scores)[KEYS / 8][4]) {
  float shrunk[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float max = rows->max[r], sum = 0;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
      max = fmaxf(max, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    shrunk[r] = tensor_power(rows->max[r] - max);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
      sum += scores[n][2 * r] = tensor_power(scores[n][2 * r] - max);
      sum += scores[n][2 * r + 1] = tensor_power(scores[n][2 * r + 1] - max);
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
scores_drop(float (&scores)[KEYS / 8][4], const uint16_t *bits, int row) {
#pragma unroll
  for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (!attention_bit(bits, KEYS, row + tensor_c_row(i), n * 8 + tensor_c_column(i)))
        scores[n][i] = 0;
}

/* scores[m] = queries (16 from row + 16m on) . keys turned */
template <tsr_cuda_type TYPE, int W, int M>
static __device__ inline void
scores_of(float (&scores)[M][KEYS / 8][4], const uint16_t *queries, int row, const uint16_t *keys) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
      for (int i = 0; i < 4; i++) scores[m][n][i] = 0;
#pragma unroll
  for (int d = 0; d < W; d += 16) {
    uint32_t a[M][4], b[4];
#pragma unroll
    for (int m = 0; m < M; m++) tensor_a<W>(a[m], queries, row + 16 * m, d);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n += 2) {
      tensor_b_of_rows<W>(b, keys, n * 8, d);
#pragma unroll
      for (int m = 0; m < M; m++) {
        tensor_product<TYPE>(scores[m][n], a[m], b);
        tensor_product<TYPE>(scores[m][n + 1], a[m], b + 2);
      }
    }
  }
}

/* rows[m].out += scores[m] (16, KEYS) . values */
template <tsr_cuda_type TYPE, int W, int M>
static __device__ inline void values_add(
    forward_rows<W> (&rows)[M], const float (&scores)[M][KEYS / 8][4], const uint16_t *values) {
#pragma unroll
  for (int k = 0; k < KEYS; k += 16) {
    uint32_t a[M][4], b[4];
#pragma unroll
    for (int m = 0; m < M; m++)
      tensor_a_of_sums<TYPE>(a[m], scores[m][k / 8], scores[m][k / 8 + 1]);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      tensor_b_of_columns<W>(b, values, k, n * 8);
#pragma unroll
      for (int m = 0; m < M; m++) {
        tensor_product<TYPE>(rows[m].out[n], a[m], b);
        tensor_product<TYPE>(rows[m].out[n + 1], a[m], b + 2);
      }
    }
  }
}

/* Writes out and statistics of the 16 queries from `query` on; `tile` is a place for them. */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void rows_finish(
    forward_rows<W> *rows, const tsr_attention &a, const attention_head &at, int64_t query,
    uint16_t *out, float *stats, uint16_t *tile) {
  float factor[2], kept = a.dropout != 0 ? attention_kept(a) : 1.0f;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int64_t t = query + tensor_c_row(2 * r), to = 2 * (at.line * a.T + t);
    rows->sum[r] += __shfl_xor_sync(0xffffffffu, rows->sum[r], 1);
    rows->sum[r] += __shfl_xor_sync(0xffffffffu, rows->sum[r], 2);
    factor[r] = kept / rows->sum[r];
    if (t >= a.T || tensor_lane() % 4 > 0) continue;
    stats[to] = rows->max[r] * LOG_2;
    stats[to + 1] = rows->sum[r];
  }
  tensor_store<TYPE, W>(
      out + at.q_start + query * at.q_stride, at.q_stride, a.T - query, a.D, tile, rows->out,
      factor[0], factor[1]);
}

template <tsr_cuda_type TYPE, int W, int M>
static __global__ void __launch_bounds__(THREADS, M == 1 ? 3 : 2) attention_tensor_forward(
    tsr_attention a, const uint64_t *key, uint16_t *out, float *stats, const uint16_t *q,
    const uint16_t *k, const uint16_t *v) {
  typedef tensor_forward<W, M> S;
  TSR_SHARED(uint16_t, shared);
  uint16_t *queries = shared, *keys = queries + S::QUERIES * S::STRIDE;
  uint16_t *values = keys + KEYS * S::STRIDE;
  uint16_t *bits = a.dropout != 0 ? shared + S::HALVES : NULL;
  attention_item item = attention_item_of_queries(a.B * a.H, S::QUERIES);
  attention_head at = attention_head_at(a, item.line / a.H, item.line % a.H);
  int64_t first = item.first, end = attention_keys(a, first + S::QUERIES);
  int row = (int)threadIdx.x / TENSOR_LANES * 16 * M; /* the warp's first */
  forward_rows<W> rows[M];
  float scores[M][KEYS / 8][4];
#pragma unroll
  for (int m = 0; m < M; m++) rows_begin(&rows[m]);
  tensor_load<W, S::QUERIES, THREADS>(
      queries, q + at.q_start + first * at.q_stride, at.q_stride, a.T - first, a.D);
  tensor_load<W, KEYS, THREADS>(keys, k + at.k_start, at.k_stride, a.T, a.D);
  for (int64_t t = 0; t < end; t += KEYS) {
    int64_t from = at.k_start + t * at.k_stride, next = from + KEYS * at.k_stride;
    tensor_fetch_wait();
    __syncthreads();
    tensor_load<W, KEYS, THREADS>(values, v + from, at.k_stride, a.T - t, a.D);
    if (bits) attention_mask(bits, a, *key, at, first, t, S::QUERIES, KEYS);
    scores_of<TYPE, W, M>(scores, queries, row, keys);
    tensor_fetch_wait();
    __syncthreads();
    if (t + KEYS < end)
      tensor_load<W, KEYS, THREADS>(keys, k + next, at.k_stride, a.T - t - KEYS, a.D);
#pragma unroll
    for (int m = 0; m < M; m++) {
      scores_scale<W>(scores[m], a, first + row + 16 * m, t);
      softmax_step(&rows[m], scores[m]);
      if (bits) scores_drop(scores[m], bits, row + 16 * m);
    }
    values_add<TYPE, W, M>(rows, scores, values);
  }
#pragma unroll
  for (int m = 0; m < M; m++)
    rows_finish<TYPE, W>(
        &rows[m], a, at, first + row + 16 * m, out, stats, queries + (row + 16 * m) * S::STRIDE);
}

template <tsr_cuda_type TYPE, int W, int M>
static void forward(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, void *out, float *stats,
    const void *q, const void *k, const void *v) {
  typedef tensor_forward<W, M> S;
  TSR_ALLOW_SHARED((attention_tensor_forward<TYPE, W, M>), S::BYTES);
  TSR_LAUNCH(
      (attention_tensor_forward<TYPE, W, M>), attention_blocks(a->T, a->B * a->H, S::QUERIES),
      THREADS, S::BYTES, s, *a, key, (uint16_t *)out, stats, (const uint16_t *)q,
      (const uint16_t *)k, (const uint16_t *)v);
}

template <tsr_cuda_type TYPE>
static void forward_width(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, void *out, float *stats,
    const void *q, const void *k, const void *v) {
  if (a->D <= 64) forward<TYPE, 64, 2>(s, a, key, out, stats, q, k, v);
  else if (a->D <= 80) forward<TYPE, 80, 1>(s, a, key, out, stats, q, k, v);
  else if (a->D <= 96) forward<TYPE, 96, 1>(s, a, key, out, stats, q, k, v);
  else forward<TYPE, 128, 1>(s, a, key, out, stats, q, k, v);
}

void tsr_cuda_attention_tensor(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *out,
    float *stats, const void *q, const void *k, const void *v) {
  if (type == TSR_CUDA_BF16) forward_width<TSR_CUDA_BF16>(s, a, key, out, stats, q, k, v);
  else forward_width<TSR_CUDA_F16>(s, a, key, out, stats, q, k, v);
}

bool tsr_cuda_attention_tensor_can(
    tsr_cuda_type type, const tsr_attention *a, const void *const *arrays, int count) {
  if (type == TSR_CUDA_F32 || a->D > ATTENTION_TENSOR_WIDTH || a->D % TENSOR_HALVES) return false;
  for (int i = 0; i < count; i++)
    if ((uintptr_t)arrays[i] % 16) return false;
  return true;
}
