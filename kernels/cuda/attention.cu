/* Attention forward without tensor cores, and the choice of the passes.
 *
 * A block has a tile of queries and goes over the tiles of keys that one of them sees, with the
 * online softmax (Milakov and Gimelshein 2018): a row's maximum m, its sum l of exp(score - m) and
 * its weighted values are kept, and the latter two are multiplied by exp(m_old - m_new) wherever a
 * tile raises the maximum. */
#include "kernels/cuda/attention_simt.cuh"

/* A thread's rows: i*16+y of the tile. The sum over a row's threads is made at the end. */
template <int I> struct softmax_rows { float max[I], sum[I]; };

/* Scores to exp(score - max), with the scores that are not seen left out; ret_shrunk[i] is what the
 * sums of before are multiplied by. */
template <int I, int J>
static __device__ inline void softmax_step(
    softmax_rows<I> *rows, float (&scores)[I][J], const tsr_attention &a, int64_t query,
    int64_t key, float (&ret_shrunk)[I]) {
  bool masked = attention_masked(a, query, key, J * SIMT_SIDE);
#pragma unroll
  for (int i = 0; i < I; i++) {
    float max = -INFINITY, sum = 0;
#pragma unroll
    for (int j = 0; j < J; j++) {
      int64_t q = query + i * SIMT_SIDE + simt_y(), k = key + j * SIMT_SIDE + simt_x();
      scores[i][j] *= a.scale;
      if (masked && !attention_seen(a, q, k)) scores[i][j] = -INFINITY;
      max = fmaxf(max, scores[i][j]);
    }
    max = fmaxf(rows->max[i], simt_row_max(max));
    ret_shrunk[i] = expf(rows->max[i] - max);
#pragma unroll
    for (int j = 0; j < J; j++) sum += scores[i][j] = expf(scores[i][j] - max);
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

template <int W> struct forward_tile {
  static constexpr int QUERIES = W > 128 ? 32 : 64, KEYS = QUERIES, STRIDE = W + SIMT_PAD;
  static constexpr size_t FLOATS = (QUERIES + KEYS) * STRIDE + QUERIES * (KEYS + SIMT_PAD);
  static constexpr size_t BYTES = FLOATS * 4 + QUERIES * (KEYS / ATTENTION_RUN) * 2;
};

/* Keys and values take turns in `tile`. */
template <typename N, int W>
static __global__ void __launch_bounds__(SIMT_THREADS) attention_forward(
    tsr_attention a, const uint64_t *key, N *out, float *stats, const N *q, const N *k,
    const N *v) {
  typedef forward_tile<W> S;
  const int I = S::QUERIES / SIMT_SIDE, J = S::KEYS / SIMT_SIDE;
  TSR_SHARED(float, shared);
  float *queries = shared, *tile = queries + S::QUERIES * S::STRIDE;
  float *weights = tile + S::KEYS * S::STRIDE;
  uint16_t *bits = a.dropout != 0 ? (uint16_t *)(shared + S::FLOATS) : NULL;
  attention_item item = attention_item_of_queries(a.B * a.H, S::QUERIES);
  attention_head at = attention_head_at(a, item.line / a.H, item.line % a.H);
  int64_t first = item.first, start = at.q_start + first * at.q_stride;
  softmax_rows<I> rows;
  float sums[I][W / 16], scores[I][J], shrunk[I];
  for (int i = 0; i < I; i++) rows.max[i] = -INFINITY, rows.sum[i] = 0;
  simt_zero(sums);
  simt_load<N, W, S::QUERIES>(queries, q + start, at.q_stride, a.T - first, a.D);
  for (int64_t t = 0; t < attention_keys(a, first + S::QUERIES); t += S::KEYS) {
    int64_t from = at.k_start + t * at.k_stride;
    simt_load<N, W, S::KEYS>(tile, k + from, at.k_stride, a.T - t, a.D);
    if (bits) attention_mask(bits, a, *key, at, first, t, S::QUERIES, S::KEYS);
    __syncthreads();
    simt_dot<W>(scores, queries, tile, a.D);
    softmax_step(&rows, scores, a, first, t, shrunk);
    weights_store(weights, scores, bits);
    __syncthreads();
    simt_load<N, W, S::KEYS>(tile, v + from, at.k_stride, a.T - t, a.D);
    for (int i = 0; i < I; i++)
      for (int c = 0; c < W / 16; c++) sums[i][c] *= shrunk[i];
    __syncthreads();
    simt_weigh<W, S::KEYS>(sums, weights, tile);
    __syncthreads();
  }
  for (int i = 0; i < I; i++) {
    int row = i * SIMT_SIDE + simt_y();
    if (first + row >= a.T) continue;
    float factor = (bits ? attention_kept(a) : 1.0f) / rows.sum[i];
    simt_store<N, W>(out + start + row * at.q_stride, sums[i], factor, a.D);
    if (simt_x() > 0) continue;
    stats[2 * (at.line * a.T + first + row)] = rows.max[i];
    stats[2 * (at.line * a.T + first + row) + 1] = rows.sum[i];
  }
}

template <typename N, int W>
static void forward(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, N *out, float *stats,
    const N *q, const N *k, const N *v) {
  typedef forward_tile<W> S;
  TSR_ALLOW_SHARED((attention_forward<N, W>), S::BYTES);
  TSR_LAUNCH(
      (attention_forward<N, W>), attention_blocks(a->T, a->B * a->H, S::QUERIES), SIMT_THREADS,
      S::BYTES, s, *a, key, out, stats, q, k, v);
}

template <typename N>
static void forward_width(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, void *out, float *stats,
    const void *q, const void *k, const void *v) {
  N *to = (N *)out;
  const N *qs = (const N *)q, *ks = (const N *)k, *vs = (const N *)v;
  if (a->D <= 64) forward<N, 64>(s, a, key, to, stats, qs, ks, vs);
  else if (a->D <= 128) forward<N, 128>(s, a, key, to, stats, qs, ks, vs);
  else forward<N, 256>(s, a, key, to, stats, qs, ks, vs);
}

extern "C" void tsr_cuda_attention(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *out,
    float *stats, const void *q, const void *k, const void *v) {
  const void *arrays[] = {out, q, k, v};
  if (a->B * a->T * a->H * a->D == 0) return;
  if (tsr_cuda_attention_tensor_can(type, a, arrays, 4))
    tsr_cuda_attention_tensor(s, type, a, key, out, stats, q, k, v);
  else TSR_BY_TYPE(type, N, forward_width<N>(s, a, key, out, stats, q, k, v))
}
