// SPDX-License-Identifier: Apache-2.0
/* Conversations of letters: each letter is a token, 1 for a or A to 26, and a capital is trained.
 * A line with '!' is an error there. */
#ifndef TSR_TESTS_DATA_LETTERS_H
#define TSR_TESTS_DATA_LETTERS_H
#include "data/masked_documents.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool encode_letters(
    const void *context, void *state, tsr_arena *arena, const tsr_text_file *file, size_t offset,
    size_t length, tsr_masked_tokens *ret, tsr_diags *diags) {
  const char *text = file->text + offset;
  ++*(int *)state;
  (void)context;
  int32_t *tokens = tsr_arena_array(arena, int32_t, length + 1);
  uint8_t *trained = tsr_arena_array(arena, uint8_t, length + 1);
  const char *bad = memchr(text, '!', length);
  if (bad)
    return tsr_diag_error(
        diags, tsr_text_file_place(file, (size_t)(bad - file->text), 1, diags), "no letter");
  *ret = (tsr_masked_tokens){tokens, trained, (int64_t)length};
  for (size_t i = 0; i < length; i++) {
    tokens[i] = tolower(text[i]) - 'a' + 1;
    trained[i] = isupper((unsigned char)text[i]) ? 2 : 0;
  }
  return true;
}

/* A thread's state counts its lines. */
static void *open_count(const void *context) {
  (void)context;
  return calloc(1, sizeof(int));
}

static const tsr_line_encoder letters = {encode_letters, NULL, open_count, free};

/* The conversations of a text. */
static inline bool read_letters(
    tsr_arena *arena, const char *text, int threads, size_t block_bytes, tsr_masked_documents *ret,
    tsr_diags *diags) {
  tsr_text_file file = {"lines.jsonl", text, strlen(text)};
  return tsr_masked_documents_read(arena, &file, 1, &letters, threads, block_bytes, ret, diags);
}

#endif
