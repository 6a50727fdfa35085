// SPDX-License-Identifier: Apache-2.0
/* Offsets in one buffer for blocks whose lifetimes are all known before the first one is placed. */
#ifndef TSR_SCHEDULE_OFFSETS_H
#define TSR_SCHEDULE_OFFSETS_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

/* Alive from event `begin` until event `end`. Every rank has a buffer with these offsets. holders:
 * 0: the block is on all ranks; blocks of two other numbers are on different ranks, so they may
 * have the same bytes. */
typedef struct {
  int64_t size, offset;
  int begin, end, holders;
  int joined; /* this block and those that begin right behind it lie one behind another: how many;
                 1: this one alone; 0: it is one of them, but the first */
} tsr_block;

typedef struct {
  tsr_arena *arena;
  tsr_block *blocks;
  int *events; /* per event: the block that begins or ends */
  int count, capacity, events_count, events_capacity;
} tsr_blocks;

/* Records that a block is needed from now on, and until now. Sizes are multiples of 64. A block
 * that never ends is alive until the last event. */
int tsr_block_begin(tsr_blocks *blocks, int64_t size, int holders);
void tsr_block_end(tsr_blocks *blocks, int block);

/* The last `count` blocks, whose `holders` are equal and between whose begins no other block has
 * begun or ended, lie one behind another, where there is room for that without more bytes. */
void tsr_blocks_join(tsr_blocks *blocks, int count);

/* Gives every block an offset such that no two that are alive on a rank at once overlap, and
 * returns the bytes of the buffer. Of two orders it keeps the one that needs less: by time into the
 * smallest free gap, as if all blocks were on all ranks, and by size, the largest first, at the
 * lowest offset that is free for the lifetime (greedy by size of Pisarchyk and Lee, "Efficient
 * Memory Management for Deep Neural Net Inference", 2020). The second is only tried where the first
 * needs more than `lower_bound`, and there are not more than 32,768 blocks. */
int64_t tsr_blocks_place(tsr_blocks *blocks, int64_t lower_bound);

#endif
