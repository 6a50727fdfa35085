// SPDX-License-Identifier: Apache-2.0
/* Attention forward with tensor cores. */
#include "kernels/cuda/attention_tensor_passes.cuh"

/* Writes out and statistics of run m of 16 queries, of which `left` exist; `tile` is a place for
 * them. */
template <tsr_cuda_type TYPE, int W, int M>
static __device__ inline void rows_finish(
    const forward_rows<W, M> &rows, int m, const tsr_attention &a, int64_t h, int64_t stride,
    int64_t left, uint16_t *out, float *stats, uint16_t *tile) {
  float factor[2];
  rows_statistics(factor, rows, m, a, h, left, stats);
  tensor_store<TYPE, forward_rows<W, M>::V>(
      out, stride, left, a.Dv, tile, rows.out[m], factor[0], factor[1]);
}

template <tsr_cuda_type TYPE, int W, int M, tensor_variant VARIANT>
static __global__ void __launch_bounds__(TENSOR_THREADS, 2) attention_tensor_forward(
    tsr_attention a, const uint64_t *key, uint16_t *out, float *stats, const uint16_t *q,
    const uint16_t *k, const uint16_t *v) {
  typedef tensor_forward<W, M> S;
  TSR_SHARED(uint16_t, shared);
  tensor_forward_parts p = tensor_forward_layout<W, M>(shared);
  attention_item item = attention_item_of_queries(a.B * a.H, S::QUERIES);
  int64_t b = item.line / a.H, h = item.line % a.H;
  int64_t end = attention_tile_end(a, item.first, S::QUERIES);
  for (int64_t own = item.first; own < end;) {
    __shared__ attention_part part;
    __shared__ attention_head at;
    attention_part next = attention_part_at(a, b, own, end, false);
    if (threadIdx.x == 0) part = next, at = attention_head_of_part(a, next, b, h);
    __syncthreads();
    int64_t own_row = attention_own_row(a, part, b, h, a.H), to = own_row * a.Dv;
    tensor_keys keys = {k + at.k_start, v + at.v_start, at.k_stride, at.v_stride};
    int row = tensor_row(M);
    forward_rows<W, M> rows;
    rows_begin(&rows);
    tensor_load<W, S::QUERIES, TENSOR_THREADS>(
        p.queries, q + own_row * a.D, at.q_stride, part.count, a.D);
    tensor_forward_add<TYPE, W, M, VARIANT>(
        &rows, p, attention_of_part(a, part),
        attention_drop_at(a, key, at, a.T, part.begin, part.begin), part.first, keys);
    rows_end(&rows);
    float *numbers = stats + 2 * (at.line * attention_own(a) + part.row);
#pragma unroll
    for (int m = 0; m < M; m++) {
      int from = row + 16 * m;
      rows_finish<TYPE, W, M>(
          rows, m, a, h, at.o_stride, part.count - from, out + to + from * at.o_stride,
          numbers + 2 * from, p.queries + from * S::STRIDE);
    }
    own = part.row + part.count;
    __syncthreads(); /* p is loaded anew */
  }
}

typedef struct {
  uint16_t *out;
  float *stats;
  const uint16_t *q, *k, *v;
} forward_arrays;

template <tsr_cuda_type TYPE, tensor_variant VARIANT, int W>
static void
forward(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, const forward_arrays &x) {
  const attention_tile tile = tensor_tile(TSR_ATTENTION_OUT, W);
  constexpr int M = tensor_forward_runs(W);
  TSR_ALLOW_SHARED((attention_tensor_forward<TYPE, W, M, VARIANT>), tile.shared_bytes);
  TSR_LAUNCH(
      (attention_tensor_forward<TYPE, W, M, VARIANT>),
      launch_attention(&tile, tsr_attention_own(a), a->B * a->H), s, *a, key, x.out, x.stats, x.q,
      x.k, x.v);
}

template <tsr_cuda_type TYPE, tensor_variant VARIANT>
static void forward_width(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, const forward_arrays &x) {
  int width = tensor_width(a);
  if (width == 64) forward<TYPE, VARIANT, 64>(s, a, key, x);
  else if (width == 80) forward<TYPE, VARIANT, 80>(s, a, key, x);
  else if (width == 96) forward<TYPE, VARIANT, 96>(s, a, key, x);
  else if (width == 128) forward<TYPE, VARIANT, 128>(s, a, key, x);
  else if (width == TENSOR_LATENT_WIDTH) forward<TYPE, VARIANT, TENSOR_LATENT_WIDTH>(s, a, key, x);
  else forward<TYPE, VARIANT, TENSOR_WIDTH_MAX>(s, a, key, x);
}

template <tsr_cuda_type TYPE>
static void forward_variant(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, const forward_arrays &x) {
  tensor_variant variant = tensor_variant_of(*a);
  if (variant == TENSOR_DROPOUT) forward_width<TYPE, TENSOR_DROPOUT>(s, a, key, x);
  else if (variant == TENSOR_SOFT_CAP) forward_width<TYPE, TENSOR_SOFT_CAP>(s, a, key, x);
  else forward_width<TYPE, TENSOR_PLAIN>(s, a, key, x);
}

void tsr_cuda_attention_tensor(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *out,
    float *stats, const void *q, const void *k, const void *v) {
  const forward_arrays x = {
      (uint16_t *)out, stats, (const uint16_t *)q, (const uint16_t *)k, (const uint16_t *)v};
  if (type == TSR_CUDA_BF16) forward_variant<TSR_CUDA_BF16>(s, a, key, x);
  else forward_variant<TSR_CUDA_F16>(s, a, key, x);
}
