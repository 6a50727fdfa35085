// SPDX-License-Identifier: Apache-2.0
/* One word's bytes or characters become tokens: the pair of neighbours with the lowest rank is
 * merged, the leftmost of equals, until no pair has a rank. */
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <assert.h>
#include <string.h>

enum {
  SHORT_MAX = 96,       /* longer words take the heap: O(n log n) */
  NO_RANK = UINT32_MAX, /* of a pair that does not merge */
};

/* What a word is merged in. Long ones: a list of tokens by place, and a heap of rank << 32 | place.
 */
struct tsr_bpe_memory {
  tsr_arena *arena;
  int32_t *tokens, *made; /* made: what the pair at a place becomes */
  uint32_t *ranks, *next, *previous;
  uint64_t *heap;
  size_t *begins; /* of the characters, in the word */
  size_t heap_count, capacity;
  tsr_piece_buffer character; /* with a prefix or a suffix */
};

tsr_bpe_memory *tsr_bpe_memory_new(tsr_arena *arena) {
  tsr_bpe_memory *memory = tsr_arena_array(arena, tsr_bpe_memory, 1);
  memory->arena = arena;
  memory->character.arena = arena;
  return memory;
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

static size_t merge_short(const tsr_subword *subword, size_t length, int32_t *tokens) {
  uint32_t ranks[SHORT_MAX]; /* of the pair that begins here; the last has none */
  int32_t made[SHORT_MAX];
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

static void reserve(tsr_bpe_memory *w, size_t length) {
  if (length <= w->capacity) return;
  w->capacity = length > 2 * w->capacity ? length : 2 * w->capacity;
  w->tokens = tsr_arena_array(w->arena, int32_t, w->capacity);
  w->made = tsr_arena_array(w->arena, int32_t, w->capacity);
  w->ranks = tsr_arena_array(w->arena, uint32_t, w->capacity);
  w->next = tsr_arena_array(w->arena, uint32_t, w->capacity);
  w->previous = tsr_arena_array(w->arena, uint32_t, w->capacity);
  w->begins = tsr_arena_array(w->arena, size_t, w->capacity);
  /* Every byte begins one pair, and every merge makes two new ones at most. */
  w->heap = tsr_arena_array(w->arena, uint64_t, 3 * w->capacity);
}

static void push(tsr_bpe_memory *w, uint64_t key) {
  size_t at = w->heap_count++;
  for (size_t above; at && w->heap[above = (at - 1) / 2] > key; at = above)
    w->heap[at] = w->heap[above];
  w->heap[at] = key;
}

static uint64_t pop(tsr_bpe_memory *w) {
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
static void rank_pair(const tsr_subword *subword, tsr_bpe_memory *w, uint32_t at, uint32_t end) {
  uint32_t next = w->next[at];
  w->ranks[at] = NO_RANK;
  if (next < end) w->ranks[at] = find_rank(subword, w->tokens[at], w->tokens[next], &w->made[at]);
  if (w->ranks[at] != NO_RANK) push(w, (uint64_t)w->ranks[at] << 32 | at);
}

/* Of the tokens in w->tokens. `ret_begins` (NULL: not needed): where each begins, by w->begins. */
static size_t merge_long(
    const tsr_subword *subword, tsr_bpe_memory *w, size_t length, int32_t *tokens,
    size_t *ret_begins) {
  assert(length < UINT32_MAX);
  uint32_t end = (uint32_t)length;
  w->heap_count = 0;
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
  for (uint32_t i = 0; i < end; i = w->next[i]) {
    if (ret_begins) ret_begins[count] = w->begins[i];
    tokens[count++] = w->tokens[i];
  }
  return count;
}

/* ---- characters, which the vocabulary may lack ---- */

/* Characters that are being looked up; an unknown token waits for the unknown ones behind it. */
typedef struct {
  const tsr_subword *subword;
  tsr_bpe_memory *w;
  size_t count, unknown_begin;
  bool has_unknown;
} symbols;

static void add_symbol(symbols *s, int32_t token, size_t begin) {
  s->w->tokens[s->count] = token;
  s->w->begins[s->count++] = begin;
}

static void flush_unknown(symbols *s) {
  if (s->has_unknown) add_symbol(s, s->subword->unknown, s->unknown_begin);
  s->has_unknown = false;
}

/* The tokens of bytes, if there are all. What is unknown before them still waits: so it is in the
 * package. */
static bool add_bytes(symbols *s, const char *text, size_t length, size_t begin) {
  const int32_t *tokens = s->subword->byte_tokens;
  if (!s->subword->falls_back) return false;
  for (size_t i = 0; i < length; i++)
    if (tokens[(unsigned char)text[i]] < 0) return false;
  for (size_t i = 0; i < length; i++) add_symbol(s, tokens[(unsigned char)text[i]], begin);
  return true;
}

/* False: an unknown token is named, and not in the vocabulary. */
static bool add_character(symbols *s, const char *text, size_t length, size_t begin) {
  int32_t token = tsr_vocabulary_find(s->subword, text, length);
  if (token >= 0) {
    flush_unknown(s);
    add_symbol(s, token, begin);
    return true;
  }
  if (add_bytes(s, text, length, begin) || !s->subword->unknown_text) return true;
  if (s->subword->unknown < 0) return false;
  if (!s->has_unknown || !s->subword->fuses_unknown) {
    flush_unknown(s);
    s->unknown_begin = begin;
  }
  s->has_unknown = true;
  return true;
}

/* Returns how many tokens there are in w->tokens, or -1. */
static int64_t
take_characters(const tsr_subword *subword, tsr_bpe_memory *w, const char *text, size_t length) {
  symbols s = {.subword = subword, .w = w};
  bool is_plain = !subword->prefix_length && !subword->suffix_length;
  for (size_t at = 0, bytes; at < length; at += bytes) {
    uint32_t code;
    bytes = (size_t)tsr_utf8_next(text + at, length - at, &code);
    const char *character = text + at;
    size_t character_bytes = bytes;
    if (!is_plain) {
      w->character.length = 0;
      if (at) tsr_piece_add(&w->character, subword->prefix, subword->prefix_length, 0);
      tsr_piece_add(&w->character, text + at, bytes, 0);
      if (at + bytes == length)
        tsr_piece_add(&w->character, subword->suffix, subword->suffix_length, 0);
      character = w->character.bytes;
      character_bytes = w->character.length;
    }
    if (!add_character(&s, character, character_bytes, at)) return -1;
  }
  flush_unknown(&s);
  return (int64_t)s.count;
}

/* ---- words ---- */

int64_t tsr_bpe_encode(
    const tsr_subword *subword, tsr_bpe_memory *w, const char *text, size_t length,
    int32_t *ret_tokens, size_t *ret_begins) {
  int32_t whole = subword->ignores_merges ? tsr_vocabulary_find(subword, text, length) : -1;
  if (whole >= 0) {
    ret_tokens[0] = whole;
    if (ret_begins) ret_begins[0] = 0;
    return 1;
  }
  if (subword->model == TSR_MODEL_BPE_BYTES && length <= SHORT_MAX && !ret_begins) {
    take_bytes(subword, text, length, ret_tokens);
    return (int64_t)merge_short(subword, length, ret_tokens);
  }
  reserve(w, tsr_word_room(subword, length));
  int64_t count = (int64_t)length;
  if (subword->model == TSR_MODEL_BPE_BYTES) {
    take_bytes(subword, text, length, w->tokens);
    for (size_t i = 0; i < length; i++) w->begins[i] = i;
  } else {
    count = take_characters(subword, w, text, length);
  }
  if (count <= 0) return count;
  if (count > SHORT_MAX || ret_begins)
    return (int64_t)merge_long(subword, w, (size_t)count, ret_tokens, ret_begins);
  memcpy(ret_tokens, w->tokens, (size_t)count * sizeof *ret_tokens);
  return (int64_t)merge_short(subword, (size_t)count, ret_tokens);
}
