// SPDX-License-Identifier: Apache-2.0
/* Successive halving (Jamieson and Talwalkar, AISTATS 2016), as one bracket of Hyperband (Li et
 * al., JMLR 2018, algorithm 1) runs it: all runs are trained to rung 0; of the n that are at a
 * rung, floor(n / eta) go on to the next one, which has eta times as many steps, at least one. */
#ifndef TSR_SWEEP_HALVING_H
#define TSR_SWEEP_HALVING_H
#include <stdbool.h>
#include <stdint.h>

/* min, min * eta, … to max; false where max is no such number. eta >= 2, 1 <= min <= max. */
bool tsr_halving_rungs(
    int64_t eta, int64_t min_steps, int64_t max_steps, int64_t *ret_rungs, int *ret_count);

typedef struct {
  int run;          /* its number */
  double objective; /* what is no finite number is behind all others */
} tsr_sweep_score;

/* Sorts by the objective, then by the number. */
void tsr_sweep_rank(tsr_sweep_score *scores, int count);

/* How many of the scores, which are ranked, go on: none that is no finite number. */
int tsr_halving_kept(const tsr_sweep_score *scores, int count, int64_t eta);

#endif
