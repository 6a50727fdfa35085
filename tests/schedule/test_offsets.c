// SPDX-License-Identifier: Apache-2.0
/* Offsets of blocks with random lifetimes, some of them of one rank of several: every pair is
 * compared, and the buffer holds them all. */
#include "schedule/offsets.h"
#include "tests/check.h"
#include <limits.h>

enum { MOST = 60, RANKS = 3 };

static uint64_t draw(uint64_t *state, uint64_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (*state >> 33) % below;
}

/* On the rank that holds the most. */
static int64_t most_alive(const tsr_blocks *b) {
  int64_t most = 0;
  for (int e = 0; e < b->events_count; e++)
    for (int rank = 1; rank <= RANKS; rank++) {
      int64_t alive = 0;
      for (int i = 0; i < b->count; i++) {
        const tsr_block *x = &b->blocks[i];
        bool is_here = !x->holders || x->holders == rank;
        if (is_here && x->begin <= e && e < x->end) alive += x->size;
      }
      if (alive > most) most = alive;
    }
  return most;
}

static void check_pairs(const tsr_blocks *b, int64_t bytes) {
  for (int i = 0; i < b->count; i++) {
    const tsr_block *x = &b->blocks[i];
    CHECK(x->offset >= 0 && x->offset % 64 == 0 && x->offset + x->size <= bytes);
    for (int k = 0; k < i; k++) {
      const tsr_block *y = &b->blocks[k];
      bool together = x->begin < y->end && y->begin < x->end;
      bool overlap = x->offset < y->offset + y->size && y->offset < x->offset + x->size;
      bool apart = x->holders && y->holders && x->holders != y->holders;
      CHECK(!together || !overlap || apart);
    }
  }
}

/* Of an odd seed, without blocks that one rank holds alone. */
static tsr_blocks draw_blocks(tsr_arena *arena, uint64_t seed) {
  bool has_owners = seed % 2 == 0;
  tsr_blocks b = {.arena = arena};
  int alive[MOST], count = 0;
  for (int i = 0; i < MOST; i++) {
    while (count && draw(&seed, 3) == 0) {
      int at = (int)draw(&seed, (uint64_t)count);
      tsr_block_end(&b, alive[at]);
      alive[at] = alive[--count];
    }
    int holders = has_owners ? (int)draw(&seed, RANKS + 1) : 0;
    int64_t size = 64 * (int64_t)(1 + draw(&seed, draw(&seed, 4) ? 8 : 200));
    alive[count++] = tsr_block_begin(&b, size, holders);
  }
  while (count > 2) tsr_block_end(&b, alive[--count]); /* two never end */
  return b;
}

/* By time, the small one that stays splits the freed block in two, and the last one fits in neither
 * part; by size, all lie in as many bytes as are alive at once. */
static void test_fragments(tsr_arena *arena) {
  tsr_blocks b = {.arena = arena};
  int first = tsr_block_begin(&b, 128, 0);
  tsr_block_begin(&b, 64, 0);
  tsr_block_end(&b, first);
  int small = tsr_block_begin(&b, 64, 0);
  tsr_block_begin(&b, 64, 0);
  tsr_block_end(&b, small);
  tsr_block_begin(&b, 128, 0);
  CHECK_INT(most_alive(&b), 256);
  CHECK_INT(tsr_blocks_place(&b, 0), 256);
  check_pairs(&b, 256);
}

/* What two ranks hold alone has the same bytes, beside what both have. */
static void test_owners(tsr_arena *arena) {
  tsr_blocks b = {.arena = arena};
  int first = tsr_block_begin(&b, 128, 1), second = tsr_block_begin(&b, 192, 2);
  int both = tsr_block_begin(&b, 64, 0);
  CHECK_INT(most_alive(&b), 256);
  CHECK_INT(tsr_blocks_place(&b, 256), 256);
  check_pairs(&b, 256);
  CHECK_INT(b.blocks[first].offset, b.blocks[second].offset);
  CHECK_INT(b.blocks[both].offset, 192);
}

/* By time, the first of three lies in a gap apart. They end one after another. */
static void test_joined(tsr_arena *arena, bool joins) {
  tsr_blocks b = {.arena = arena};
  int gap = tsr_block_begin(&b, 64, 0), kept = tsr_block_begin(&b, 64, 0);
  int gap2 = tsr_block_begin(&b, 192, 0);
  tsr_block_begin(&b, 64, 0);
  tsr_block_end(&b, gap);
  tsr_block_end(&b, gap2);
  int first = tsr_block_begin(&b, 64, 0);
  tsr_block_begin(&b, 64, 0);
  int last = tsr_block_begin(&b, 64, 0);
  if (joins) tsr_blocks_join(&b, 3);
  tsr_block_end(&b, first + 1);
  tsr_block_end(&b, kept);
  CHECK_INT(tsr_blocks_place(&b, INT64_MAX), 384);
  check_pairs(&b, 384);
  int64_t step = b.blocks[first + 1].offset - b.blocks[first].offset;
  CHECK_INT(b.blocks[last].offset - b.blocks[first + 1].offset == 64 && step == 64, joins);
}

/* No gap has room for both. */
static void test_join_given_up(tsr_arena *arena) {
  tsr_blocks b = {.arena = arena};
  int gaps[2] = {tsr_block_begin(&b, 64, 0)};
  tsr_block_begin(&b, 128, 0);
  gaps[1] = tsr_block_begin(&b, 64, 0);
  tsr_block_begin(&b, 128, 0);
  for (int i = 0; i < 2; i++) tsr_block_end(&b, gaps[i]);
  tsr_block_begin(&b, 64, 0);
  tsr_block_begin(&b, 64, 0);
  tsr_blocks_join(&b, 2);
  CHECK_INT(tsr_blocks_place(&b, 384), 384);
  check_pairs(&b, 384);
}

int main(void) {
  int reached = 0;
  tsr_arena *arena = tsr_arena_new();
  test_fragments(arena);
  test_owners(arena);
  test_joined(arena, false);
  test_joined(arena, true);
  test_join_given_up(arena);
  tsr_blocks none = {.arena = arena};
  CHECK_INT(tsr_blocks_place(&none, 0), 0);
  for (uint64_t seed = 1; seed <= 300; seed++) {
    tsr_blocks b = draw_blocks(arena, seed), again = draw_blocks(arena, seed);
    int64_t least = most_alive(&b), by_time = tsr_blocks_place(&again, INT64_MAX);
    int64_t bytes = tsr_blocks_place(&b, least);
    CHECK(bytes >= least && bytes <= by_time);
    check_pairs(&b, bytes);
    check_pairs(&again, by_time);
    reached += bytes == least && by_time > least;
  }
  CHECK(reached > 20);
  tsr_arena_free(arena);
  return check_done("offsets");
}
