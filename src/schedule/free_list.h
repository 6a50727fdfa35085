// SPDX-License-Identifier: Apache-2.0
/* A growing buffer's free blocks: the smallest that fits is taken, neighbours grow together. */
#ifndef TSR_SCHEDULE_FREE_LIST_H
#define TSR_SCHEDULE_FREE_LIST_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int64_t offset, size;
} tsr_free_block;

typedef struct {
  tsr_arena *arena;
  tsr_free_block *free; /* sorted by offset, never touching one another */
  int free_count, free_capacity;
  int64_t top; /* bytes of the buffer */
} tsr_free_list;

/* Sizes are multiples of 64. */
int64_t tsr_free_list_take(tsr_free_list *m, int64_t size);
void tsr_free_list_give_back(tsr_free_list *m, int64_t offset, int64_t size);

#endif
