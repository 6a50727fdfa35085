// SPDX-License-Identifier: Apache-2.0
/* Sums and maxima along a row: LANES running values, element i in lane i % LANES, folded in halves
 * at the end. The order is part of the contract on bits, so it is written out rather than left to
 * the compiler's vectoriser. Vectors have the level's own width; LANES is the same for all levels.
 */
#ifndef TSR_KERNELS_CPU_LANES_H
#define TSR_KERNELS_CPU_LANES_H
#include "kernels/cpu/elementary.h"
#include <stdint.h>
#include <string.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

enum { LANES = 32 };
#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif
enum { VECTORS = LANES / WIDTH };

typedef float vector __attribute__((vector_size(4 * WIDTH)));
typedef int32_t vector_mask __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t vector_bits __attribute__((vector_size(4 * WIDTH)));
typedef float vector_unaligned __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef struct {
  vector v[VECTORS];
} lanes;

#define EACH_VECTOR(k) _Pragma("GCC unroll 8") for (int k = 0; k < VECTORS; k++)

static inline vector lanes_load(const float *x, int k) {
  return *(const vector_unaligned *)(x + k * WIDTH);
}

/* a > b ? a : b, which C does not write for vectors. */
static inline vector vector_max(vector a, vector b) {
#if defined(__AVX512F__)
  return (vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
  return (vector)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE__)
  return (vector)_mm_max_ps((__m128)a, (__m128)b);
#else
  vector_mask above = a > b;
  return (vector)(((vector_mask)a & above) | ((vector_mask)b & ~above));
#endif
}

/* a b + c, fused where the level has it */
static inline vector vector_fused(vector a, vector b, vector c) {
#if defined(__AVX512F__)
  return (vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

static inline vector vector_all(float x) { return x - (vector){0}; }

/* e^x for x <= 0 (relative error below 2e-7 (1 + |x|)), 0 below 2^-126; for others anything. y = x
 * log2 e = n + r with |r| <= 1/2, and a polynomial for 2^r as a tree: how long its chain is counts,
 * for the processor has room for few of them at once. */
static inline vector vector_exp(vector x) {
  const vector magic = vector_all(0x1.8p23f); /* as in real_exp */
  vector y = x * 0x1.715476p+0f, shifted = y + magic, r = y - (shifted - magic), s = r * r;
  vector low = vector_fused(vector_all(0x1.62e430p-1f), r, vector_all(1));
  vector middle = vector_fused(vector_all(0x1.c6aee8p-5f), r, vector_all(0x1.ebfbdcp-3f));
  vector high = vector_fused(vector_all(0x1.5f3e52p-10f), r, vector_all(0x1.3b2d4cp-7f));
  high = vector_fused(vector_all(0x1.41fbbcp-13f), s, high);
  vector p = vector_fused(vector_fused(high, s, middle), s, low);
  vector_bits power = (vector_bits)p + ((vector_bits)shifted << 23);
  return (vector)(power & ~(vector_bits)(y < -126.0f));
}

static inline float lanes_fold_sum(float t[LANES]) {
  for (int half = LANES / 2; half; half /= 2)
    for (int l = 0; l < half; l++) t[l] += t[l + half];
  return t[0];
}

static inline void lanes_add(lanes *sum, const float *x) {
  EACH_VECTOR(k) sum->v[k] += lanes_load(x, k);
}

/* The rest of a row, fewer than LANES elements, and the fold. */
static inline float lanes_finish_sum(const lanes *sum, const float *rest, int64_t n) {
  float t[LANES];
  memcpy(t, sum, sizeof t);
  for (int64_t l = 0; l < n; l++) t[l] += rest[l];
  return lanes_fold_sum(t);
}

static inline float row_sum(const float *x, int64_t n) {
  lanes sum = {{{0}}};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) lanes_add(&sum, x + i);
  return lanes_finish_sum(&sum, x + i, n - i);
}

/* Sum of (x - center)^2 */
static inline float row_sum_squares(const float *x, float center, int64_t n) {
  lanes sum = {{{0}}};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) EACH_VECTOR(k) {
      vector d = lanes_load(x + i, k) - center;
      sum.v[k] += d * d;
    }
  float t[LANES];
  memcpy(t, &sum, sizeof t);
  for (int64_t l = 0; l < n - i; l++) t[l] += (x[i + l] - center) * (x[i + l] - center);
  return lanes_fold_sum(t);
}

static inline float row_dot(const float *x, const float *y, int64_t n) {
  lanes sum = {{{0}}};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    EACH_VECTOR(k) sum.v[k] += lanes_load(x + i, k) * lanes_load(y + i, k);
  float t[LANES];
  memcpy(t, &sum, sizeof t);
  for (int64_t l = 0; l < n - i; l++) t[l] += x[i + l] * y[i + l];
  return lanes_fold_sum(t);
}

/* The maximum, -INFINITY of nothing. A NaN may be passed over here: the sums that follow show it.
 */
static inline float row_max(const float *x, int64_t n) {
  lanes max;
  EACH_VECTOR(k) max.v[k] = (vector){0} - INFINITY;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    EACH_VECTOR(k) max.v[k] = vector_max(lanes_load(x + i, k), max.v[k]);
  float t[LANES];
  memcpy(t, &max, sizeof t);
  for (int64_t l = 0; l < n - i; l++) t[l] = x[i + l] > t[l] ? x[i + l] : t[l];
  float best = t[0];
  for (int l = 1; l < LANES; l++) best = t[l] > best ? t[l] : best;
  return best;
}

/* y = exp(x - max), which may be x, and its sum, in pieces that stay in the first cache. */
static inline float row_exp_sum(float *y, const float *x, float max, int64_t n) {
  enum { PIECE = 16 * LANES };
  lanes sum = {{{0}}};
  int64_t i = 0;
  while (n - i >= LANES) {
    int64_t end = n - i >= PIECE ? i + PIECE : i + (n - i) / LANES * LANES;
#pragma omp simd
    for (int64_t j = i; j < end; j++) y[j] = real_exp(x[j] - max);
    for (; i < end; i += LANES) lanes_add(&sum, y + i);
  }
  for (int64_t j = i; j < n; j++) y[j] = real_exp(x[j] - max);
  return lanes_finish_sum(&sum, y + i, n - i);
}

#endif
