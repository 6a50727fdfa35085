// SPDX-License-Identifier: Apache-2.0
/* A chat template and, behind a NUL, a line of JSONL: tokens and masks with every choice of what is
 * trained. */
#include "data/conversation.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const tsr_conversation *c, tsr_train_on train_on) {
  assert(c->begins[0] == 0 || !c->count);
  for (int64_t i = 0; i < c->count; i++) {
    assert(c->begins[i] <= c->begins[i + 1] && c->trained[i] <= 1);
    assert(train_on != TSR_TRAIN_ON_ALL || c->trained[i]);
  }
  assert(c->begins[c->count] == c->length);
}

static void read_line(
    tsr_arena *arena, const char *template, const tsr_text_file *line, tsr_train_on train_on,
    tsr_diags *diags) {
  tsr_conversation_format format = {.tokenizer = tsr_tokenizer_byte(), .train_on = train_on};
  tsr_conversation c;
  if (tsr_chat_template_open(
          arena, NULL, template, &format.tokenizer, TSR_NOWHERE, &format.template, diags) &&
      tsr_conversation_read(arena, &format, NULL, line, 0, line->length, &c, diags))
    check(&c, train_on);
  else assert(tsr_diags_errors(diags));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  size_t length = strnlen(text, size), behind = length < size ? length + 1 : size;
  char path[] = "/tmp/fuzz_conversation_XXXXXX";
  int file = mkstemp(path);
  assert(file >= 0 && write(file, text, length) == (ssize_t)length && !close(file));
  FILE *sink = fopen("/dev/null", "w");
  for (int train_on = 0; train_on <= TSR_TRAIN_ON_ALL; train_on++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_text_file line = {
        "fuzz.jsonl", tsr_arena_strndup(arena, text + behind, size - behind), size - behind};
    read_line(arena, path, &line, (tsr_train_on)train_on, diags);
    tsr_diags_print(diags, sink);
    tsr_arena_free(arena);
  }
  fclose(sink);
  unlink(path);
  return 0;
}
