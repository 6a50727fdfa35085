// SPDX-License-Identifier: Apache-2.0
/* A square of numbers turned in registers: rows become columns. */
#ifndef TSR_KERNELS_CPU_TRANSPOSE_H
#define TSR_KERNELS_CPU_TRANSPOSE_H
#include "kernels/cpu/lanes.h"

#if defined(__AVX__) && !defined(__AVX512F__)

/* Halves of a vector are dear to cross, so squares of four are turned inside them first. */
static inline __attribute__((always_inline)) void turn_square(vector rows[WIDTH]) {
  vector pairs[WIDTH], fours[WIDTH];
  _Pragma("GCC unroll 4") for (int i = 0; i < WIDTH; i += 2) {
    vector a = rows[i], b = rows[i + 1];
    pairs[i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  }
  _Pragma("GCC unroll 4") for (int i = 0; i < WIDTH; i += 4) for (int k = 0; k < 2; k++) {
    vector a = pairs[i + k], b = pairs[i + 2 + k];
    fours[i + 2 * k] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    fours[i + 2 * k + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
    rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

#else

/* a0 b0 a1 b1 … of the lower halves, and of the upper ones */
#if defined(__AVX512F__)
#define TURN_LOW(a, b)                                                                             \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TURN_HIGH(a, b)                                                                            \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#else
#define TURN_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define TURN_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Each round deals the rows like cards; after log2(WIDTH) of them rows are columns. */
static inline __attribute__((always_inline)) void turn_square(vector rows[WIDTH]) {
  vector dealt[WIDTH];
  _Pragma("GCC unroll 4") for (int round = 1; round < WIDTH; round *= 2) {
    _Pragma("GCC unroll 8") for (int i = 0; i < WIDTH / 2; i++) {
      dealt[2 * i] = TURN_LOW(rows[i], rows[i + WIDTH / 2]);
      dealt[2 * i + 1] = TURN_HIGH(rows[i], rows[i + WIDTH / 2]);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) rows[i] = dealt[i];
  }
}

#endif

/* The first n numbers of a vector; zeros follow. */
static inline vector vector_part(const float *x, int64_t n) {
  float part[WIDTH] = {0};
  memcpy(part, x, (size_t)n * sizeof *x);
  return lanes_load(part, 0);
}

static inline void vector_store(float *to, vector x) { *(vector_unaligned *)to = x; }

#endif
