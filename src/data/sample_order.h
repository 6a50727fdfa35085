// SPDX-License-Identifier: Apache-2.0
/* The order in which samples are seen: a function of the seed and the position alone.
 *
 * Position p counts samples over the whole run (step * samples_per_step + sample in the step). In
 * epoch p / n it is sample perm(p % n), perm being a permutation of [0, n) that the seed and the
 * epoch choose. It is computed, not stored: a Feistel network over the next even number of bits,
 * walked until it falls inside [0, n) (Black and Rogaway, "Ciphers with arbitrary finite domains",
 * 2002), with Philox as its round function. So a resumed run, any number of processes and any split
 * of the batch see the same order, in constant memory. */
#ifndef TSR_DATA_SAMPLE_ORDER_H
#define TSR_DATA_SAMPLE_ORDER_H
#include <stdint.h>

/* The sample at a position >= 0; n in 1..2^62. */
int64_t tsr_sample_order_at(uint64_t seed, int64_t n, int64_t position);

#endif
