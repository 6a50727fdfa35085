// SPDX-License-Identifier: Apache-2.0
/* Attention backward with tensor cores: one pass has a tile of keys and goes over the tiles of
 * queries for dk and dv, or of the widest heads one for dk and one for dv; the other has a tile of
 * queries for dq and goes over the tiles of keys. */
#include "kernels/cuda/attention_tensor_passes.cuh"

typedef struct {
  uint16_t *dq, *dk, *dv;
  const uint16_t *dout, *q, *k, *v;
  const float *stats, *delta;
} backward_arrays;

template <tsr_cuda_type TYPE, int W, int M, tensor_variant VARIANT>
static __global__ void __launch_bounds__(TENSOR_THREADS, 2)
    attention_tensor_dq(tsr_attention a, const uint64_t *key, backward_arrays x) {
  typedef tensor_backward<W, M> S;
  const int TILE = S::OWN;
  TSR_SHARED(uint16_t, shared);
  tensor_backward_parts p = tensor_backward_layout<W, M>(shared);
  attention_item item = attention_item_of_queries(a.B * a.H, TILE);
  int64_t b = item.line / a.H, h = item.line % a.H;
  int64_t end = attention_tile_end(a, item.first, TILE);
  for (int64_t own = item.first; own < end;) {
    __shared__ attention_part part;
    __shared__ attention_head at;
    attention_part next = attention_part_at(a, b, own, end, false);
    if (threadIdx.x == 0) part = next, at = attention_head_of_part(a, next, b, h);
    __syncthreads();
    attention_statistics rows =
        attention_statistics_at(x.stats, x.delta, at.line * a.T + part.begin);
    int64_t start = at.q_start + part.first * at.q_stride, stride = at.q_stride;
    int64_t dout = at.o_start + part.first * at.o_stride;
    int64_t to = attention_own_row(a, part, b, h, a.H) * a.D;
    tensor_keys keys = {x.k + at.k_start, x.v + at.v_start, at.k_stride, at.v_stride};
    int row = tensor_row(M);
    float sums[M][W / 8][4];
    zero<W, M>(sums);
    tensor_load<W, TILE, TENSOR_THREADS>(p.own, x.q + start, stride, part.count, a.D);
    tensor_load<S::V, TILE, TENSOR_THREADS>(
        p.own + S::OWN_SIZE, x.dout + dout, at.o_stride, part.count, a.Dv);
    query_row_write(p.rows, query_row_read(rows, part.first, part.first + part.count, TILE), TILE);
    tensor_dq_add<TYPE, W, M, VARIANT>(
        sums, p, attention_of_part(a, part),
        attention_drop_at(a, key, at, a.T, part.begin, part.begin), part.first, keys);
#pragma unroll
    for (int m = 0; m < M; m++, row += 16)
      tensor_store<TYPE, W>(
          x.dq + to + row * stride, stride, part.count - row, a.D, p.own + row * S::STRIDE, sums[m],
          a.scale, a.scale);
    own = part.row + part.count;
    __syncthreads(); /* p is loaded anew */
  }
}

template <tsr_cuda_type TYPE, int W, int M, tensor_variant VARIANT, tensor_sums SUMS>
static __global__ void __launch_bounds__(TENSOR_THREADS, 2)
    attention_tensor_dkv(tsr_attention a, const uint64_t *key, backward_arrays x) {
  typedef tensor_backward<W, M> S;
  const int TILE = S::OWN;
  TSR_SHARED(uint16_t, shared);
  tensor_backward_parts p = tensor_backward_layout<W, M>(shared);
  attention_item item = attention_item_of_keys(a.B * a.G, TILE);
  int64_t heads = a.H / a.G, b = item.line / a.G, g = item.line % a.G;
  int64_t end = attention_tile_end(a, item.first, TILE);
  for (int64_t own = item.first; own < end;) {
    __shared__ attention_part part;
    attention_part next = attention_part_at(a, b, own, end, true);
    if (threadIdx.x == 0) part = next;
    __syncthreads();
    attention_head at = attention_head_of_part(a, part, b, g * heads);
    int64_t k_stride = at.k_stride, v_stride = S::ONE_WIDTH ? k_stride : at.v_stride;
    int64_t keys = at.k_start + part.first * k_stride, Dv = S::ONE_WIDTH ? a.D : a.Dv;
    int64_t values = S::ONE_WIDTH ? keys : at.v_start + part.first * v_stride;
    int row = tensor_row(M);
    float dk[M][W / 8][4], dv[M][S::V / 8][4];
    zero<W, M>(dk);
    zero<S::V, M>(dv);
    tensor_load<W, TILE, TENSOR_THREADS>(p.own, x.k + keys, k_stride, part.count, a.D);
    if (SUMS & TENSOR_DK)
      tensor_load<S::V, TILE, TENSOR_THREADS>(
          p.own + S::OWN_SIZE, x.v + values, v_stride, part.count, Dv);
    tensor_queries queries = {
        x.q + at.q_start,
        x.dout + at.o_start,
        at.q_stride,
        at.o_stride,
        heads,
        a.T,
        attention_statistics_at(x.stats, x.delta, at.line * a.T + part.begin),
        attention_drop_at(a, key, at, a.T, part.begin, part.begin)};
    tensor_dkv_add<TYPE, W, M, VARIANT, SUMS>(
        dk, dv, p, attention_of_part(a, part), queries, part.first);
    int64_t to = attention_own_row(a, part, b, g, a.G);
#pragma unroll
    for (int m = 0; m < M; m++, row += 16) {
      int64_t left = part.count - row;
      uint16_t *dk_tile = p.own + row * S::STRIDE;
      uint16_t *dv_tile = p.own + S::OWN_SIZE + row * S::VALUE_STRIDE;
      if (SUMS & TENSOR_DK)
        tensor_store<TYPE, W>(
            x.dk + to * a.D + row * k_stride, k_stride, left, a.D, dk_tile, dk[m], a.scale,
            a.scale);
      if (SUMS & TENSOR_DV)
        tensor_store<TYPE, S::V>(
            x.dv + to * Dv + row * v_stride, v_stride, left, Dv, dv_tile, dv[m], 1, 1);
    }
    own = part.row + part.count;
    __syncthreads(); /* p is loaded anew */
  }
}

