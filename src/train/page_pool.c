// SPDX-License-Identifier: Apache-2.0
#include "train/page_pool.h"
#include <assert.h>

tsr_page_pool tsr_page_pool_new(tsr_arena *arena, int64_t pages) {
  tsr_page_pool p = {tsr_arena_array(arena, int32_t, pages), pages, pages};
  for (int64_t i = 0; i < pages; i++) p.free[i] = (int32_t)(pages - 1 - i);
  return p;
}

void tsr_page_pool_take(tsr_page_pool *p, int64_t count, int32_t *ret_pages) {
  assert(count >= 0 && count <= p->count);
  for (int64_t i = 0; i < count; i++) ret_pages[i] = p->free[--p->count];
}

void tsr_page_pool_give_back(tsr_page_pool *p, int64_t count, const int32_t *pages) {
  assert(count >= 0 && p->count + count <= p->pages);
  for (int64_t i = 0; i < count; i++) {
    assert(pages[i] >= 0 && pages[i] < p->pages);
    p->free[p->count++] = pages[i];
  }
}
