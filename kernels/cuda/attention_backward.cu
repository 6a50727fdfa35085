// SPDX-License-Identifier: Apache-2.0
/* Attention backward without tensor cores: the probabilities are computed again, tile by tile, from
 * the scores and each row's maximum and sum, once for dq and once for dk and dv, so that every sum
 * is one block's. */
#include "kernels/cuda/attention_simt_passes.cuh"

/* delta (rows of B,H,T) = dout . out */
template <typename N>
static __global__ void __launch_bounds__(ATTENTION_DELTA_THREADS)
    attention_delta(tsr_attention a, float *delta, const N *dout, const N *out, bool packed) {
  int64_t row = attention_row_here();
  bool real = row < a.B * a.H * a.T;
  float sum = row_delta(a, row, real, dout, out, packed);
  if (real && threadIdx.x % ATTENTION_ROW_LANES == 0) delta[row] = sum;
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
  int64_t b = item.line / a.H, h = item.line % a.H;
  int64_t end = attention_tile_end(a, item.first, S::QUERIES);
  for (int64_t row = item.first; row < end;) {
    attention_part part = attention_part_at(a, b, row, end, false);
    attention_head at = attention_head_of_part(a, part, b, h);
    attention_statistics rows =
        attention_statistics_at(x.stats, x.delta, at.line * a.T + part.begin);
    int64_t start = at.q_start + part.first * at.q_stride;
    int64_t dout = at.o_start + part.first * at.o_stride;
    N *to = x.dq + attention_own_row(a, part, b, h, a.H) * a.D;
    dq_sums<W> sums;
    simt_zero(sums.dq);
    simt_load<N, W, S::QUERIES>(p.queries, x.q + start, at.q_stride, part.count, a.D);
    simt_load<N, W, S::QUERIES>(p.douts, x.dout + dout, at.o_stride, part.count, a.Dv);
    attention_rows(p.rows, rows, part.first, part.first + part.count, S::QUERIES);
    dq_add<N, W>(
        &sums, p, attention_of_part(a, part),
        attention_drop_at(a, key, at, a.T, part.begin, part.begin), part.first,
        simt_keys_of(at, x.k, x.v, 0));
    for (int i = 0; i < S::I; i++) {
      int r = i * SIMT_SIDE + simt_y();
      if (r < part.count) simt_store<N, W>(to + r * at.q_stride, sums.dq[i], a.scale, a.D);
    }
    row += part.count;
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
  int64_t heads = a.H / a.G, b = item.line / a.G, g = item.line % a.G;
  int64_t end = attention_tile_end(a, item.first, S::KEYS);
  for (int64_t row = item.first; row < end;) {
    attention_part part = attention_part_at(a, b, row, end, true);
    attention_head at = attention_head_of_part(a, part, b, g * heads);
    int64_t from = at.k_start + part.first * at.k_stride;
    int64_t values = at.v_start + part.first * at.v_stride;
    int64_t to = attention_own_row(a, part, b, g, a.G);
    dkv_sums<W> sums;
    simt_zero(sums.dk);
    simt_zero(sums.dv);
    simt_load<N, W, S::KEYS>(p.keys, x.k + from, at.k_stride, part.count, a.D);
    simt_load<N, W, S::KEYS>(p.values, x.v + values, at.v_stride, part.count, a.Dv);
    for (int64_t n = 0; n < heads; n++) {
      at = attention_head_of_part(a, part, b, g * heads + n);
      dkv_add<N, W>(
          &sums, p, attention_of_part(a, part),
          attention_drop_at(a, key, at, a.T, part.begin, part.begin),
          attention_statistics_at(x.stats, x.delta, at.line * a.T + part.begin), part.first,
          simt_queries_of(at, x.q, x.dout, 0));
    }
    for (int j = 0; j < S::J; j++) {
      int r = simt_y() * S::J + j;
      if (r >= part.count) continue;
      simt_store<N, W>(x.dk + to * a.D + r * at.k_stride, sums.dk[j], a.scale, a.D);
      simt_store<N, W>(x.dv + to * a.Dv + r * at.v_stride, sums.dv[j], 1, a.Dv);
    }
    row += part.count;
  }
}

template <typename N, int W>
static void
backward(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays<N> x) {
  const attention_tile dq = simt_tile(TSR_ATTENTION_DQ, W), dkv = simt_tile(TSR_ATTENTION_DKV, W);
  TSR_ALLOW_SHARED((attention_dq<N, W>), dq.shared_bytes);
  TSR_ALLOW_SHARED((attention_dkv<N, W>), dkv.shared_bytes);
  TSR_LAUNCH(
      (attention_dkv<N, W>), launch_attention(&dkv, tsr_attention_own(a), a->B * a->G), s, *a, key,
      x);
  TSR_LAUNCH(
      (attention_dq<N, W>), launch_attention(&dq, tsr_attention_own(a), a->B * a->H), s, *a, key,
      x);
}

template <typename N>
static void backward_width(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, void *dq, void *dk, void *dv,
    const void *dout, const void *q, const void *k, const void *v, const float *stats,
    const float *delta) {
  backward_arrays<N> x = {(N *)dq,         (N *)dk,      (N *)dv,
                          (const N *)dout, (const N *)q, (const N *)k,
                          (const N *)v,    stats,        delta};
  int width = simt_width(a);
  if (width == 64) backward<N, 64>(s, a, key, x);
  else if (width == 128) backward<N, 128>(s, a, key, x);
  else backward<N, 256>(s, a, key, x);
}

template <typename N>
static void delta_rows(
    tsr_cuda_stream s, const tsr_attention *a, float *delta, const void *dout, const void *out) {
  TSR_LAUNCH(
      (attention_delta<N>), launch_attention_rows(a->B * a->H * a->T), s, *a, delta,
      (const N *)dout, (const N *)out, rows_are_packed<N>(*a, dout, out));
}

/* d (B,T,H) */
template <typename N>
static __global__ void __launch_bounds__(ATTENTION_DELTA_THREADS) attention_sinks(
    tsr_attention a, N *d, const N *dout, const N *out, const float *stats, bool packed) {
  int64_t row = attention_row_here(), h = row / a.T % a.H;
  bool real = row < a.B * a.H * a.T;
  float delta = row_delta(a, row, real, dout, out, packed);
  if (!real || threadIdx.x % ATTENTION_ROW_LANES) return;
  float p = expf(a.sinks[h] - stats[2 * row]) / stats[2 * row + 1];
  number_store(d + (row / a.T / a.H * a.T + row % a.T) * a.H + h, -p * delta);
}

extern "C" void tsr_cuda_attention_sinks_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *of, void *d, const void *dout,
    const void *out, const float *stats) {
  const tsr_attention a = attention_with_value_size(of);
  int64_t rows = a.B * a.H * a.T;
  if (rows > 0)
    TSR_BY_TYPE(
        type, N,
        TSR_LAUNCH(
            (attention_sinks<N>), launch_attention_rows(rows), s, a, (N *)d, (const N *)dout,
            (const N *)out, stats, rows_are_packed<N>(a, dout, out)))
}

