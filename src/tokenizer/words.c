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
  SHORT_BITS = 16, /* 2 MB of short ones */
  SHORT_BYTES = 15,
  SHORT_TOKENS = 4,
  BATCH = 32, /* words whose places in memory are fetched at once */
};

/* A word and what it became; `length` 0: free. */
typedef struct {
  uint8_t length, count;
  char text[SEEN_BYTES];
  int32_t tokens[SEEN_TOKENS];
} seen_word;

/* A word of at most 15 bytes: they, padded with zeros, and their number as the 16th. It fills half
 * a cache line. Tokens that are not there are -1; a word of none is free. */
typedef struct {
  uint64_t key[2];
  int32_t tokens[SHORT_TOKENS];
} short_word;

struct tsr_words {
  tsr_arena *arena;
  seen_word *seen;    /* NULL: none yet */
  short_word *shorts; /* NULL: none yet */
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
  if (words->shorts) memset(words->shorts, 0, sizeof *words->shorts << SHORT_BITS);
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

/* ---- many words ---- */

/* `has_tail`: 16 bytes can be read. */
static inline void make_key(const char *word, size_t length, bool has_tail, uint64_t key[2]) {
  unsigned char bytes[16] = {0};
  if (has_tail) {
    uint64_t low, high;
    memcpy(&low, word, 8);
    memcpy(&high, word + 8, 8);
    key[0] = length < 8 ? low & (((uint64_t)1 << 8 * length) - 1) : low;
    key[1] = length <= 8 ? 0 : high & (((uint64_t)1 << 8 * (length - 8)) - 1);
  } else {
    memcpy(bytes, word, length);
    memcpy(key, bytes, 16);
  }
  key[1] |= (uint64_t)length << 56;
}

static inline short_word *find_short(tsr_words *words, const uint64_t key[2]) {
  uint64_t hash = (key[0] ^ key[1] * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
  return &words->shorts[hash >> (64 - SHORT_BITS)];
}

/* A word that is not at its place. */
static int64_t encode_short(
    const tsr_subword *s, tsr_words *words, short_word *place, const uint64_t key[2],
    const char *text, size_t length, int32_t *ret_tokens) {
  int64_t count = tsr_bpe_encode(s, words->bpe, text, length, ret_tokens, NULL);
  if (count > SHORT_TOKENS) return count;
  memcpy(place->key, key, sizeof place->key);
  for (int i = 0; i < SHORT_TOKENS; i++) place->tokens[i] = i < count ? ret_tokens[i] : -1;
  return count;
}

int64_t tsr_words_encode_text(
    const tsr_subword *s, tsr_words *words, const char *text, size_t length, int32_t *ret_tokens) {
  if (!words->shorts) words->shorts = tsr_arena_array(words->arena, short_word, 1 << SHORT_BITS);
  size_t ends[BATCH], at = 0;
  uint64_t keys[BATCH][2];
  short_word *places[BATCH];
  int64_t count = 0;
  for (int batch;
       (batch = tsr_known_pattern_ends(s->known_words, text, length, at, BATCH, ends));) {
    size_t begin = at;
    for (int i = 0; i < batch; begin = ends[i++]) {
      size_t bytes = ends[i] - begin;
      places[i] = NULL;
      if (bytes > SHORT_BYTES) continue;
      make_key(text + begin, bytes, begin + 16 <= length, keys[i]);
      places[i] = find_short(words, keys[i]);
      __builtin_prefetch(places[i]);
    }
    for (int i = 0; i < batch; at = ends[i++]) {
      short_word *place = places[i];
      int32_t *to = ret_tokens + count;
      if (!place) {
        count += tsr_word_encode(s, words, text + at, ends[i] - at, to, NULL);
      } else if (place->key[0] == keys[i][0] && place->key[1] == keys[i][1]) {
        for (int k = 0; k < SHORT_TOKENS && place->tokens[k] >= 0; k++)
          to[k] = place->tokens[k], count++;
      } else {
        count += encode_short(s, words, place, keys[i], text + at, ends[i] - at, to);
      }
    }
  }
  return count;
}

const char *tsr_word_failure(const tsr_subword *s) {
  return s->unknown_text ? "the unknown token is not in the vocabulary"
                         : "the model has no token for a part of it, and no unknown token";
}
