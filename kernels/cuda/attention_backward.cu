/* Attention backward without tensor cores: the probabilities are computed again, tile by tile, from
 * the scores and each row's maximum and sum, once for dq and once for dk and dv, so that every sum
 * is one block's.
 *
 * With f the factors of dropout and dP = dout v^T: dS = P (dP f - delta), P = exp(S - max)/sum,
 * delta = dout . out = sum_j P dP f; dv = (P f)^T dout, dq = dS k scale, dk = dS^T q scale. */
#include "kernels/cuda/attention_simt.cuh"

enum { DELTA_THREADS = 256, LANES = 32 };

/* delta (rows of B,H,T) = dout . out: a warp a row. */
template <typename N>
static __global__ void __launch_bounds__(DELTA_THREADS)
    attention_delta(tsr_attention a, float *delta, const N *dout, const N *out) {
  int64_t row = blockIdx.x * (int64_t)(DELTA_THREADS / LANES) + threadIdx.x / LANES;
  int64_t line = row / a.T, t = row % a.T;
  bool real = row < a.B * a.H * a.T;
  int64_t at = ((line / a.H * a.T + t) * a.H + line % a.H) * a.D;
  float sum = 0;
  for (int64_t d = threadIdx.x % LANES; real && d < a.D; d += LANES)
    sum = fmaf(number_load(dout + at + d), number_load(out + at + d), sum);
  for (int n = LANES / 2; n; n /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, n);
  if (real && threadIdx.x % LANES == 0) delta[row] = sum;
}

template <int W> struct backward_tile {
  static constexpr int QUERIES = W > 64 ? 32 : 64, KEYS = W > 128 ? 32 : 64;
  static constexpr int STRIDE = W + SIMT_PAD, WIDTH = KEYS + SIMT_PAD;
  static constexpr int I = QUERIES / SIMT_SIDE, J = KEYS / SIMT_SIDE;
  /* floats with one array of a tile's gradients, and with two */
  static constexpr int TILES = 2 * (QUERIES + KEYS) * STRIDE + 3 * QUERIES;
  static constexpr int ONE = TILES + QUERIES * WIDTH, TWO = ONE + QUERIES * WIDTH;
  static constexpr int MASK = QUERIES * (KEYS / ATTENTION_RUN) * 2; /* bytes */
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
  bool masked = attention_masked(a, query, key, S::KEYS);
  simt_dot<W>(scores, p.queries, p.keys, a.D);
  simt_dot<W>(grads, p.douts, p.values, a.D);
#pragma unroll
  for (int i = 0; i < S::I; i++)
#pragma unroll
    for (int j = 0; j < S::J; j++) {
      int q = i * SIMT_SIDE + simt_y(), k = j * SIMT_SIDE + simt_x();
      float x = expf(scores[i][j] * a.scale - p.rows[3 * q]) * p.rows[3 * q + 1];
      if (masked && !attention_seen(a, query + q, key + k)) x = 0;
      float f = !p.bits || attention_bit(p.bits, S::KEYS, q, k) ? factor : 0.0f;
      p.grads[q * S::WIDTH + k] = x * (grads[i][j] * f - p.rows[3 * q + 2]);
      if (p.kept) p.kept[q * S::WIDTH + k] = x * f;
    }
}

template <typename N> struct backward_arrays {
  N *dq, *dk, *dv;
  const N *dout, *q, *k, *v;
  const float *stats, *delta;
};

template <typename N, int W>
static __global__ void __launch_bounds__(SIMT_THREADS)
    attention_dq(tsr_attention a, const uint64_t *key, backward_arrays<N> x) {
  typedef backward_tile<W> S;
  TSR_SHARED(float, shared);
  backward_parts p = backward_layout<W>(shared, a, false);
  attention_item item = attention_item_of_queries(a.B * a.H, S::QUERIES);
  attention_head at = attention_head_at(a, item.line / a.H, item.line % a.H);
  int64_t first = item.first, start = at.q_start + first * at.q_stride;
  float sums[S::I][W / 16];
  simt_zero(sums);
  simt_load<N, W, S::QUERIES>(p.queries, x.q + start, at.q_stride, a.T - first, a.D);
  simt_load<N, W, S::QUERIES>(p.douts, x.dout + start, at.q_stride, a.T - first, a.D);
  attention_rows(p.rows, a, at, x.stats, x.delta, first, S::QUERIES);
  for (int64_t t = 0; t < attention_keys(a, first + S::QUERIES); t += S::KEYS) {
    int64_t from = at.k_start + t * at.k_stride;
    simt_load<N, W, S::KEYS>(p.keys, x.k + from, at.k_stride, a.T - t, a.D);
    simt_load<N, W, S::KEYS>(p.values, x.v + from, at.k_stride, a.T - t, a.D);
    if (p.bits) attention_mask(p.bits, a, *key, at, first, t, S::QUERIES, S::KEYS);
    __syncthreads();
    tile_gradients<W>(p, a, first, t);
    __syncthreads();
    simt_weigh<W, S::KEYS>(sums, p.grads, p.keys);
    __syncthreads();
  }
  for (int i = 0; i < S::I; i++) {
    int row = i * SIMT_SIDE + simt_y();
    if (first + row < a.T)
      simt_store<N, W>(x.dq + start + row * at.q_stride, sums[i], a.scale, a.D);
  }
}

