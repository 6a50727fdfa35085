// SPDX-License-Identifier: Apache-2.0
/* What a program computes, compared with what the sound one does: loss, norm and all weights after
 * two steps, in a process of its own, on memory full of NaN. */
#ifndef TSR_TESTS_SCHEDULE_EFFECT_H
#define TSR_TESTS_SCHEDULE_EFFECT_H
#include "sample.h"

/* Trains; `poisoned`: bits of WORK that no task has written are NaN at each step's begin. */
harness_trace effect_train(tsr_arena *arena, harness *h, bool poisoned);
bool effect_same(const harness_trace *a, const harness_trace *b);
/* Whether the programs give the wanted bits, and end within so many seconds, whenever the data of
 * their buckets moves: when the collective begins, or when it is waited for. */
bool effect_is_harmless(
    tsr_arena *arena, const harness *sound, tsr_programs programs, const harness_trace *want,
    int seconds);

#endif
