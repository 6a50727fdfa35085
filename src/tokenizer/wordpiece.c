// SPDX-License-Identifier: Apache-2.0
/* WordPiece: the longest token that a word begins with, then the longest that continues it. A word
 * that cannot be put together is unknown as a whole. */
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <string.h>

struct tsr_wordpiece_memory {
  tsr_piece_buffer part; /* the prefix of continuing parts, and the rest of the word */
};

tsr_wordpiece_memory *tsr_wordpiece_memory_new(tsr_arena *arena) {
  tsr_wordpiece_memory *memory = tsr_arena_array(arena, tsr_wordpiece_memory, 1);
  memory->part.arena = arena;
  return memory;
}

/* The longest token that the text begins with; `least`: bytes that it has at least. */
static int32_t find_longest(
    const tsr_subword *s, const char *text, size_t length, size_t least, size_t *ret_length) {
  size_t end = length < s->longest ? length : s->longest;
  while (end > least && end < length && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
  while (end > least) {
    int32_t token = tsr_vocabulary_find(s, text, end);
    *ret_length = end;
    if (token >= 0) return token;
    do end--;
    while (end > least && ((unsigned char)text[end] & 0xc0) == 0x80);
  }
  return -1;
}

static int64_t put_unknown(const tsr_subword *s, int32_t *ret_tokens, size_t *ret_begins) {
  ret_tokens[0] = s->unknown;
  if (ret_begins) ret_begins[0] = 0;
  return s->unknown < 0 ? -1 : 1;
}

int64_t tsr_wordpiece_encode(
    const tsr_subword *s, tsr_wordpiece_memory *memory, const char *text, size_t length,
    int32_t *ret_tokens, size_t *ret_begins) {
  int64_t chars = 0, count = 0;
  for (size_t i = 0; i < length; i++) chars += ((unsigned char)text[i] & 0xc0) != 0x80;
  if (chars > s->word_chars_max) return put_unknown(s, ret_tokens, ret_begins);
  for (size_t at = 0, bytes; at < length; at += bytes) {
    int32_t token;
    if (!at) {
      token = find_longest(s, text, length, 0, &bytes);
    } else {
      size_t rest = length - at < s->longest ? length - at : s->longest;
      while (at + rest < length && ((unsigned char)text[at + rest] & 0xc0) == 0x80) rest--;
      memory->part.length = 0;
      tsr_piece_add(&memory->part, s->prefix, s->prefix_length, 0);
      tsr_piece_add(&memory->part, text + at, rest, 0);
      token = find_longest(s, memory->part.bytes, memory->part.length, s->prefix_length, &bytes);
      bytes -= token >= 0 ? s->prefix_length : 0;
    }
    if (token < 0) return put_unknown(s, ret_tokens, ret_begins);
    if (ret_begins) ret_begins[count] = at;
    ret_tokens[count++] = token;
  }
  return count;
}
