// SPDX-License-Identifier: Apache-2.0
/* One word's bytes become tokens: the pair of neighbours with the lowest rank is merged, the
 * leftmost of equals, until no pair has a rank. */
#include "tokenizer/internal.h"
#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
  SEEN_BITS = 16, /* 2 MB of words that were merged before */
  SEEN_BYTES = 30,
  SEEN_TOKENS = 8,
  SHORT_MAX = 96,       /* longer words take the heap: O(n log n) */
  NO_RANK = UINT32_MAX, /* of a pair that does not merge */
};

/* A word and what it became; `length` 0: free. */
typedef struct {
  uint8_t length, count;
  char text[SEEN_BYTES];
  int32_t tokens[SEEN_TOKENS];
} seen_word;

/* What a long word is merged in: a list of tokens by place, and a heap of rank << 32 | place. */
typedef struct {
  int32_t *tokens, *made; /* made: what the pair at a place becomes */
  uint32_t *ranks, *next, *previous;
  uint64_t *heap;
  size_t heap_count, capacity;
} long_word;

struct tsr_bpe_words {
  tsr_arena *arena;
  seen_word *seen;
  long_word list;
};

tsr_bpe_words *tsr_bpe_words_new(tsr_arena *arena) {
  tsr_bpe_words *words = tsr_arena_array(arena, tsr_bpe_words, 1);
  words->arena = arena;
  words->seen = tsr_arena_array(arena, seen_word, 1 << SEEN_BITS);
  return words;
}

void tsr_bpe_words_forget(tsr_bpe_words *words) {
  memset(words->seen, 0, sizeof *words->seen << SEEN_BITS);
}

static uint64_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ key >> 32;
}

tsr_bpe_merge *
tsr_bpe_merge_slot(tsr_bpe_merge *table, uint32_t mask, int32_t left, int32_t right) {
  uint32_t at = (uint32_t)mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right) & mask;
  while (table[at].made >= 0 && (table[at].left != left || table[at].right != right))
    at = (at + 1) & mask;
  return &table[at];
}

int32_t *tsr_subword_word_slot(const tsr_subword *subword, const char *text, size_t length) {
  uint32_t at = (uint32_t)XXH3_64bits(text, length) & subword->words_mask;
  for (int32_t token; (token = subword->words[at]) >= 0; at = (at + 1) & subword->words_mask)
    if (subword->lengths[token] == length && !memcmp(subword->texts[token], text, length)) break;
  return &subword->words[at];
}

static uint32_t
find_rank(const tsr_subword *subword, int32_t left, int32_t right, int32_t *ret_made) {
  const tsr_bpe_merge *merge =
      tsr_bpe_merge_slot(subword->merges, subword->merges_mask, left, right);
  *ret_made = merge->made;
  return merge->made >= 0 ? merge->rank : NO_RANK;
}

/* The tokens of single bytes. Bytes that UTF-8 never has may lack one, and never come here. */
static void
take_bytes(const tsr_subword *subword, const char *text, size_t length, int32_t *ret_tokens) {
  for (size_t i = 0; i < length; i++) {
    ret_tokens[i] = subword->byte_tokens[(unsigned char)text[i]];
    assert(ret_tokens[i] >= 0);
  }
}

/* ---- short words: the ranks stand in a row that is searched anew for each merge ---- */

static size_t
merge_short(const tsr_subword *subword, const char *text, size_t length, int32_t *tokens) {
  uint32_t ranks[SHORT_MAX]; /* of the pair that begins here; the last has none */
  int32_t made[SHORT_MAX];
  take_bytes(subword, text, length, tokens);
  for (size_t i = 0; i + 1 < length; i++)
    ranks[i] = find_rank(subword, tokens[i], tokens[i + 1], &made[i]);
  for (;;) {
    size_t best = 0;
    uint32_t lowest = NO_RANK;
    for (size_t i = 0; i + 1 < length; i++)
      if (ranks[i] < lowest) lowest = ranks[i], best = i;
    if (lowest == NO_RANK) return length;
    tokens[best] = made[best];
    size_t behind = length - best - 2;
    memmove(tokens + best + 1, tokens + best + 2, behind * sizeof *tokens);
    memmove(ranks + best, ranks + best + 1, behind * sizeof *ranks);
    memmove(made + best, made + best + 1, behind * sizeof *made);
    length--;
    if (best + 1 < length)
      ranks[best] = find_rank(subword, tokens[best], tokens[best + 1], &made[best]);
    if (best) ranks[best - 1] = find_rank(subword, tokens[best - 1], tokens[best], &made[best - 1]);
  }
}

/* ---- long words: a list and a heap ---- */