/* The heads of a group are added in their order. */
template <typename N, int W>
static __global__ void __launch_bounds__(SIMT_THREADS)
    attention_dkv(tsr_attention a, const uint64_t *key, backward_arrays<N> x) {
  typedef backward_tile<W> S;
  TSR_SHARED(float, shared);
  backward_parts p = backward_layout<W>(shared, a, true);
  attention_item item = attention_item_of_keys(a.B * a.G, S::KEYS);
  int64_t heads = a.H / a.G, b = item.line / a.G, h = item.line % a.G * heads;
  attention_head at = attention_head_at(a, b, h);
  int64_t first = item.first, from = at.k_start + first * at.k_stride;
  float dk[S::J][W / 16], dv[S::J][W / 16];
  simt_zero(dk);
  simt_zero(dv);
  simt_load<N, W, S::KEYS>(p.keys, x.k + from, at.k_stride, a.T - first, a.D);
  simt_load<N, W, S::KEYS>(p.values, x.v + from, at.k_stride, a.T - first, a.D);
  for (int64_t n = 0; n < heads; n++) {
    at = attention_head_at(a, b, h + n);
    for (int64_t t = attention_queries(a, first, S::QUERIES); t < a.T; t += S::QUERIES) {
      int64_t start = at.q_start + t * at.q_stride;
      simt_load<N, W, S::QUERIES>(p.queries, x.q + start, at.q_stride, a.T - t, a.D);
      simt_load<N, W, S::QUERIES>(p.douts, x.dout + start, at.q_stride, a.T - t, a.D);
      attention_rows(p.rows, a, at, x.stats, x.delta, t, S::QUERIES);
      if (p.bits) attention_mask(p.bits, a, *key, at, t, first, S::QUERIES, S::KEYS);
      __syncthreads();
      tile_gradients<W>(p, a, t, first);
      __syncthreads();
      simt_spread<W, S::QUERIES, S::KEYS>(dv, p.kept, p.douts);
      simt_spread<W, S::QUERIES, S::KEYS>(dk, p.grads, p.queries);
      __syncthreads();
    }
  }
  for (int j = 0; j < S::J; j++) {
    int row = simt_y() * S::J + j;
    if (first + row >= a.T) continue;
    simt_store<N, W>(x.dk + from + row * at.k_stride, dk[j], a.scale, a.D);
    simt_store<N, W>(x.dv + from + row * at.k_stride, dv[j], 1, a.D);
  }
}

template <typename N, int W>
static void
backward(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays<N> x) {
  typedef backward_tile<W> S;
  size_t bytes = S::ONE * 4 + S::MASK, more = S::TWO * 4 + S::MASK;
  TSR_ALLOW_SHARED((attention_dq<N, W>), bytes);
  TSR_ALLOW_SHARED((attention_dkv<N, W>), more);
  TSR_LAUNCH(
      (attention_dkv<N, W>), attention_blocks(a->T, a->B * a->G, S::KEYS), SIMT_THREADS, more, s,
      *a, key, x);
  TSR_LAUNCH(
      (attention_dq<N, W>), attention_blocks(a->T, a->B * a->H, S::QUERIES), SIMT_THREADS, bytes, s,
      *a, key, x);
}

template <typename N>
static void backward_width(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, void *dq, void *dk, void *dv,
    const void *dout, const void *q, const void *k, const void *v, const float *stats,
    const float *delta) {
  backward_arrays<N> x = {(N *)dq,         (N *)dk,      (N *)dv,
                          (const N *)dout, (const N *)q, (const N *)k,
                          (const N *)v,    stats,        delta};
  if (a->D <= 64) backward<N, 64>(s, a, key, x);
  else if (a->D <= 128) backward<N, 128>(s, a, key, x);
  else backward<N, 256>(s, a, key, x);
}

template <typename N>
static void delta_rows(
    tsr_cuda_stream s, const tsr_attention *a, float *delta, const void *dout, const void *out) {
  int64_t in_block = DELTA_THREADS / LANES;
  unsigned blocks = (unsigned)((a->B * a->H * a->T + in_block - 1) / in_block);
  TSR_LAUNCH(
      (attention_delta<N>), blocks, DELTA_THREADS, 0, s, *a, delta, (const N *)dout,
      (const N *)out);
}

extern "C" int64_t tsr_cuda_attention_scratch(const tsr_attention *a) {
  return a->B * a->H * a->T * (int64_t)sizeof(float);
}

extern "C" void tsr_cuda_attention_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *dq,
    void *dk, void *dv, const void *dout, const void *q, const void *k, const void *v,
    const void *out, const float *stats, void *scratch) {
  const void *arrays[] = {dq, dk, dv, dout, q, k, v};
  float *delta = (float *)scratch;
  if (a->B * a->T * a->H * a->D == 0) return;
  TSR_BY_TYPE(type, N, delta_rows<N>(s, a, delta, dout, out))
  if (tsr_cuda_attention_tensor_can(type, a, arrays, 7))
    tsr_cuda_attention_tensor_backward(s, type, a, key, dq, dk, dv, dout, q, k, v, stats, delta);
  else TSR_BY_TYPE(type, N, backward_width<N>(s, a, key, dq, dk, dv, dout, q, k, v, stats, delta))
}
