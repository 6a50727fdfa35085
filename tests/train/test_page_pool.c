// SPDX-License-Identifier: Apache-2.0
/* Random texts that take and give back pages: no page is two texts' and none is lost. */
#include "tests/check.h"
#include "train/page_pool.h"
#include <string.h>

enum { PAGES = 97, TEXTS = 12, STEPS = 20000 };

static uint32_t draw_state = 1;
static int64_t draw(int64_t below) {
  draw_state = draw_state * 1664525u + 1013904223u;
  return (int64_t)(draw_state >> 8) % below;
}

typedef struct {
  int32_t pages[PAGES];
  int64_t count; /* 0: the text is not there */
} text;

/* How often each page is a text's or free. */
static void check_pages(const tsr_page_pool *pool, const text *texts) {
  int seen[PAGES] = {0};
  for (int64_t i = 0; i < pool->count; i++) seen[pool->free[i]]++;
  for (int t = 0; t < TEXTS; t++)
    for (int64_t i = 0; i < texts[t].count; i++) {
      CHECK(texts[t].pages[i] >= 0 && texts[t].pages[i] < PAGES);
      seen[texts[t].pages[i]]++;
    }
  for (int p = 0; p < PAGES; p++) CHECK_AT(seen[p] == 1, "page %d is there %d times", p, seen[p]);
}

/* Part of a text's pages, or all of them, in another order. */
static void give_back(tsr_page_pool *pool, text *t) {
  int64_t count = 1 + draw(t->count);
  int32_t last = t->pages[t->count - 1];
  t->pages[t->count - 1] = t->pages[t->count - count];
  t->pages[t->count - count] = last;
  t->count -= count;
  tsr_page_pool_give_back(pool, count, t->pages + t->count);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_page_pool pool = tsr_page_pool_new(arena, PAGES);
  static text texts[TEXTS];
  int full = 0;
  check_pages(&pool, texts);
  for (int step = 0; step < STEPS; step++) {
    text *t = &texts[draw(TEXTS)];
    if (t->count) {
      give_back(&pool, t);
    } else {
      int64_t want = 1 + draw(30);
      if (want > pool.count) want = pool.count, full++;
      tsr_page_pool_take(&pool, want, t->pages);
      t->count = want;
    }
    check_pages(&pool, texts);
  }
  CHECK(full > 100);
  for (int i = 0; i < TEXTS; i++)
    if (texts[i].count) tsr_page_pool_give_back(&pool, texts[i].count, texts[i].pages);
  CHECK_INT(pool.count, PAGES);
  tsr_arena_free(arena);
  return check_done("page_pool");
}
