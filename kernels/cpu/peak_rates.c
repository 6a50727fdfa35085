// SPDX-License-Identifier: Apache-2.0
/* What a level can do at most: multiply and add in registers, and read memory in order. */
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/level.h"

/* Enough independent chains to hide an addition's latency (4 cycles) on two units, or on four where
 * there are 32 registers; factor, addend and chains all fit into the registers. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { CHAINS = 24 };
#else
enum { CHAINS = 12 };
#endif
#define EACH_CHAIN(c) _Pragma("GCC unroll 24") for (int c = 0; c < CHAINS; c++)

static float fold(vector x) {
  float sum = 0;
  for (int i = 0; i < WIDTH; i++) sum += x[i];
  return sum;
}

int64_t LEVEL(limit_fused)(int64_t turns, float factor, float *ret_sum) {
  vector a = factor - (vector){0}, b = 1 - a, chains[CHAINS], sum = {0};
  EACH_CHAIN(c) chains[c] = a + (float)c;
  for (int64_t i = 0; i < turns; i++) EACH_CHAIN(c) chains[c] = vector_fused(chains[c], a, b);
  EACH_CHAIN(c) sum += chains[c];
  *ret_sum = fold(sum);
  return turns * 2 * CHAINS * WIDTH;
}

/* bf16 is multiplied as f32. */
int64_t LEVEL(limit_dot)(int64_t turns, float *ret_sum) {
  return LEVEL(limit_fused)(turns, 0.9999f, ret_sum);
}

float LEVEL(limit_read)(const float *x, int64_t n) {
  enum { STREAMS = 8 };
  vector sums[STREAMS] = {{0}}, sum = {0};
  for (int64_t i = 0; i + STREAMS * WIDTH <= n; i += STREAMS * WIDTH)
    _Pragma("GCC unroll 8") for (int s = 0; s < STREAMS; s++) sums[s] += lanes_load(x + i, s);
  for (int s = 0; s < STREAMS; s++) sum += sums[s];
  return fold(sum);
}
