// SPDX-License-Identifier: Apache-2.0
/* Which part of a value a rank holds, and which ranks hold the same. */
#ifndef TSR_RUNTIME_PART_HOLDERS_H
#define TSR_RUNTIME_PART_HOLDERS_H
#include "runtime/process.h"

typedef struct tsr_held_part tsr_held_part;

/* Of one value after another; -1: of none yet. */
typedef struct tsr_part_holders {
  int value, ranks;
  int *first;           /* per rank: the first one that holds the same part; -1: it holds none */
  tsr_held_part *parts; /* room for one of each rank */
} tsr_part_holders;

tsr_part_holders tsr_part_holders_new(tsr_arena *arena, const tsr_executable *executable);

/* Writes `value` and `first`. `here`: of the ranks of this process alone; others have -1. */
void tsr_part_holders_find(
    tsr_part_holders *holders, const tsr_executable *executable, int value, bool here);

#endif
