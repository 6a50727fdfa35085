// SPDX-License-Identifier: Apache-2.0
/* The instructions of dot_tile.h in C, with their bits, but for those of a NaN. Tests compile the
 * GEMM with it for machines that have none of them; TSR_DOT_EMULATED is 1 for vdpbf16ps, 2 for
 * tdpbf16ps. */
#ifndef TSR_KERNELS_CPU_DOT_EMULATED_H
#define TSR_KERNELS_CPU_DOT_EMULATED_H
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float dot_flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

/* The half of a pair: 0, the lower one, or 1. */
static inline float dot_half(uint32_t pair, int half) {
  uint32_t bits = half ? pair & 0xFFFF0000u : pair << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return dot_flush(x);
}

/* A result is denormal if it is one after it has been rounded to 24 bits, and so is one that fmaf
 * rounds to fewer bits and up to FLT_MIN. */
static inline float dot_fused(float a, float b, float c) {
  c = dot_flush(c);
  float sum = fmaf(a, b, c);
  if (fabsf(sum) == FLT_MIN && fabsf(fmaf(a * 0x1p64f, b, c * 0x1p64f)) < FLT_MIN * 0x1p64f)
    return copysignf(0, sum);
  return dot_flush(sum);
}

static inline void dot_begin(void) {}
static inline void dot_end(void) {}

/* c + the sum over a square's pairs, of a row of A and a column of B. */
static inline float dot_square_sum(const uint32_t *a, const uint32_t *b, float c) {
  float even = 0, odd = 0;
  for (int i = 0; i < DOT_PAIRS; i++) {
    uint32_t x = a[i], y = b[i * DOT_LANES];
    if (TSR_DOT_EMULATED == 1) {
      c = dot_fused(dot_half(x, 1), dot_half(y, 1), c);
      c = dot_fused(dot_half(x, 0), dot_half(y, 0), c);
    } else {
      even = dot_fused(dot_half(x, 0), dot_half(y, 0), even);
      odd = dot_fused(dot_half(x, 1), dot_half(y, 1), odd);
    }
  }
  if (TSR_DOT_EMULATED == 1) return c;
  return dot_flush(dot_flush(c) + dot_flush(even + odd));
}

static inline void dot_tile(
    const uint32_t *a, const uint32_t *b, int64_t squares, float sums[DOT_SUMS], dot_work *work) {
  dot_work_end(work);
  for (int i = 0; i < DOT_SUMS; i++) {
    int row = i / DOT_TILE, column = i % DOT_TILE;
    const uint32_t *x = a + row / DOT_LANES * squares * DOT_SQUARE + row % DOT_LANES * DOT_PAIRS,
                   *y = b + column / DOT_LANES * squares * DOT_SQUARE + column % DOT_LANES;
    float sum = 0;
    for (int64_t s = 0; s < squares * DOT_SQUARE; s += DOT_SQUARE)
      sum = dot_square_sum(x + s, y + s, sum);
    sums[i] = sum;
  }
}

#endif
