// SPDX-License-Identifier: Apache-2.0
#include "data/mixture.h"
#include <assert.h>

enum { BLOCK = 256 };

static int largest(const double *values, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (values[i] > values[best]) best = i;
  return best;
}

/* Whole shares by largest remainder (Hamilton's method), each at least 1. */
static void share_out(const double *weights, int count, int32_t *ret_shares) {
  double sum = 0, rest[TSR_MIX_SOURCES_MAX];
  for (int i = 0; i < count; i++) sum += weights[i];
  int32_t left = TSR_MIX_CYCLE;
  for (int i = 0; i < count; i++) {
    double exact = weights[i] / sum * TSR_MIX_CYCLE;
    ret_shares[i] = exact >= 1 ? (int32_t)exact : 1;
    rest[i] = exact - ret_shares[i];
    left -= ret_shares[i];
  }
  for (; left > 0; left--) {
    int i = largest(rest, count);
    ret_shares[i]++;
    rest[i]--;
  }
  for (; left < 0; left++) { /* what the least ones were given above their weight */
    int most = 0;
    for (int i = 1; i < count; i++)
      if (ret_shares[i] > ret_shares[most]) most = i;
    ret_shares[most]--;
  }
}

/* A source's debt is share * positions - cycle * taken. The debts add up to 0 before a position and
 * to the cycle's length with it, so the one that pays had more than none, and stays above minus one
 * cycle: after the whole cycle no source has more than its share, and so all have their share. */
static void lay_out(const tsr_mixture *mix, uint8_t *cycle, int32_t *before) {
  int64_t debts[TSR_MIX_SOURCES_MAX] = {0};
  int32_t taken[TSR_MIX_SOURCES_MAX] = {0};
  for (int p = 0; p < TSR_MIX_CYCLE; p++) {
    if (p % BLOCK == 0)
      for (int i = 0; i < mix->count; i++) before[p / BLOCK * mix->count + i] = taken[i];
    int most = 0;
    for (int i = 0; i < mix->count; i++) {
      debts[i] += mix->shares[i];
      if (debts[i] > debts[most]) most = i;
    }
    debts[most] -= TSR_MIX_CYCLE;
    taken[most]++;
    cycle[p] = (uint8_t)most;
  }
}

void tsr_mixture_make(tsr_arena *arena, const double *weights, int count, tsr_mixture *ret_mix) {
  assert(count >= 1 && count <= TSR_MIX_SOURCES_MAX);
  *ret_mix = (tsr_mixture){.count = count};
  share_out(weights, count, ret_mix->shares);
  if (count == 1) return;
  uint8_t *cycle = tsr_arena_array(arena, uint8_t, TSR_MIX_CYCLE);
  int32_t *before = tsr_arena_array(arena, int32_t, TSR_MIX_CYCLE / BLOCK * count);
  lay_out(ret_mix, cycle, before);
  ret_mix->cycle = cycle;
  ret_mix->before = before;
}

int tsr_mixture_at(const tsr_mixture *mix, int64_t position, int64_t *ret_before) {
  assert(position >= 0);
  *ret_before = position;
  if (mix->count == 1) return 0;
  int at = (int)(position % TSR_MIX_CYCLE), source = mix->cycle[at];
  int64_t before = position / TSR_MIX_CYCLE * mix->shares[source];
  before += mix->before[at / BLOCK * mix->count + source];
  for (int p = at / BLOCK * BLOCK; p < at; p++) before += mix->cycle[p] == source;
  *ret_before = before;
  return source;
}
