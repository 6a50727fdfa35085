// SPDX-License-Identifier: Apache-2.0
/* The pages of a key/value cache that texts share: which are free. */
#ifndef TSR_TRAIN_PAGE_POOL_H
#define TSR_TRAIN_PAGE_POOL_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int32_t *free; /* the numbers of the pages that no text has */
  int64_t count; /* of these */
  int64_t pages; /* in all: 0 .. pages - 1 */
} tsr_page_pool;

/* All pages are free. */
tsr_page_pool tsr_page_pool_new(tsr_arena *arena, int64_t pages);
/* Writes the numbers of `count` pages, of which there must be as many free. */
void tsr_page_pool_take(tsr_page_pool *pool, int64_t count, int32_t *ret_pages);
/* Pages that were taken, in any order. */
void tsr_page_pool_give_back(tsr_page_pool *pool, int64_t count, const int32_t *pages);

#endif
