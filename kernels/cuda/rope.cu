// SPDX-License-Identifier: Apache-2.0
/* Rotary positions (Su et al. 2021). A thread has W pairs of a head, or one of the elements that
 * stay as they are. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

typedef struct {
  tsr_rope of;
  int64_t half, packs, kept; /* pairs of a head, in packs of W, and elements that are copied */
  int64_t rows;              /* of the table; positions behind them take the last one */
} rope_shape;

/* a and b: the first and the second elements of W pairs, from the pack's first pair on. */
template <int W, typename T>
static __device__ inline void
pairs_load(const T *x, const rope_shape &s, int64_t pair, float (&a)[W], float (&b)[W]) {
  if (!s.of.interleaved) {
    row_load(a, x + pair, 0, W, true);
    row_load(b, x + pair + s.half, 0, W, true);
    return;
  }
  float both[2 * W];
  row_load(both, x + 2 * pair, 0, 2 * W, W > 1); /* one pair need not be aligned as a pair */
#pragma unroll
  for (int k = 0; k < W; k++) a[k] = both[2 * k], b[k] = both[2 * k + 1];
}

template <int W, typename T>
static __device__ inline void
pairs_store(T *y, const rope_shape &s, int64_t pair, const float (&a)[W], const float (&b)[W]) {
  if (!s.of.interleaved) {
    row_store(y + pair, a, 0, W, true);
    row_store(y + pair + s.half, b, 0, W, true);
    return;
  }
  float both[2 * W];
#pragma unroll
  for (int k = 0; k < W; k++) both[2 * k] = a[k], both[2 * k + 1] = b[k];
  row_store(y + 2 * pair, both, 0, 2 * W, W > 1);
}

template <typename T, int W>
static __global__ void
rope(T *y, const T *x, const float *table, const int32_t *positions, rope_shape s, int64_t n) {
  int64_t in_head = s.packs + s.kept;
  for (int64_t item = map_thread(); item < n; item += map_threads()) {
    int64_t i = item % in_head, head = item / in_head, row = head / s.of.H;
    if (i >= s.packs) {
      int64_t d = i - s.packs;
      if (d >= s.of.offset) d += s.of.rotary;
      y[head * s.of.D + d] = x[head * s.of.D + d];
      continue;
    }
    int64_t position = row % s.of.T + (positions ? positions[row / s.of.T] : 0), pair = i * W;
    position = position < s.rows ? position : s.rows - 1;
    int64_t first = head * s.of.D + s.of.offset;
    float a[W], b[W], cs[2 * W], u[W], v[W];
    pairs_load<W>(x + first, s, pair, a, b);
    row_load(cs, table + (position * s.half + pair) * 2, 0, 2 * W, W > 1);
#pragma unroll
    for (int k = 0; k < W; k++) {
      float cosine = cs[2 * k], sine = s.of.sign * cs[2 * k + 1];
      u[k] = a[k] * cosine - b[k] * sine;
      v[k] = b[k] * cosine + a[k] * sine;
    }
    pairs_store<W>(y + first, s, pair, u, v);
  }
}

template <typename T, int W>
static void rope_launch(
    tsr_cuda_stream s, tsr_cuda_type type, T *y, const T *x, const float *table,
    const int32_t *positions, int64_t B, rope_shape of) {
  of.packs = of.half / W;
  int64_t heads = B * of.of.T * of.of.H;
  TSR_LAUNCH(
      (rope<T, W>), launch_rope(heads, &of.of, type, W > 1, y == x), s, y, x, table, positions, of,
      heads * (of.packs + of.kept));
}

extern "C" void tsr_cuda_rope_cached(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table,
    const int32_t *positions, int64_t rows, int64_t B, const tsr_rope *r) {
  rope_shape of = {*r, r->rotary / 2, 0, launch_rope_kept(r, y == x), rows};
  if (B * r->T * r->H * (of.half + of.kept) <= 0) return;
  bool packed = launch_rope_is_packed(r, y, x, table);
  TSR_BY_TYPE(
      type, N,
      packed ? rope_launch<N, pack_of<N>::width>(
                   s, type, (N *)y, (const N *)x, table, positions, B, of)
             : rope_launch<N, 1>(s, type, (N *)y, (const N *)x, table, positions, B, of))
}

extern "C" void tsr_cuda_rope(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table, int64_t B,
    const tsr_rope *r) {
  tsr_cuda_rope_cached(s, type, y, x, table, NULL, INT64_MAX, B, r);
}
