// SPDX-License-Identifier: Apache-2.0
/* Words and what they become: the models, and a memory of the words that were seen before. */
#include "tokenizer/internal.h"
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
  SEEN_BITS = 16, /* 4 MB of words that were encoded before */
  SEEN_BYTES = 30,
  SEEN_TOKENS = 8,
};

/* A word and what it became; `length` 0: free. */
typedef struct {
  uint8_t length, count;
  char text[SEEN_BYTES];
  int32_t tokens[SEEN_TOKENS];
} seen_word;

struct tsr_words {
  tsr_arena *arena;
  seen_word *seen; /* NULL: none yet */
  tsr_bpe_memory *bpe;
  tsr_unigram_memory *unigram;
  tsr_wordpiece_memory *wordpiece;
};

tsr_words *tsr_words_new(tsr_arena *arena) {
  tsr_words *words = tsr_arena_array(arena, tsr_words, 1);
  words->arena = arena;
  words->bpe = tsr_bpe_memory_new(arena);
  words->unigram = tsr_unigram_memory_new(arena);
  words->wordpiece = tsr_wordpiece_memory_new(arena);
  return words;
}

void tsr_words_forget(tsr_words *words) {
  if (words->seen) memset(words->seen, 0, sizeof *words->seen << SEEN_BITS);
}

static int64_t encode_word(
    const tsr_subword *s, const char *text, size_t length, int32_t *ret_tokens,
    size_t *ret_begins) {
  int32_t token = tsr_vocabulary_find(s, text, length);
  if (token < 0) token = s->unknown;
  if (token < 0) return -1;
  ret_tokens[0] = token;
  if (ret_begins) ret_begins[0] = 0;
  return 1;
}

static int64_t encode_anew(
    const tsr_subword *s, tsr_words *words, const char *text, size_t length, int32_t *ret_tokens,
    size_t *ret_begins) {
  switch (s->model) {
  case TSR_MODEL_BPE_BYTES:
  case TSR_MODEL_BPE:
    return tsr_bpe_encode(s, words->bpe, text, length, ret_tokens, ret_begins);
  case TSR_MODEL_UNIGRAM:
    return tsr_unigram_encode(s, words->unigram, text, length, ret_tokens, ret_begins);
  case TSR_MODEL_WORDPIECE:
    return tsr_wordpiece_encode(s, words->wordpiece, text, length, ret_tokens, ret_begins);
  case TSR_MODEL_WORDLEVEL:
    break;
  }
  return encode_word(s, text, length, ret_tokens, ret_begins);
}

int64_t tsr_word_encode(
    const tsr_subword *s, tsr_words *words, const char *text, size_t length, int32_t *ret_tokens,
    size_t *ret_begins) {
  bool is_known_size = s->model == TSR_MODEL_BPE_BYTES || !ret_begins;
  if (length > SEEN_BYTES || !is_known_size)
    return encode_anew(s, words, text, length, ret_tokens, ret_begins);
  if (!words->seen) words->seen = tsr_arena_array(words->arena, seen_word, 1 << SEEN_BITS);
  seen_word *seen = &words->seen[XXH3_64bits(text, length) & ((1 << SEEN_BITS) - 1)];
  int64_t count = seen->count;
  if (seen->length == length && !memcmp(seen->text, text, length)) {
    for (int64_t i = 0; i < count; i++) ret_tokens[i] = seen->tokens[i];
  } else {
    count = encode_anew(s, words, text, length, ret_tokens, NULL);
    if (count >= 0 && count <= SEEN_TOKENS) {
      seen->length = (uint8_t)length;
      seen->count = (uint8_t)count;
      memcpy(seen->text, text, length);
      memcpy(seen->tokens, ret_tokens, (size_t)count * sizeof *ret_tokens);
    }
  }
  /* Of bytes, each token has its own length. */
  size_t begin = 0;
  for (int64_t i = 0; ret_begins && i < count; begin += s->lengths[ret_tokens[i++]])
    ret_begins[i] = begin;
  return count;
}

const char *tsr_word_failure(const tsr_subword *s) {
  return s->unknown_text ? "the unknown token is not in the vocabulary"
                         : "the model has no token for a part of it, and no unknown token";
}
