// SPDX-License-Identifier: Apache-2.0
/* Conversations of letters: each letter is a token, 1 for a or A to 26, and a capital is trained.
 * A line with '!' is an error there. */
#ifndef TSR_TESTS_DATA_LETTERS_H
#define TSR_TESTS_DATA_LETTERS_H
#include "data/conversations.h"
#include <ctype.h>
#include <string.h>

static bool encode_letters(
    const void *context, tsr_arena *arena, tsr_location line, const char *text, size_t length,
    tsr_conversation *ret, tsr_diags *diags) {
  (void)context;
  int32_t *tokens = tsr_arena_array(arena, int32_t, length + 1);
  uint8_t *trained = tsr_arena_array(arena, uint8_t, length + 1);
  const char *bad = memchr(text, '!', length);
  if (bad) {
    line.col += (int)(bad - text);
    return tsr_diag_error(diags, line, "no letter");
  }
  *ret = (tsr_conversation){tokens, trained, (int64_t)length};
  for (size_t i = 0; i < length; i++) {
    tokens[i] = tolower(text[i]) - 'a' + 1;
    trained[i] = isupper((unsigned char)text[i]) ? 2 : 0;
  }
  return true;
}

static const tsr_conversation_encoder letters = {encode_letters, NULL};

/* The conversations of a text. */
static inline bool read_letters(
    tsr_arena *arena, const char *text, int threads, size_t block_bytes, tsr_conversations *ret,
    tsr_diags *diags) {
  tsr_text_file file = {"lines.jsonl", text, strlen(text)};
  return tsr_conversations_read(arena, &file, 1, &letters, threads, block_bytes, ret, diags);
}

#endif
