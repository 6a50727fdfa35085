// SPDX-License-Identifier: Apache-2.0
/* What the level's instruction for pairs of bf16 can do at most, without memory. */
#include "kernels/cpu/dot_tile.h"

#if defined(__AMX_BF16__)

int64_t LEVEL(limit_dot)(int64_t turns, float *ret_sum) {
  float sums[DOT_SUMS / 4] __attribute__((aligned(64))) = {0};
  dot_begin();
  _tile_loadd(0, sums, 64);
  _tile_loadd(1, sums, 64);
  _tile_loadd(2, sums, 64);
  _tile_loadd(3, sums, 64);
  _tile_loadd(4, sums, 64);
  _tile_loadd(5, sums, 64);
  _tile_loadd(6, sums, 64);
  _tile_loadd(7, sums, 64);
  for (int64_t i = 0; i < turns; i++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  dot_end();
  *ret_sum = sums[0];
  return turns * 4 * 2 * DOT_SQUARE * DOT_SQUARE_DEPTH;
}

#else

enum { CHAINS = 24 };
#define EACH_CHAIN(c) _Pragma("GCC unroll 24") for (int c = 0; c < CHAINS; c++)

int64_t LEVEL(limit_dot)(int64_t turns, float *ret_sum) {
  __m512bh x = (__m512bh)_mm512_set1_epi32((int)turns & 0x3C003C00);
  __m512 chains[CHAINS], sum = _mm512_setzero_ps();
  EACH_CHAIN(c) chains[c] = _mm512_set1_ps((float)c);
  for (int64_t i = 0; i < turns; i++) EACH_CHAIN(c) chains[c] = _mm512_dpbf16_ps(chains[c], x, x);
  EACH_CHAIN(c) sum = _mm512_add_ps(sum, chains[c]);
  *ret_sum = _mm512_reduce_add_ps(sum);
  return turns * 2 * 2 * DOT_LANES * CHAINS;
}

#endif
