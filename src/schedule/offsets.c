// SPDX-License-Identifier: Apache-2.0
#include "schedule/offsets.h"
#include "schedule/free_list.h"
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void add_event(tsr_blocks *b, int block) {
  tsr_arena_grow(
      b->arena, (void **)&b->events, sizeof *b->events, b->events_count, &b->events_capacity);
  b->events[b->events_count++] = block;
}

int tsr_block_begin(tsr_blocks *b, int64_t size, int holders) {
  tsr_arena_grow(b->arena, (void **)&b->blocks, sizeof *b->blocks, b->count, &b->capacity);
  b->blocks[b->count] = (tsr_block){
      .size = size, .begin = b->events_count, .end = INT_MAX, .holders = holders, .joined = 1};
  add_event(b, b->count);
  return b->count++;
}

void tsr_block_end(tsr_blocks *b, int block) {
  b->blocks[block].end = b->events_count;
  add_event(b, block);
}

void tsr_blocks_join(tsr_blocks *b, int count) {
  tsr_block *first = &b->blocks[b->count - count];
  for (int i = 0; i < count; i++) {
    assert(first[i].holders == first->holders && first[i].begin == first->begin + i);
    first[i].joined = i ? 0 : count;
  }
}

static int64_t place_by_time(tsr_blocks *b) {
  tsr_free_list list = {.arena = b->arena};
  for (int i = 0; i < b->events_count; i++) {
    tsr_block *block = &b->blocks[b->events[i]];
    if (block->begin == i) block->offset = tsr_free_list_take(&list, block->size);
    else tsr_free_list_give_back(&list, block->offset, block->size);
  }
  return list.top;
}

/* The largest first; of one size, the one that begins first, so that the order is total. */
static int compare_sizes(const void *x, const void *y) {
  const tsr_block *a = *(tsr_block *const *)x, *b = *(tsr_block *const *)y;
  if (a->size != b->size) return a->size < b->size ? 1 : -1;
  return a->begin < b->begin ? -1 : 1;
}

/* A block that has its place. They stand one behind another in memory, because most of the time is
 * spent on reading all of them for each block. */
typedef struct {
  int64_t offset, end_offset;
  int begin, end, holders;
  int block;
} span;

static span span_of(const tsr_blocks *b, const tsr_block *x) {
  return (span){x->offset, x->offset + x->size, x->begin, x->end, x->holders, (int)(x - b->blocks)};
}

/* Whether two blocks are never on one rank at once. */
static bool are_apart(const span *a, const tsr_block *b) {
  bool other_ranks = (a->holders != 0) & (b->holders != 0) & (a->holders != b->holders);
  return (a->begin > b->end) | (a->end < b->begin) | other_ranks;
}

/* The lowest offset that none of the blocks placed before, which are sorted by offset, occupies
 * while a block lives. */
static int64_t find_lowest(const span *placed, int count, const tsr_block *block) {
  int64_t offset = 0;
  for (const span *p = placed; p < placed + count; p++) {
    if (are_apart(p, block)) continue;
    if (p->offset >= offset + block->size) break;
    if (p->end_offset > offset) offset = p->end_offset;
  }
  return offset;
}

/* Into those placed before, in the order of their offsets. */
static void insert(span *placed, int count, span s) {
  int low = 0, high = count; /* behind those of the same offset */
  while (low < high) {
    int middle = (low + high) / 2;
    if (placed[middle].offset > s.offset) high = middle;
    else low = middle + 1;
  }
  memmove(placed + low + 1, placed + low, sizeof *placed * (size_t)(count - low));
  placed[low] = s;
}

/* Gives up where it needs no less than `limit`. */
static int64_t place_by_size(tsr_blocks *b, int64_t limit) {
  tsr_block **sorted = tsr_arena_array(b->arena, tsr_block *, b->count + 1);
  span *placed = tsr_arena_array(b->arena, span, b->count + 1);
  int64_t top = 0;
  for (int i = 0; i < b->count; i++) sorted[i] = &b->blocks[i];
  qsort(sorted, (size_t)b->count, sizeof(tsr_block *), compare_sizes);
  for (int i = 0; i < b->count && top < limit; i++) {
    sorted[i]->offset = find_lowest(placed, i, sorted[i]);
    insert(placed, i, span_of(b, sorted[i]));
    int64_t end = sorted[i]->offset + sorted[i]->size;
    if (end > top) top = end;
  }
  return top;
}

/* Blocks beyond which the order by size, whose time grows with their square, is not tried. */
enum { BY_SIZE_MAX = 1 << 15 };

static int64_t place(tsr_blocks *b, int64_t lower_bound) {
  int64_t by_time = place_by_time(b);
  if (by_time <= lower_bound || b->count > BY_SIZE_MAX) return by_time;
  int64_t by_size = place_by_size(b, by_time);
  return by_size < by_time ? by_size : place_by_time(b);
}

/* ---- blocks that are joined ---- */

static int compare_offsets(const void *x, const void *y) {
  const span *a = x, *b = y;
  if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
  return a->begin < b->begin ? -1 : 1;
}

static span *sort_by_offset(const tsr_blocks *b) {
  span *placed = tsr_arena_array(b->arena, span, b->count + 1);
  for (int i = 0; i < b->count; i++) placed[i] = span_of(b, &b->blocks[i]);
  qsort(placed, (size_t)b->count, sizeof *placed, compare_offsets);
  return placed;
}

/* As one block, from the first that begins to the last that ends. */
static tsr_block union_of(const tsr_block *first) {
  tsr_block all = *first;
  for (int i = 1; i < first->joined; i++) {
    all.size += first[i].size;
    if (first[i].end > all.end) all.end = first[i].end;
  }
  return all;
}

static bool are_joined(const tsr_block *first) {
  bool are = true;
  for (int i = 1; i < first->joined; i++)
    are &= first[i].offset == first[i - 1].offset + first[i - 1].size;
  return are;
}

/* Moves joined blocks one behind another, where the others leave room in the first `bytes`. */
static void join(tsr_blocks *b, span *placed, tsr_block *first, int64_t bytes) {
  const tsr_block *end = first + first->joined;
  tsr_block all = union_of(first);
  int others = 0;
  for (int i = 0; i < b->count; i++) {
    const tsr_block *block = &b->blocks[placed[i].block];
    if (block < first || block >= end) placed[others++] = placed[i];
  }
  int64_t offset = find_lowest(placed, others, &all);
  bool fits = offset + all.size <= bytes;
  for (tsr_block *block = first; block < end; offset += block++->size) {
    if (fits) block->offset = offset;
    insert(placed, others++, span_of(b, block));
  }
}

int64_t tsr_blocks_place(tsr_blocks *b, int64_t lower_bound) {
  int64_t bytes = place(b, lower_bound);
  span *placed = NULL;
  for (int i = 0; i < b->count; i++) {
    if (are_joined(&b->blocks[i])) continue;
    if (!placed) placed = sort_by_offset(b);
    join(b, placed, &b->blocks[i], bytes);
  }
  return bytes;
}
