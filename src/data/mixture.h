// SPDX-License-Identifier: Apache-2.0
/* Which of several sources a position of the run takes, and how many it took from there before.
 *
 * Weights become whole shares of a cycle of 2^16 positions that add up to all of it. Inside a cycle
 * each position goes to the source that is furthest behind its share, so at any position p a source
 * has been taken within a few samples of p * share / 2^16 times, and after each cycle exactly its
 * share. What a position takes is a function of the position alone: only the one cycle is kept,
 * whatever the number of samples. */
#ifndef TSR_DATA_MIXTURE_H
#define TSR_DATA_MIXTURE_H
#include "base/arena.h"
#include <stdint.h>

enum { TSR_MIX_CYCLE = 1 << 16, TSR_MIX_SOURCES_MAX = 256 };

typedef struct {
  int count;
  int32_t shares[TSR_MIX_SOURCES_MAX];
  const uint8_t *cycle;  /* (TSR_MIX_CYCLE) the source of each position; NULL with one source */
  const int32_t *before; /* (TSR_MIX_CYCLE / 256, count): positions of each source before a block */
} tsr_mixture;

/* `weights` above 0, at most TSR_MIX_SOURCES_MAX of them; their sum is anything. A source has at
 * least one position of a cycle. */
void tsr_mixture_make(tsr_arena *arena, const double *weights, int count, tsr_mixture *ret_mix);

/* The source of a position >= 0; `ret_before` is how many smaller positions have the same one. */
int tsr_mixture_at(const tsr_mixture *mix, int64_t position, int64_t *ret_before);

#endif
