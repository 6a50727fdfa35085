// SPDX-License-Identifier: Apache-2.0
/* Any bytes as sentencepiece's precompiled map of characters; where they are one, texts by it, among
 * them the end of the bytes themselves. */
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <assert.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *encode_base64(tsr_arena *arena, const uint8_t *data, size_t size) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *text = tsr_arena_alloc(arena, (size + 2) / 3 * 4 + 1), *to = text;
  for (size_t i = 0; i < size; i += 3) {
    uint32_t group = (uint32_t)data[i] << 16;
    if (i + 1 < size) group |= (uint32_t)data[i + 1] << 8;
    if (i + 2 < size) group |= data[i + 2];
    for (int k = 0; k < 4; k++)
      *to++ = i + (size_t)k > size ? '=' : letters[group >> (18 - 6 * k) & 63];
  }
  return text;
}

static void apply(tsr_arena *arena, const tsr_charsmap *map, const char *text, size_t length) {
  tsr_piece piece = {.text = text, .length = tsr_utf8_valid(text, length)};
  tsr_piece_buffer made = {.arena = arena};
  tsr_charsmap_apply(map, &piece, &made);
  assert(tsr_utf8_valid(made.bytes, made.length) == made.length);
  for (size_t i = 0; i < made.length; i++)
    assert(made.from[i] < piece.length && (!i || made.from[i - 1] <= made.from[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char mixed[] =
      "I'll caf\xc3\xa9 e\xcc\x81\xcc\xa3 \xe4\xb8\xad \xef\xbc\xa1\xef\xac\x81 "
      "\xc2\xbd\xe2\x81\xb5"
      "\xf0\x9f\x99\x82\r\n\n\t \xf0\x9f\x87\xa9\xf0\x9f\x87\xaa\xe3\x80\x80";
  enum { TAIL = 64 };
  FILE *sink = fopen("/dev/null", "w");
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  const tsr_charsmap *map;
  if (tsr_charsmap_parse(arena, encode_base64(arena, data, size), "fuzz", &map, diags)) {
    size_t tail = size < TAIL ? size : TAIL;
    apply(arena, map, mixed, sizeof mixed - 1);
    apply(arena, map, (const char *)data + size - tail, tail);
  }
  tsr_diags_print(diags, sink);
  tsr_arena_free(arena);
  fclose(sink);
  return 0;
}