extern "C" void tsr_cuda_attention_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *of, const uint64_t *key, void *dq,
    void *dk, void *dv, const void *dout, const void *q, const void *k, const void *v,
    const void *out, const float *stats, void *scratch) {
  const tsr_attention a = attention_with_value_size(of);
  const void *arrays[] = {dq, dk, dv, dout, q, k, v};
  float *delta = (float *)scratch;
  if (a.B * a.T * a.H * a.D == 0) return;
  TSR_BY_TYPE(type, N, delta_rows<N>(s, &a, delta, dout, out))
  if (attention_tensor_can(type, &a, arrays, 7))
    tsr_cuda_attention_tensor_backward(s, type, &a, key, dq, dk, dv, dout, q, k, v, stats, delta);
  else TSR_BY_TYPE(type, N, backward_width<N>(s, &a, key, dq, dk, dv, dout, q, k, v, stats, delta))
}

extern "C" void tsr_cuda_attention_wgmma_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *of, void *dq, void *dk, void *dv,
    const void *dout, const void *q, const void *k, const void *v, const void *out,
    const float *stats, void *scratch) {
  const tsr_attention a = attention_with_value_size(of);
  float *delta = (float *)scratch;
  if (a.B * a.T * a.H * a.D == 0) return;
  TSR_BY_TYPE(type, N, delta_rows<N>(s, &a, delta, dout, out))
  tsr_cuda_attention_wgmma_gradients(s, type, &a, dq, dk, dv, dout, q, k, v, stats, delta);
}
