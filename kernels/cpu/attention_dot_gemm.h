// SPDX-License-Identifier: Apache-2.0
/* Tiles of small GEMMs for attention at levels with an instruction that multiplies pairs of bf16.
 * Operands are squares of 16 lanes by 16 pairs (dot_gemm.h), wherever each of them is. Every
 * element of C is one chain over K from 0 up in the order of the level's instruction (dot_tile.h),
 * which goes on from what C has; there are no blocks of TSR_GEMM_DEPTH. K is filled up to whole
 * squares with zeros. A square of zeros adds nothing to a sum, but for the sign of a zero. */
#ifndef TSR_KERNELS_CPU_ATTENTION_DOT_GEMM_H
#define TSR_KERNELS_CPU_ATTENTION_DOT_GEMM_H
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/dot_tile.h"

enum { TILE_ROWS = BF16_TILE, PANEL = DOT_TILE };
enum { QUERIES = BF16_QUERIES }; /* a multiple of TILE_ROWS and of WIDTH */
enum { HEAD_UNIT = DOT_TILE, SCORES_ARE_SCALED = false };
_Static_assert((int)TILE_ROWS == (int)DOT_TILE && QUERIES % DOT_TILE == 0, "whole tiles");
_Static_assert(
    DOT_TILE % WIDTH == 0 && (int)DOT_SQUARE_DEPTH == (int)DOT_TILE, "whole vectors and squares");

/* What operands are stored in: bf16. */
typedef uint16_t number;
typedef uint16_t number_vector
    __attribute__((vector_size(2 * WIDTH), aligned(sizeof(number)), may_alias));
static inline vector numbers_load(const number *x, int k) {
  return (
      vector)(__builtin_convertvector(*(const number_vector *)(x + k * WIDTH), vector_bits) << 16);
}

/* The first n; zeros follow. */
static inline vector numbers_part(const number *x, int64_t n) {
  number part[WIDTH] = {0};
  memcpy(part, x, (size_t)n * sizeof *x);
  return numbers_load(part, 0);
}

/* row_dot (lanes.h) */
static inline float numbers_dot(const number *x, const number *y, int64_t n) {
  lanes sum = {{{0}}};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    EACH_VECTOR(k) sum.v[k] += numbers_load(x + i, k) * numbers_load(y + i, k);
  float rest[LANES] = {0};
  for (int64_t l = 0; l < n - i; l++) rest[l] = bf16_value(x[i + l]) * bf16_value(y[i + l]);
  return lanes_finish_sum(&sum, rest, n - i);
}

/* x times the factor, rounded to nearest. */
static inline void numbers_store(number *to, const float *x, float factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = bf16_nearest(x[i] * factor);
}

/* Before the first GEMM of a call, and after its last one. */
static inline void gemms_begin(void) { dot_begin(); }
static inline void gemms_end(void) { dot_end(); }

#define EACH_ROW(i) _Pragma("GCC unroll 4") for (int i = 0; i < TILE_ROWS; i++)

/* Two panels of an operand: `panel` words from the squares of one to those of the other, `step`
 * from a square to the one that follows in K. */
typedef struct {
  const uint32_t *at;
  int64_t panel, step;
} dot_panels;

/* c (DOT_TILE, DOT_TILE) = a (DOT_TILE, K) b (K, DOT_TILE), or adds to what is there. */
#if defined(TSR_DOT_EMULATED)

static inline __attribute__((always_inline)) void dot_tile_add(
    dot_panels a, dot_panels b, int64_t squares, const bool adds, float *c, int64_t c_stride) {
  for (int row = 0; row < DOT_TILE; row++)
    for (int column = 0; column < DOT_TILE; column++) {
      const uint32_t *x = a.at + row / DOT_LANES * a.panel + row % DOT_LANES * DOT_PAIRS;
      const uint32_t *y = b.at + column / DOT_LANES * b.panel + column % DOT_LANES;
      float *sum = c + row * c_stride + column;
      if (!adds) *sum = 0;
      for (int64_t s = 0; s < squares; s++)
        *sum = dot_square_sum(x + s * a.step, y + s * b.step, *sum);
    }
}

#elif defined(__AMX_BF16__)

