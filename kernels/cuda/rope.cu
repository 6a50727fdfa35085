// SPDX-License-Identifier: Apache-2.0
/* Rotary positions (Su et al. 2021), halves rotated as in Hugging Face's Llama. A thread has W
 * neighbours of a head's low half and their partners in the high half. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

typedef struct {
  int64_t T, H, half, packs; /* packs of a half */
  int64_t rows;              /* of the table; positions behind them take the last one */
} turn_shape;

template <typename T, int W>
static __global__ void turn(
    T *y, const T *x, const float *table, const int32_t *positions, turn_shape of, float sign,
    int64_t n) {
  for (int64_t item = map_thread(); item < n; item += map_threads()) {
    int64_t pack = item % of.packs, head = item / of.packs, row = head / of.H;
    int64_t position = row % of.T + (positions ? positions[row / of.T] : 0);
    position = position < of.rows ? position : of.rows - 1;
    const float *angles = table + (position * of.half + pack * W) * 2;
    int64_t low = head * 2 * of.half + pack * W, high = low + of.half;
    float a[W], b[W], cs[2 * W], u[W], v[W];
    row_load(a, x + low, 0, W, true);
    row_load(b, x + high, 0, W, true);
    row_load(cs, angles, 0, 2 * W, W > 1); /* one pair need not be aligned as a pair */
#pragma unroll
    for (int k = 0; k < W; k++) {
      float cosine = cs[2 * k], sine = sign * cs[2 * k + 1];
      u[k] = a[k] * cosine - b[k] * sine;
      v[k] = b[k] * cosine + a[k] * sine;
    }
    row_store(y + low, u, 0, W, true);
    row_store(y + high, v, 0, W, true);
  }
}

template <typename T, int W>
static void turn_launch(
    tsr_cuda_stream s, tsr_cuda_type type, T *y, const T *x, const float *table,
    const int32_t *positions, int64_t B, turn_shape of, float sign) {
  of.packs = of.half / W;
  int64_t heads = B * of.T * of.H;
  TSR_LAUNCH(
      (turn<T, W>), launch_rope(heads, of.half, type, W > 1), s, y, x, table, positions, of, sign,
      heads * of.packs);
}

extern "C" void tsr_cuda_rope_cached(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table,
    const int32_t *positions, int64_t rows, int64_t B, int64_t T, int64_t H, int64_t D,
    float sign) {
  turn_shape of = {T, H, D / 2, 0, rows};
  if (B * T * H * of.half <= 0) return;
  bool packed = launch_rope_is_packed(D, y, x, table);
  TSR_BY_TYPE(
      type, N,
      packed ? turn_launch<N, pack_of<N>::width>(
                   s, type, (N *)y, (const N *)x, table, positions, B, of, sign)
             : turn_launch<N, 1>(s, type, (N *)y, (const N *)x, table, positions, B, of, sign))
}

extern "C" void tsr_cuda_rope(
    tsr_cuda_stream s, tsr_cuda_type type, void *y, const void *x, const float *table, int64_t B,
    int64_t T, int64_t H, int64_t D, float sign) {
  tsr_cuda_rope_cached(s, type, y, x, table, NULL, INT64_MAX, B, T, H, D, sign);
}
