// SPDX-License-Identifier: Apache-2.0
/* Unigram: of all ways to cut a text into tokens, that of the largest sum of log probabilities
 * (Kudo 2018), by dynamic programming over the places of the text. The sums are added, and of equal
 * ones the first is kept, in the order of sentencepiece's and the package's code. */
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <stdlib.h>
#include <string.h>

/* The best way to a place of the text. */
typedef struct {
  double score;
  size_t begin; /* of its last token; NONE: no way yet */
  int32_t token;
} node;

static const size_t NONE = SIZE_MAX;

struct tsr_unigram_memory {
  tsr_arena *arena;
  node *nodes;
  size_t capacity;
};

tsr_unigram_memory *tsr_unigram_memory_new(tsr_arena *arena) {
  tsr_unigram_memory *memory = tsr_arena_array(arena, tsr_unigram_memory, 1);
  memory->arena = arena;
  return memory;
}

/* ---- the trie ---- */

typedef struct {
  const char *text;
  uint32_t length;
  int32_t token;
} entry;

static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  uint32_t length = x->length < y->length ? x->length : y->length;
  int order = memcmp(x->text, y->text, length);
  return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* Of a node that is being made: the sorted entries [low, high) begin with its bytes. */
typedef struct {
  uint32_t low, high, depth;
} node_range;

static size_t collect(const tsr_subword *s, entry *entries, size_t *ret_bytes) {
  size_t count = 0;
  for (int32_t token = 0; token < s->vocab_size; token++) {
    /* Of tokens with the same text the table of words has the last one. */
    bool is_in = s->texts[token] && s->lengths[token] &&
                 tsr_vocabulary_find(s, s->texts[token], s->lengths[token]) == token;
    if (!is_in) continue;
    entries[count++] = (entry){s->texts[token], s->lengths[token], token};
    *ret_bytes += s->lengths[token];
  }
  qsort(entries, count, sizeof *entries, compare_entries);
  return count;
}

void tsr_unigram_make_trie(tsr_arena *arena, tsr_subword *s) {
  tsr_arena *scratch = tsr_arena_new();
  entry *entries = tsr_arena_array(scratch, entry, s->vocab_size + 1);
  size_t bytes = 0, count = collect(s, entries, &bytes), nodes = 1;
  node_range *ranges = tsr_arena_array(scratch, node_range, bytes + 1);
  s->trie.labels = tsr_arena_alloc(arena, bytes + 1);
  s->trie.tokens = tsr_arena_array(arena, int32_t, bytes + 1);
  s->trie.children = tsr_arena_array(arena, uint32_t, bytes + 2);
  ranges[0] = (node_range){0, (uint32_t)count, 0};
  for (size_t n = 0; n < nodes; n++) {
    node_range r = ranges[n];
    bool ends_here = r.low < r.high && entries[r.low].length == r.depth;
    s->trie.tokens[n] = ends_here ? entries[r.low].token : -1;
    s->trie.children[n] = (uint32_t)nodes;
    for (uint32_t i = r.low + ends_here, end; i < r.high; i = end) {
      char byte = entries[i].text[r.depth];
      for (end = i + 1; end < r.high && entries[end].text[r.depth] == byte;) end++;
      s->trie.labels[nodes] = (uint8_t)byte;
      ranges[nodes++] = (node_range){i, end, r.depth + 1};
    }
  }
  s->trie.children[nodes] = (uint32_t)nodes;
  tsr_arena_free(scratch);
}

/* The child of a node by a byte, or 0. */
static uint32_t find_child(const tsr_trie *trie, uint32_t n, uint8_t byte) {
  uint32_t low = trie->children[n], end = trie->children[n + 1], high = end;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (trie->labels[middle] < byte) low = middle + 1;
    else high = middle;
  }
  return low < end && trie->labels[low] == byte ? low : 0;
}

/* ---- the best way ---- */

static void offer(node *to, double score, size_t begin, int32_t token) {
  if (to->begin == NONE || score > to->score) *to = (node){score, begin, token};
}

/* False: a character is in no token, and there is none for the unknown. */
static bool find_ways(const tsr_subword *s, node *nodes, const char *text, size_t length) {
  for (size_t i = 0; i <= length; i++) nodes[i] = (node){0, NONE, -1};
  for (size_t at = 0, bytes; at < length; at += bytes) {
    uint32_t code;
    bytes = (size_t)tsr_utf8_next(text + at, length - at, &code);
    double here = nodes[at].score;
    bool has_character = false;
    uint32_t n = 0;
    for (size_t end = at; end < length;) {
      n = find_child(&s->trie, n, (uint8_t)text[end++]);
      if (!n) break;
      int32_t token = s->trie.tokens[n];
      if (token < 0) continue;
      offer(&nodes[end], s->scores[token] + here, at, token);
      has_character |= end - at == bytes;
    }
    if (has_character) continue;
    if (s->unknown < 0) return false;
    offer(&nodes[at + bytes], s->unknown_score + here, at, s->unknown);
  }
  return true;
}

/* The tokens of a part of the way by its text: what is unknown may be there as a whole. */
static int64_t
put_part(const tsr_subword *s, const char *text, size_t length, int32_t *ret_tokens) {
  int32_t token = tsr_vocabulary_find(s, text, length);
  if (token >= 0) return ret_tokens[0] = token, 1;
  bool has_bytes = s->falls_back;
  for (size_t i = 0; has_bytes && i < length; i++)
    has_bytes = s->byte_tokens[(unsigned char)text[i]] >= 0;
  if (!has_bytes) return ret_tokens[0] = s->unknown, s->unknown < 0 ? -1 : 1;
  for (size_t i = 0; i < length; i++) ret_tokens[i] = s->byte_tokens[(unsigned char)text[i]];
  return (int64_t)length;
}

int64_t tsr_unigram_encode(
    const tsr_subword *s, tsr_unigram_memory *memory, const char *text, size_t length,
    int32_t *ret_tokens, size_t *ret_begins) {
  if (length + 1 > memory->capacity) {
    memory->capacity = 2 * length + 64;
    memory->nodes = tsr_arena_array(memory->arena, node, memory->capacity);
  }
  node *nodes = memory->nodes;
  if (!find_ways(s, nodes, text, length)) return -1;
  /* The ends of the parts, the last first, in `score`: exact below 2^53. Unknown tokens in a row
   * are one part. */
  size_t parts = 0;
  for (size_t end = length; end > 0;) {
    size_t begin = nodes[end].begin;
    bool is_unknown = s->unknown >= 0 && nodes[end].token == s->unknown;
    while (is_unknown && begin > 0 && nodes[begin].token == s->unknown) begin = nodes[begin].begin;
    nodes[parts++].score = (double)end;
    end = begin;
  }
  int64_t count = 0;
  for (size_t at = 0; parts > 0;) {
    size_t end = (size_t)nodes[--parts].score;
    int64_t put = put_part(s, text + at, end - at, ret_tokens + count);
    if (put < 0) return -1;
    for (int64_t i = 0; ret_begins && i < put; i++) ret_begins[count + i] = at;
    count += put;
    at = end;
  }
  return count;
}
