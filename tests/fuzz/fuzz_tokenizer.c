// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a tokenizer.json; where they are one, a little text, and the end of the bytes
 * themselves, as tokens and back. */
#include "tokenizer/subword.h"
#include "data/tokenizer.h"
#include "base/utf8.h"
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(tsr_arena *arena, const tsr_subword *bpe, const char *text, size_t length) {
  tsr_tokenizer tokenizer = tsr_tokenizer_subword(bpe);
  int64_t room = tsr_subword_room(bpe, text, length), count = 0;
  int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
  tokens[room] = -7;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  tsr_diags *diags = tsr_diags_new(arena);
  bool ok = tsr_subword_encode(bpe, scratch, text, length, tokens, &count, diags);
  tsr_subword_scratch_free(scratch);
  assert(count <= room && tokens[room] == -7);
  tsr_text decoded = {0};
  if (ok) tsr_tokenizer_decode(&tokenizer, tokens, count, &decoded);
  assert(tsr_utf8_valid(decoded.data ? decoded.data : "", decoded.length) == decoded.length);
  tsr_text_free(&decoded);
  int64_t *begins = tsr_arena_array(arena, int64_t, room + 2), again = 0;
  tsr_subword_scratch *other = tsr_subword_scratch_new();
  bool ok_again =
      tsr_subword_encode_begins(bpe, other, text, length, tokens, begins, &again, diags);
  tsr_subword_scratch_free(other);
  assert(ok == ok_again && (!ok || count == again));
  for (int64_t i = 0; ok && i < count; i++) assert(begins[i] <= begins[i + 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char mixed[] =
      "I'll  sell 123 caf\xc3\xa9s e\xcc\x81\xcc\xa3 \xe4\xb8\xad\xe6\x96\x87 "
      "\xf0\x9f\x99\x82\r\n\n\t <|endoftext|> <e>  [M] word\xff\xe2\x82";
  enum { TAIL = 64 };
  FILE *sink = fopen("/dev/null", "w");
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_subword *bpe;
  if (tsr_subword_parse(arena, "fuzz.json", (const char *)data, size, &bpe, diags)) {
    size_t tail = size < TAIL ? size : TAIL;
    encode(arena, bpe, mixed, sizeof mixed - 1);
    encode(arena, bpe, (const char *)data + size - tail, tail);
  }
  tsr_diags_print(diags, sink);
  tsr_arena_free(arena);
  fclose(sink);
  return 0;
}
