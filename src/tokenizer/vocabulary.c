// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/internal.h"
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

int32_t *tsr_vocabulary_slot(const tsr_subword *s, const char *text, size_t length) {
  uint32_t at = (uint32_t)XXH3_64bits(text, length) & s->words_mask;
  for (int32_t token; (token = s->words[at]) >= 0; at = (at + 1) & s->words_mask)
    if (s->lengths[token] == length && !memcmp(s->texts[token], text, length)) break;
  return &s->words[at];
}

int32_t tsr_vocabulary_find(const tsr_subword *s, const char *text, size_t length) {
  return *tsr_vocabulary_slot(s, text, length);
}

size_t tsr_word_room(const tsr_subword *s, size_t length) {
  /* Bytes of a prefix and of a suffix may become tokens too. */
  return s->falls_back ? length * (1 + s->prefix_length) + s->suffix_length : length;
}
