// SPDX-License-Identifier: Apache-2.0
/* What a warp makes of its scores, which lie in registers as tensor_gemm leaves them: softmax
 * forward, P and dS backward, with soft caps, masks and dropout.
 *
 * Powers are of 2: the factor of scores is scale * log2(e), or behind a soft cap cap * log2(e). It
 * is positive, and a maximum in forward_rows has it. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_TENSOR_SCORES_CUH
#define TSR_KERNELS_CUDA_ATTENTION_TENSOR_SCORES_CUH
#include "kernels/cuda/mma.cuh"

#define LOG2_E 1.4426950408889634f
#define LOG_2 0.6931471805599453f

/* What a kernel is compiled for: calls with neither dropout nor a soft cap, whose code takes
 * registers where it is not used; calls with a soft cap; or calls with dropout, and with or without
 * a soft cap. Over units the last one serves all calls. Sums take most of the 255 registers of a
 * thread, and what does not fit into them is spilled (scripts/kernel_registers). */
typedef enum { TENSOR_PLAIN, TENSOR_SOFT_CAP, TENSOR_DROPOUT } tensor_variant;

static inline tensor_variant tensor_variant_of(const tsr_attention &a) {
  return a.dropout != 0 ? TENSOR_DROPOUT : a.soft_cap != 0 ? TENSOR_SOFT_CAP : TENSOR_PLAIN;
}

template <tensor_variant VARIANT>
static __device__ inline bool has_dropout(const tsr_attention &a) {
  return VARIANT == TENSOR_DROPOUT && a.dropout != 0;
}
template <tensor_variant VARIANT>
static __device__ inline bool has_soft_cap(const tsr_attention &a) {
  return VARIANT == TENSOR_SOFT_CAP || (VARIANT == TENSOR_DROPOUT && a.soft_cap != 0);
}

/* The factor of the exponents. With a soft cap, scores (16, N) become tanh(score * scale / cap) as
 * 1 - 2 / (1 + e^2x), whose error is 1e-7: that of an exponent is cap times as much. */
template <int N>
static __device__ inline float
scores_factor(float (&scores)[N / 8][4], const tsr_attention &a, bool soft_cap) {
  if (!soft_cap) return a.scale * LOG2_E;
  float factor = 2 * LOG2_E * a.scale * tensor_reciprocal(a.soft_cap);
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float power = tensor_power(scores[n][i] * factor);
      scores[n][i] = fmaf(-2.0f, tensor_reciprocal(1.0f + power), 1.0f);
    }
  return a.soft_cap * LOG2_E;
}

/* 1 - tanh^2; 0 at a score that is not seen, whose tanh is -INFINITY here. */
static __device__ inline float soft_cap_slope(float bent) {
  return fmaxf(fmaf(-bent, bent, 1.0f), 0.0f);
}

/* Scores (16, N) of keys that a query does not see become -INFINITY. Rows are queries, or where
 * `transposed` keys; the bounds are of the first of both. */
template <int N, bool transposed>
static __device__ inline void
scores_hide(float (&scores)[N / 8][4], const attention_bounds &bounds) {
  if (!attention_masked(bounds, transposed ? N : 16, transposed ? 16 : N)) return;
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int own = tensor_c_row(i), other = n * 8 + tensor_c_column(i);
      if (!attention_seen(bounds, transposed ? other : own, transposed ? own : other))
        scores[n][i] = -INFINITY;
    }
}

/* Scores to 2^(score * factor - max), and all sums of before to the new maximum. */
template <int N>
static __device__ inline void softmax_step(
    float (&max)[2], float (&sum)[2], float (&shrunk)[2], float (&scores)[N / 8][4], float factor) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float most = -INFINITY, added = 0;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
      most = fmaxf(most, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(max[r], fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)) * factor);
    float base = attention_base(most);
    shrunk[r] = tensor_power(max[r] - base);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; i++)
        added += scores[n][i] = tensor_power(fmaf(scores[n][i], factor, -base));
    sum[r] = sum[r] * shrunk[r] + added;
    max[r] = most;
  }
}

template <int N>
static __device__ inline void
scores_drop(float (&scores)[N / 8][4], const uint16_t *bits, int row) {
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (!attention_bit(bits, N, row + tensor_c_row(i), n * 8 + tensor_c_column(i)))
        scores[n][i] = 0;
}

/* A thread's query of a tile: log2 of the sum of 2^(score * factor), and delta. A query that pads
 * the tile has a sum that makes its probabilities 0. */
typedef struct {
  float sum, delta;
} query_row;

/* Of those before `end`. */
static __device__ inline query_row
query_row_at(const attention_statistics &at, int64_t query, int64_t end) {
  query_row row = {INFINITY, 0};
  if (query >= end) return row;
  const float *stats = at.stats + query * at.stats_step;
  row.sum = fmaf(stats[0], LOG2_E, log2f(stats[1]));
  row.delta = at.delta[query * at.delta_step];
  return row;
}

/* Query `first` + n of those before `end`; the tile has `queries`. */
static __device__ inline query_row
query_row_read(const attention_statistics &at, int64_t first, int64_t end, int queries) {
  if ((int)threadIdx.x >= queries) end = first;
  return query_row_at(at, first + (int)threadIdx.x, end);
}

/* rows (queries, 2) */
static __device__ inline void query_row_write(float *rows, const query_row &row, int queries) {
  if ((int)threadIdx.x >= queries) return;
  rows[2 * threadIdx.x] = row.sum;
  rows[2 * threadIdx.x + 1] = row.delta;
}

/* Scores and dP of a warp (16, N) to P f and dS. Rows are queries, or where `transposed` keys, from
 * `row` of the tile on; `keys` is the width of the mask, and the bounds are of the warp's. */
template <tensor_variant VARIANT, int N, bool transposed>
static __device__ inline void gradients(
    float (&scores)[N / 8][4], float (&grads)[N / 8][4], const tsr_attention &a, const float *rows,
    const uint16_t *bits, const attention_bounds &bounds, int row, int keys) {
  float factor = scores_factor<N>(scores, a, has_soft_cap<VARIANT>(a));
  scores_hide<N, transposed>(scores, bounds);
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int own = row + tensor_c_row(i), other = n * 8 + tensor_c_column(i);
      int q = transposed ? other : own, k = transposed ? own : other;
      float score = scores[n][i], delta = rows[2 * q + 1];
      float x = tensor_power(fmaf(score, factor, -rows[2 * q]));
      if (VARIANT == TENSOR_DROPOUT && a.dropout != 0) {
        float kept = attention_bit(bits, keys, q, k) ? attention_kept(a) : 0.0f;
        scores[n][i] = x * kept;
        grads[n][i] = x * fmaf(grads[n][i], kept, -delta);
      } else {
        scores[n][i] = x;
        grads[n][i] = x * (grads[n][i] - delta);
      }
      if (has_soft_cap<VARIANT>(a)) grads[n][i] *= soft_cap_slope(score);
    }
}

#endif