template <tsr_cuda_type TYPE, int W, tensor_variant VARIANT, tensor_sums SUMS>
static void
backward_dkv(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays x) {
  const attention_tile tile = tensor_tile(TSR_ATTENTION_DKV, W);
  constexpr int M = tensor_backward_runs(W);
  TSR_ALLOW_SHARED((attention_tensor_dkv<TYPE, W, M, VARIANT, SUMS>), tile.shared_bytes);
  TSR_LAUNCH(
      (attention_tensor_dkv<TYPE, W, M, VARIANT, SUMS>),
      launch_attention(&tile, tsr_attention_own(a), a->B * a->G), s, *a, key, x);
}

template <tsr_cuda_type TYPE, tensor_variant VARIANT, int W>
static void
backward(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays x) {
  const attention_tile tile = tensor_tile(TSR_ATTENTION_DQ, W);
  constexpr int M = tensor_backward_runs(W);
  if constexpr (tensor_dkv_passes(W) == 1) backward_dkv<TYPE, W, VARIANT, TENSOR_DKV>(s, a, key, x);
  else {
    backward_dkv<TYPE, W, VARIANT, TENSOR_DK>(s, a, key, x);
    backward_dkv<TYPE, W, VARIANT, TENSOR_DV>(s, a, key, x);
  }
  TSR_ALLOW_SHARED((attention_tensor_dq<TYPE, W, M, VARIANT>), tile.shared_bytes);
  TSR_LAUNCH(
      (attention_tensor_dq<TYPE, W, M, VARIANT>),
      launch_attention(&tile, tsr_attention_own(a), a->B * a->H), s, *a, key, x);
}

template <tsr_cuda_type TYPE, tensor_variant VARIANT>
static void
backward_width(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays x) {
  int width = tensor_width(a);
  if (width == 64) backward<TYPE, VARIANT, 64>(s, a, key, x);
  else if (width == 80) backward<TYPE, VARIANT, 80>(s, a, key, x);
  else if (width == 96) backward<TYPE, VARIANT, 96>(s, a, key, x);
  else if (width == 128) backward<TYPE, VARIANT, 128>(s, a, key, x);
  else if (width == TENSOR_LATENT_WIDTH) backward<TYPE, VARIANT, TENSOR_LATENT_WIDTH>(s, a, key, x);
  else backward<TYPE, VARIANT, TENSOR_WIDTH_MAX>(s, a, key, x);
}

template <tsr_cuda_type TYPE>
static void backward_variant(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays x) {
  tensor_variant variant = tensor_variant_of(*a);
  if (variant == TENSOR_DROPOUT) backward_width<TYPE, TENSOR_DROPOUT>(s, a, key, x);
  else if (variant == TENSOR_SOFT_CAP) backward_width<TYPE, TENSOR_SOFT_CAP>(s, a, key, x);
  else backward_width<TYPE, TENSOR_PLAIN>(s, a, key, x);
}

void tsr_cuda_attention_tensor_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *dq,
    void *dk, void *dv, const void *dout, const void *q, const void *k, const void *v,
    const float *stats, const float *delta) {
  backward_arrays x = {
      (uint16_t *)dq,
      (uint16_t *)dk,
      (uint16_t *)dv,
      (const uint16_t *)dout,
      (const uint16_t *)q,
      (const uint16_t *)k,
      (const uint16_t *)v,
      stats,
      delta};
  if (type == TSR_CUDA_BF16) backward_variant<TSR_CUDA_BF16>(s, a, key, x);
  else backward_variant<TSR_CUDA_F16>(s, a, key, x);
}
