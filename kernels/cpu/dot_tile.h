// SPDX-License-Identifier: Apache-2.0
/* A tile of C: two panels of A times two of B (dot_gemm.h), over a block of K. The order of its
 * additions and what they flush is that of the instruction, and part of the level's recipe:
 *
 *   vdpbf16ps  c = fma(a1, b1, c), then c = fma(a0, b0, c), for each pair, one after the other
 *   tdpbf16ps  for each square: two sums, even = fma(a0, b0, even) and odd = fma(a1, b1, odd), over
 *              its pairs one after the other, from +0 on; then c = c + (even + odd)
 *
 * where each operation rounds to nearest, takes a denormal operand for a zero of its sign and
 * returns a denormal result as one (Intel SDM, volume 2; measured on Sapphire Rapids). */
#ifndef TSR_KERNELS_CPU_DOT_TILE_H
#define TSR_KERNELS_CPU_DOT_TILE_H
#include "kernels/cpu/dot_epilogue.h"

enum { DOT_SUMS = DOT_TILE * DOT_TILE };

/* What is done between the squares of a tile: rows of the epilogue of the tile before, which is
 * complete when this one's sums are stored, and fetching what a later tile reads. */
typedef struct {
  dot_epilogue epilogue;
  const char *ahead; /* the next lines to fetch, which need not exist */
} dot_work;

enum {
  DOT_WORK_ROWS = (DOT_TILE + DOT_BLOCK_SQUARES - 1) / DOT_BLOCK_SQUARES,
  DOT_WORK_LINES = 4,
  DOT_LINE = 64
};

static inline void dot_work_some(dot_work *w) {
  dot_epilogue_rows(&w->epilogue, DOT_WORK_ROWS);
  _Pragma("GCC unroll 4") for (int i = 0; i < DOT_WORK_LINES; i++)
      __builtin_prefetch(w->ahead + i * DOT_LINE, 0, 2);
  w->ahead += DOT_WORK_LINES * DOT_LINE;
}
static inline void dot_work_end(dot_work *w) { dot_epilogue_rows(&w->epilogue, DOT_TILE); }

#if defined(TSR_DOT_EMULATED)
#include "kernels/cpu/dot_emulated.h"
#else
#include <immintrin.h>

#if defined(__AMX_BF16__)

typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;

/* Before the first tile of a call, and after its last one. */
static inline void dot_begin(void) {
  tile_config config = {.palette = 1};
  for (int i = 0; i < 8; i++) config.row_bytes[i] = 4 * DOT_PAIRS, config.rows[i] = DOT_LANES;
  _tile_loadconfig(&config);
}
static inline void dot_end(void) { _tile_release(); }

/* sums (DOT_TILE rows, DOT_TILE columns) of two panels of A and two of B, one behind the other. */
static inline void dot_tile(
    const uint32_t *a, const uint32_t *b, int64_t squares, float sums[DOT_SUMS], dot_work *work) {
  const uint32_t *a1 = a + squares * DOT_SQUARE, *b1 = b + squares * DOT_SQUARE;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < squares * DOT_SQUARE; i += DOT_SQUARE) {
    _tile_loadd(4, a + i, 64);
    _tile_loadd(6, b + i, 64);
    _tile_loadd(5, a1 + i, 64);
    _tile_loadd(7, b1 + i, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    dot_work_some(work);
  }
  dot_work_end(work);
  _tile_stored(0, sums, 4 * DOT_TILE);
  _tile_stored(1, sums + DOT_LANES, 4 * DOT_TILE);
  _tile_stored(2, sums + DOT_SUMS / 2, 4 * DOT_TILE);
  _tile_stored(3, sums + DOT_SUMS / 2 + DOT_LANES, 4 * DOT_TILE);
}

#else

static inline void dot_begin(void) {}
static inline void dot_end(void) {}

enum { TOGETHER = 8 }; /* rows, whose sums are in registers */

static inline void dot_tile(
    const uint32_t *a, const uint32_t *b, int64_t squares, float sums[DOT_SUMS], dot_work *work) {
  const uint32_t *b1 = b + squares * DOT_SQUARE;
  dot_work_end(work);
  for (int row = 0; row < DOT_TILE; row += TOGETHER) {
    const uint32_t *x = a + row / DOT_LANES * squares * DOT_SQUARE + row % DOT_LANES * DOT_PAIRS;
    __m512 sum[TOGETHER][2];
    _Pragma("GCC unroll 8") for (int r = 0; r < TOGETHER; r++) sum[r][0] = sum[r][1] =
        _mm512_setzero_ps();
    for (int64_t i = 0; i < squares * DOT_SQUARE; i += DOT_LANES) {
      __m512bh y0 = (__m512bh)_mm512_loadu_si512(b + i), y1 = (__m512bh)_mm512_loadu_si512(b1 + i);
      const uint32_t *at = x + i / DOT_SQUARE * DOT_SQUARE + i % DOT_SQUARE / DOT_LANES;
      _Pragma("GCC unroll 8") for (int r = 0; r < TOGETHER; r++) {
        __m512bh each = (__m512bh)_mm512_set1_epi32((int)at[r * DOT_PAIRS]);
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], each, y0);
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], each, y1);
      }
    }
    for (int r = 0; r < TOGETHER; r++) {
      _mm512_storeu_ps(sums + (row + r) * DOT_TILE, sum[r][0]);
      _mm512_storeu_ps(sums + (row + r) * DOT_TILE + DOT_LANES, sum[r][1]);
    }
  }
}

#endif
#endif
#endif
