// SPDX-License-Identifier: Apache-2.0
#include "data/statistics.h"
#include "base/command_progress.h"
#include "base/memory.h"
#include "data/sources.h"
#include <stdlib.h>

typedef struct {
  int64_t *items;
  int64_t count, capacity;
} lengths;

static void add_length(lengths *l, int64_t length) {
  if (l->count == l->capacity) {
    l->capacity = 2 * l->capacity + 1024;
    l->items = tsr_memory_grow(l->items, sizeof *l->items * (size_t)l->capacity);
  }
  l->items[l->count++] = length;
}

static int by_length(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void summarize(lengths *l, tsr_data_statistics *ret) {
  ret->documents = l->count;
  if (!l->count) return;
  qsort(l->items, (size_t)l->count, sizeof *l->items, by_length);
  ret->shortest = l->items[0];
  ret->median = l->items[(l->count - 1) / 2];
  ret->p95 = l->items[(l->count * 95 + 99) / 100 - 1];
  ret->longest = l->items[l->count - 1];
}

static void add_packs(const tsr_packs *p, lengths *l, tsr_data_statistics *ret) {
  for (int64_t d = p->first; d < p->end; d++) add_length(l, tsr_document_length(p->from, d));
  ret->packs = true;
  ret->labels = p->from->labels != NULL;
  ret->tokens += p->from->begins[p->end] - p->from->begins[p->first];
  ret->in_samples += p->tokens;
  ret->targets += p->targets;
  ret->truncated += p->truncated;
  ret->dropped += p->dropped;
  ret->untrained += p->untrained;
}

/* The tokens behind the first are targets, in pieces of bounded memory. */
static void
add_file(const tsr_dataset *d, const tsr_data_range *r, int64_t ignored, lengths *l, int64_t *ret) {
  enum { PIECE = 4096 };
  int32_t targets[PIECE];
  int64_t length = 1;
  for (int64_t at = r->begin; at + 1 < r->end; at += PIECE) {
    int64_t n = r->end - 1 - at < PIECE ? r->end - 1 - at : PIECE;
    tsr_window w = tsr_dataset_window(d, r->file, at);
    *ret += tsr_window_fill_targets(&w, n, ignored, targets);
    tsr_command_progress_add(n);
    for (int64_t t = 0; t < n; t++, length++) {
      if (targets[t] != TSR_TARGET_IGNORED) continue;
      add_length(l, length);
      length = 0;
    }
  }
  add_length(l, length);
}

static int64_t tokens_of(const tsr_data_range *ranges, int count) {
  int64_t tokens = 0;
  for (int i = 0; i < count; i++) tokens += ranges[i].packs ? 0 : ranges[i].end - ranges[i].begin;
  return tokens;
}

void tsr_dataset_statistics(
    const tsr_dataset *d, tsr_split split, int64_t T, int64_t ignored, tsr_data_statistics *ret) {
  tsr_arena *arena = tsr_arena_new();
  tsr_data_range *ranges;
  lengths l = {0};
  int count = tsr_dataset_ranges(arena, d, split, &ranges);
  *ret = (tsr_data_statistics){.samples = tsr_dataset_samples(d, split, T)};
  tsr_command_progress_begin("counting", tokens_of(ranges, count), "tokens");
  for (int i = 0; i < count; i++) {
    const tsr_data_range *r = &ranges[i];
    if (r->packs) {
      add_packs(r->packs, &l, ret);
      continue;
    }
    int64_t tokens = r->end - r->begin;
    ret->tokens += tokens;
    ret->in_samples += tokens;
    if (d->separate || ignored >= 0) add_file(d, r, ignored, &l, &ret->targets);
    else ret->targets += tokens - 1;
  }
  tsr_command_progress_end();
  if (d->separate) summarize(&l, ret);
  free(l.items);
  tsr_arena_free(arena);
}

/* ---- labels ---- */

/* Names may be more than the labels that documents have. */
static int count_classes(const tsr_dataset *d, const tsr_data_range *ranges, int count) {
  int classes = d->labels.count;
  for (int i = 0; i < count; i++) {
    const tsr_masked_documents *from = ranges[i].packs ? ranges[i].packs->from : NULL;
    if (!from || !from->labels) return 0;
    for (int64_t k = 0; k < from->count; k++)
      if (from->labels[k] >= classes) classes = from->labels[k] + 1;
  }
  return classes;
}

int tsr_dataset_label_counts(
    tsr_arena *arena, const tsr_dataset *d, tsr_split split, int64_t **ret_counts) {
  tsr_data_range *ranges;
  int count = tsr_dataset_ranges(arena, d, split, &ranges);
  int classes = count_classes(d, ranges, count);
  *ret_counts = tsr_arena_array(arena, int64_t, classes + 1);
  for (int i = 0; i < count && classes; i++) {
    const tsr_packs *p = ranges[i].packs;
    int64_t members = p->count ? p->begins[p->count] : 0;
    for (int64_t k = 0; k < members; k++) (*ret_counts)[p->from->labels[p->members[k]]]++;
  }
  return classes;
}