static void reserve(tsr_bpe_words *words, size_t length) {
  long_word *w = &words->list;
  if (length <= w->capacity) return;
  w->capacity = length > 2 * w->capacity ? length : 2 * w->capacity;
  w->tokens = tsr_arena_array(words->arena, int32_t, w->capacity);
  w->made = tsr_arena_array(words->arena, int32_t, w->capacity);
  w->ranks = tsr_arena_array(words->arena, uint32_t, w->capacity);
  w->next = tsr_arena_array(words->arena, uint32_t, w->capacity);
  w->previous = tsr_arena_array(words->arena, uint32_t, w->capacity);
  /* Every byte begins one pair, and every merge makes two new ones at most. */
  w->heap = tsr_arena_array(words->arena, uint64_t, 3 * w->capacity);
}

static void push(long_word *w, uint64_t key) {
  size_t at = w->heap_count++;
  for (size_t above; at && w->heap[above = (at - 1) / 2] > key; at = above)
    w->heap[at] = w->heap[above];
  w->heap[at] = key;
}

static uint64_t pop(long_word *w) {
  uint64_t first = w->heap[0], last = w->heap[--w->heap_count];
  size_t at = 0, below;
  while ((below = 2 * at + 1) < w->heap_count) {
    if (below + 1 < w->heap_count && w->heap[below + 1] < w->heap[below]) below++;
    if (w->heap[below] >= last) break;
    w->heap[at] = w->heap[below];
    at = below;
  }
  w->heap[at] = last;
  return first;
}

/* Looks up the pair at a place; `end` is behind the last place. */
static void rank_pair(const tsr_subword *subword, long_word *w, uint32_t at, uint32_t end) {
  uint32_t next = w->next[at];
  w->ranks[at] = NO_RANK;
  if (next < end) w->ranks[at] = find_rank(subword, w->tokens[at], w->tokens[next], &w->made[at]);
  if (w->ranks[at] != NO_RANK) push(w, (uint64_t)w->ranks[at] << 32 | at);
}

static size_t merge_long(
    const tsr_subword *subword, tsr_bpe_words *words, const char *text, size_t length,
    int32_t *tokens) {
  assert(length < UINT32_MAX);
  reserve(words, length);
  long_word *w = &words->list;
  uint32_t end = (uint32_t)length;
  w->heap_count = 0;
  take_bytes(subword, text, length, w->tokens);
  for (uint32_t i = 0; i < end; i++) w->next[i] = i + 1, w->previous[i] = i - 1;
  for (uint32_t i = 0; i < end; i++) rank_pair(subword, w, i, end);
  while (w->heap_count) {
    uint64_t key = pop(w);
    uint32_t at = (uint32_t)key, gone = w->next[at];
    if (w->ranks[at] != key >> 32) continue; /* the pair was merged before */
    w->tokens[at] = w->made[at];
    w->ranks[gone] = NO_RANK;
    w->next[at] = w->next[gone];
    if (w->next[at] < end) w->previous[w->next[at]] = at;
    rank_pair(subword, w, at, end);
    if (at) rank_pair(subword, w, w->previous[at], end);
  }
  size_t count = 0;
  for (uint32_t i = 0; i < end; i = w->next[i]) tokens[count++] = w->tokens[i];
  return count;
}

/* ---- words ---- */

static size_t merge_word(
    const tsr_subword *subword, tsr_bpe_words *words, const char *text, size_t length,
    int32_t *tokens) {
  int32_t whole = subword->ignores_merges ? *tsr_subword_word_slot(subword, text, length) : -1;
  if (whole >= 0) {
    tokens[0] = whole;
    return 1;
  }
  return length <= SHORT_MAX ? merge_short(subword, text, length, tokens)
                             : merge_long(subword, words, text, length, tokens);
}

int64_t tsr_bpe_word(
    const tsr_subword *subword, tsr_bpe_words *words, const char *text, size_t length,
    int32_t *ret_tokens) {
  if (length > SEEN_BYTES) return (int64_t)merge_word(subword, words, text, length, ret_tokens);
  seen_word *seen = &words->seen[XXH3_64bits(text, length) & ((1 << SEEN_BITS) - 1)];
  if (seen->length == length && !memcmp(seen->text, text, length)) {
    for (int i = 0; i < seen->count; i++) ret_tokens[i] = seen->tokens[i];
    return seen->count;
  }
  size_t count = merge_word(subword, words, text, length, ret_tokens);
  if (count > SEEN_TOKENS) return (int64_t)count;
  seen->length = (uint8_t)length;
  seen->count = (uint8_t)count;
  memcpy(seen->text, text, length);
  memcpy(seen->tokens, ret_tokens, count * sizeof *ret_tokens);
  return (int64_t)count;
}
