// SPDX-License-Identifier: Apache-2.0
/* First values that hide no error. Parameters that begin with one number (weights and biases of
 * norms, biases, LoRA's B) are alike everywhere, so a rank that read another part of them would
 * compute the same bits, and a zero hides what is multiplied by it. And small matrices make scores
 * of attention that are all but alike, whose gradients then are below any tolerance. */
#ifndef TSR_PROVE_SYNTHETIC_WEIGHTS_H
#define TSR_PROVE_SYNTHETIC_WEIGHTS_H
#include "runtime/process.h"

/* Adds to each parameter that begins with zeros or ones numbers that are a function of seed, name
 * and index; multiplies matrices of random numbers, but for `gain` 0, so that what a linear layer
 * makes is at least `gain` times as large as what it reads; then sets DoRA's magnitudes as a run
 * begins them. Counts of experts' choices stay. `graph` is the executable's before placement. */
void tsr_synthetic_weights(
    tsr_arena *arena, tsr_executable *executable, const tsr_graph *graph, uint64_t seed,
    double gain);

#endif
