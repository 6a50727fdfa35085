// SPDX-License-Identifier: Apache-2.0
/* How far a size of a model or of a mesh shrinks without a change of what divides it. */
#ifndef TSR_PROVE_SIZE_RULE_H
#define TSR_PROVE_SIZE_RULE_H
#include <stdint.h>

/* One count that splits a size: ranks, units, ZeRO shards, heads, 2 for RoPE. Its own size may
 * shrink too, as a mesh axis does: `full` is the count of the full run, `reduced` of the reduced
 * one. */
typedef struct {
  const char *what; /* "tp units" */
  int64_t full, reduced;
} tsr_size_split;

/* Least common multiple of the reduced counts; 1 without any, INT64_MAX where it is too large. */
int64_t tsr_size_lcm(const tsr_size_split *splits, int count);

/* The smallest n >= max(lcm, least) such that for each split
 *   - `full` is a multiple of split.full exactly when n is one of split.reduced, and
 *   - n ≡ full mod split.reduced, where split.reduced divides split.full.
 * With splits whose counts do not shrink that is n ≡ full mod lcm. Where no n up to `full` has both
 * properties the second is dropped; where none has the first, `full` is what remains. */
int64_t tsr_size_reduce(int64_t full, const tsr_size_split *splits, int count, int64_t least);

/* The smallest size of a mesh axis that still has first, interior and last members: n up to 4, else
 * the smallest divisor of n that is at least 3, so that powers of two become 4. */
int64_t tsr_axis_reduce(int64_t n);

/* The same of the divisors up to 16 that divide just those of the sizes that n divides; of all
 * where there is none. */
int64_t tsr_axis_reduce_alike(int64_t n, const int64_t *sizes, int count);

#endif