static inline __attribute__((always_inline)) void dot_tile_add(
    dot_panels a, dot_panels b, int64_t squares, const bool adds, float *c, int64_t c_stride) {
  float *low = c + DOT_LANES * c_stride;
  if (adds) {
    _tile_loadd(0, c, 4 * c_stride);
    _tile_loadd(1, c + DOT_LANES, 4 * c_stride);
    _tile_loadd(2, low, 4 * c_stride);
    _tile_loadd(3, low + DOT_LANES, 4 * c_stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t s = 0; s < squares; s++, a.at += a.step, b.at += b.step) {
    _tile_loadd(4, a.at, 64);
    _tile_loadd(6, b.at, 64);
    _tile_loadd(5, a.at + a.panel, 64);
    _tile_loadd(7, b.at + b.panel, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, 4 * c_stride);
  _tile_stored(1, c + DOT_LANES, 4 * c_stride);
  _tile_stored(2, low, 4 * c_stride);
  _tile_stored(3, low + DOT_LANES, 4 * c_stride);
}

#else

static inline __attribute__((always_inline)) void dot_tile_add(
    dot_panels a, dot_panels b, int64_t squares, const bool adds, float *c, int64_t c_stride) {
  for (int row = 0; row < DOT_TILE; row += TOGETHER) {
    const uint32_t *x = a.at + row / DOT_LANES * a.panel + row % DOT_LANES * DOT_PAIRS;
    float *to = c + row * c_stride;
    __m512 sum[TOGETHER][2];
    _Pragma("GCC unroll 8") for (int r = 0; r < TOGETHER; r++) {
      sum[r][0] = sum[r][1] = _mm512_setzero_ps();
      if (!adds) continue;
      sum[r][0] = _mm512_loadu_ps(to + r * c_stride);
      sum[r][1] = _mm512_loadu_ps(to + r * c_stride + DOT_LANES);
    }
    for (int64_t s = 0; s < squares; s++)
      for (int i = 0; i < DOT_PAIRS; i++) {
        const uint32_t *y = b.at + s * b.step + i * DOT_LANES, *pair = x + s * a.step + i;
        __m512bh y0 = (__m512bh)_mm512_loadu_si512(y);
        __m512bh y1 = (__m512bh)_mm512_loadu_si512(y + b.panel);
        _Pragma("GCC unroll 8") for (int r = 0; r < TOGETHER; r++) {
          __m512bh each = (__m512bh)_mm512_set1_epi32((int)pair[r * DOT_PAIRS]);
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], each, y0);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], each, y1);
        }
      }
    _Pragma("GCC unroll 8") for (int r = 0; r < TOGETHER; r++) {
      _mm512_storeu_ps(to + r * c_stride, sum[r][0]);
      _mm512_storeu_ps(to + r * c_stride + DOT_LANES, sum[r][1]);
    }
  }
}

#endif

/* ---- f32 rounded to pairs ---- */

/* Of rows x (`rows`, QUERIES), 16 columns from x on: pairs of rows (B of a sum over the rows), of a
 * square. Rows that do not exist are zeros. */
static inline void round_pairs_of_rows(uint32_t *to, const float *x, int64_t rows) {
  for (int64_t i = 0; i < DOT_PAIRS; i++, to += DOT_LANES) {
    dot_vector none = {0}, even = none, odd = none;
    if (2 * i < rows) even = dot_load(x + 2 * i * QUERIES);
    if (2 * i + 1 < rows) odd = dot_load(x + (2 * i + 1) * QUERIES);
    dot_bits low = __builtin_convertvector(dot_nearest(even), dot_bits);
    dot_bits pairs = low | __builtin_convertvector(dot_nearest(odd), dot_bits) << 16;
    memcpy(to, &pairs, sizeof pairs);
  }
}

/* Of 16 rows x (16, QUERIES), 32 columns from x on: pairs of columns (A of a sum over the columns),
 * of a square. */
static inline void round_pairs_of_columns(uint32_t *to, const float *x) {
  for (int64_t i = 0; i < DOT_LANES; i++, to += DOT_PAIRS, x += QUERIES) {
    dot_halves low = dot_nearest(dot_load(x)), high = dot_nearest(dot_load(x + DOT_LANES));
    memcpy(to, &low, sizeof low);
    memcpy(to + DOT_PAIRS / 2, &high, sizeof high);
  }
}

#endif
