// SPDX-License-Identifier: Apache-2.0
/* Attention forward without tensor cores, and the choice of the passes.
 *
 * A block has a tile of queries and goes over the tiles of keys that one of them sees, with the
 * online softmax (Milakov and Gimelshein 2018): a row's maximum m, its sum l of exp(score - m) and
 * its weighted values are kept, and the latter two are multiplied by exp(m_old - m_new) wherever a
 * tile raises the maximum. */
#include "kernels/cuda/attention_simt_passes.cuh"

template <typename N, int W>
static __global__ void __launch_bounds__(SIMT_THREADS) attention_forward(
    tsr_attention a, const uint64_t *key, N *out, float *stats, const N *q, const N *k,
    const N *v) {
  typedef forward_tile<W> S;
  TSR_SHARED(float, shared);
  forward_parts p = forward_layout<W>(shared, a);
  attention_item item = attention_item_of_queries(a.B * a.H, S::QUERIES);
  int64_t b = item.line / a.H, h = item.line % a.H;
  int64_t end = attention_tile_end(a, item.first, S::QUERIES);
  for (int64_t row = item.first; row < end;) {
    attention_part part = attention_part_at(a, b, row, end, false);
    attention_head at = attention_head_of_part(a, part, b, h);
    int64_t own_row = attention_own_row(a, part, b, h, a.H);
    float *numbers = stats + 2 * (at.line * attention_own(a) + row);
    forward_sums<W> sums;
    forward_begin<W>(&sums);
    simt_load<N, W, S::QUERIES>(p.queries, q + own_row * a.D, at.q_stride, part.count, a.D);
    forward_add<N, W>(
        &sums, p, attention_of_part(a, part),
        attention_drop_at(a, key, at, a.T, part.begin, part.begin), part.first,
        simt_keys_of(at, k, v, 0));
    for (int i = 0; i < S::I; i++) {
      int r = i * SIMT_SIDE + simt_y();
      if (r >= part.count) continue;
      float shrunk = attention_sink(a, h, &sums.max[i], &sums.sum[i]);
      float factor = (p.bits ? attention_kept(a) : 1.0f) * shrunk / sums.sum[i];
      simt_store<N, W>(out + own_row * a.Dv + r * at.o_stride, sums.out[i], factor, a.Dv);
      if (simt_x() > 0) continue;
      numbers[2 * r] = sums.max[i];
      numbers[2 * r + 1] = sums.sum[i];
    }
    row += part.count;
  }
}

template <typename N, int W>
static void forward(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, N *out, float *stats,
    const N *q, const N *k, const N *v) {
  const attention_tile tile = simt_tile(TSR_ATTENTION_OUT, W);
  TSR_ALLOW_SHARED((attention_forward<N, W>), tile.shared_bytes);
  TSR_LAUNCH(
      (attention_forward<N, W>), launch_attention(&tile, tsr_attention_own(a), a->B * a->H), s, *a,
      key, out, stats, q, k, v);
}

template <typename N>
static void forward_width(
    tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, void *out, float *stats,
    const void *q, const void *k, const void *v) {
  N *to = (N *)out;
  const N *qs = (const N *)q, *ks = (const N *)k, *vs = (const N *)v;
  int width = simt_width(a);
  if (width == 64) forward<N, 64>(s, a, key, to, stats, qs, ks, vs);
  else if (width == 128) forward<N, 128>(s, a, key, to, stats, qs, ks, vs);
  else forward<N, 256>(s, a, key, to, stats, qs, ks, vs);
}

extern "C" void tsr_cuda_attention(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *of, const uint64_t *key, void *out,
    float *stats, const void *q, const void *k, const void *v) {
  const tsr_attention a = attention_with_value_size(of);
  const void *arrays[] = {out, q, k, v};
  if (a.B * a.T * a.H * a.D == 0) return;
  if (attention_tensor_can(type, &a, arrays, 4))
    tsr_cuda_attention_tensor(s, type, &a, key, out, stats, q, k, v);
  else TSR_BY_TYPE(type, N, forward_width<N>(s, &a, key, out, stats, q, k, v))
}
