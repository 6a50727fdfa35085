// SPDX-License-Identifier: Apache-2.0
/* Any bytes as SentencePiece's tokenizer.model: an error, or pieces that are texts of UTF-8. */
#include "base/utf8.h"
#include "checkpoint/sentencepiece_model.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_some(const uint8_t *data, size_t size) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_sentencepiece_model model;
  uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees a read behind it */
  assert(exact);
  memcpy(exact, data, size);
  bool ok = tsr_sentencepiece_parse(arena, "tokenizer.model", exact, size, &model, diags);
  assert(ok || tsr_diags_first_error(diags));
  assert(!ok || model.count > 0);
  for (int i = 0; ok && i < model.count; i++) {
    const tsr_sentencepiece *p = &model.pieces[i];
    size_t length = strlen(p->text);
    assert(tsr_utf8_valid(p->text, length) == length);
    assert(p->type >= TSR_PIECE_NORMAL && p->type <= TSR_PIECE_BYTE);
  }
  free(exact);
  tsr_arena_free(arena);
}

/* The bytes, every beginning of the first of them, and each of these with a bit turned. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { MOST = 300 };
  uint8_t turned[MOST];
  read_some(data, size);
  for (size_t n = 0; n < size && n < MOST; n++) {
    read_some(data, n);
    size_t most = size < MOST ? size : MOST;
    memcpy(turned, data, most);
    for (int bit = 0; bit < 8; bit++) {
      turned[n] = (uint8_t)(data[n] ^ 1 << bit);
      read_some(turned, most);
    }
  }
  return 0;
}
