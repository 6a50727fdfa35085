// SPDX-License-Identifier: Apache-2.0
/* A square of numbers transposed in registers: rows become columns. */
#ifndef TSR_KERNELS_CPU_TRANSPOSE_H
#define TSR_KERNELS_CPU_TRANSPOSE_H
#include "kernels/cpu/lanes.h"

#if defined(__AVX__) && !defined(__AVX512F__)

/* Halves of a vector are dear to cross, so squares of four are transposed inside them first. */
static inline __attribute__((always_inline)) void transpose_square(vector rows[WIDTH]) {
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
#define INTERLEAVE_LOW(a, b)                                                                       \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INTERLEAVE_HIGH(a, b)                                                                      \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#else
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Each round interleaves the first half of the rows with the second; after log2(WIDTH) rounds rows
 * are columns. */
static inline __attribute__((always_inline)) void transpose_square(vector rows[WIDTH]) {
  vector mixed[WIDTH];
  _Pragma("GCC unroll 4") for (int round = 1; round < WIDTH; round *= 2) {
    _Pragma("GCC unroll 8") for (int i = 0; i < WIDTH / 2; i++) {
      mixed[2 * i] = INTERLEAVE_LOW(rows[i], rows[i + WIDTH / 2]);
      mixed[2 * i + 1] = INTERLEAVE_HIGH(rows[i], rows[i + WIDTH / 2]);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) rows[i] = mixed[i];
  }
}

#endif

#if defined(__AVX__)

static inline __attribute__((always_inline)) __m128 load_four(const char *row) {
  return _mm_loadu_ps((const float *)(const void *)row);
}

/* Four numbers of each of the rows r, r + 4, …, which lie `stride` bytes apart. */
static inline __attribute__((always_inline)) vector load_fours(const char *row, int64_t stride) {
#if defined(__AVX512F__)
  __m512 all = _mm512_castps128_ps512(load_four(row));
  all = _mm512_insertf32x4(all, load_four(row + 4 * stride), 1);
  all = _mm512_insertf32x4(all, load_four(row + 8 * stride), 2);
  return (vector)_mm512_insertf32x4(all, load_four(row + 12 * stride), 3);
#else
  __m256 low = _mm256_castps128_ps256(load_four(row));
  return (vector)_mm256_insertf128_ps(low, load_four(row + 4 * stride), 1);
#endif
}

/* Even and odd neighbours of two vectors, in each four of theirs. */
#if defined(__AVX512F__)
#define FOURS_LOW(a, b) (vector) _mm512_unpacklo_ps((__m512)(a), (__m512)(b))
#define FOURS_HIGH(a, b) (vector) _mm512_unpackhi_ps((__m512)(a), (__m512)(b))
#define PAIRS_LOW(a, b) (vector) _mm512_unpacklo_pd((__m512d)(a), (__m512d)(b))
#define PAIRS_HIGH(a, b) (vector) _mm512_unpackhi_pd((__m512d)(a), (__m512d)(b))
#else
#define FOURS_LOW(a, b) (vector) _mm256_unpacklo_ps((__m256)(a), (__m256)(b))
#define FOURS_HIGH(a, b) (vector) _mm256_unpackhi_ps((__m256)(a), (__m256)(b))
#define PAIRS_LOW(a, b) (vector) _mm256_unpacklo_pd((__m256d)(a), (__m256d)(b))
#define PAIRS_HIGH(a, b) (vector) _mm256_unpackhi_pd((__m256d)(a), (__m256d)(b))
#endif

/* The columns of a square in memory, whose rows lie `stride` bytes apart. Loads of four numbers put
 * the fours of a column into one vector, so that only fours are left to be transposed: half as many
 * moves between registers. All of a row is loaded at once: rows may lie so that they displace one
 * another from the cache. */
static inline __attribute__((always_inline)) void
transpose_loaded(const void *from, int64_t stride, vector columns[WIDTH]) {
  vector fours[4][WIDTH / 4];
  _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++)
      _Pragma("GCC unroll 4") for (int k = 0; k < WIDTH / 4; k++) fours[r][k] =
          load_fours((const char *)from + r * stride + 16 * k, stride);
  _Pragma("GCC unroll 4") for (int k = 0; k < WIDTH / 4; k++) {
    vector low = FOURS_LOW(fours[0][k], fours[1][k]), high = FOURS_HIGH(fours[0][k], fours[1][k]),
           low2 = FOURS_LOW(fours[2][k], fours[3][k]), high2 = FOURS_HIGH(fours[2][k], fours[3][k]);
    columns[4 * k] = PAIRS_LOW(low, low2);
    columns[4 * k + 1] = PAIRS_HIGH(low, low2);
    columns[4 * k + 2] = PAIRS_LOW(high, high2);
    columns[4 * k + 3] = PAIRS_HIGH(high, high2);
  }
}

#else

static inline __attribute__((always_inline)) void
transpose_loaded(const void *from, int64_t stride, vector columns[WIDTH]) {
  _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) /* pairs of bf16 lie anywhere */
      memcpy(&columns[i], (const char *)from + i * stride, sizeof columns[i]);
  transpose_square(columns);
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
