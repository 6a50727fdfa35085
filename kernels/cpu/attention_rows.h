// SPDX-License-Identifier: Apache-2.0
/* Rows of numbers in attention, and how sizes are rounded up. */
#ifndef TSR_KERNELS_CPU_ATTENTION_ROWS_H
#define TSR_KERNELS_CPU_ATTENTION_ROWS_H
#include "kernels/cpu/transpose.h"
#include <stdbool.h>
#include <stddef.h>

static inline int64_t round_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* A tile of scores has so many keys, and a block so many queries, in f32 and where pairs of bf16
 * are multiplied. Scratch has room for what any level does with the type of the operands, so that
 * plans are the same on every machine. */
enum { F32_TILE = 6, F32_QUERIES = 48, BF16_TILE = 32, BF16_QUERIES = 64 };
enum { WIDEST = 16, WIDEST_PANEL = 4 * WIDEST };

/* Fetches of a row's lines, for rows that lie far apart are no pattern that the processor sees. */
static inline void row_ahead(const void *x, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)x + i);
}

enum { AHEAD = 12 }; /* rows */

/* x = soft_cap * tanh(x / soft_cap) of n scores */
static inline void row_cap(float *x, float soft_cap, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = soft_cap * real_tanh(x[i] / soft_cap);
}

static inline void row_scale(float *to, const float *x, float factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = x[i] * factor;
}

static inline void row_zero(float *x, int64_t begin, int64_t end) {
  memset(x + begin, 0, (size_t)(end - begin) * sizeof *x);
}

#endif
