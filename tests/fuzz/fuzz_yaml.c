// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a configuration: parsed, read against the table without opening files, and, where
 * they are right, printed and read again. */
#include "config/config.h"
#include "config/print.h"
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The text without comments: what must not change. */
static void strip_comments(tsr_text *text) {
  char *to = text->data;
  for (const char *at = text->data; at && *at;) {
    const char *end = strchr(at, '\n'), *comment = end;
    for (const char *c = at; c + 2 < end; c++)
      if (!strncmp(c, "  # ", 4)) comment = c; /* the last one: texts may hold such bytes */
    memmove(to, at, (size_t)(comment - at));
    to += comment - at;
    *to++ = '\n';
    at = end + 1;
  }
  if (to) *to = 0;
}

static bool print(const char *bytes, size_t size, tsr_text *text, FILE *sink) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_config *config;
  static const tsr_set sets[] = {{"training_config.log_every=7"}};
  bool ok = tsr_config_parse(arena, "fuzz.yaml", bytes, size, sets, 1, false, &config, diags);
  if (ok) tsr_config_print(config, text);
  tsr_diags_print(diags, sink);
  tsr_arena_free(arena);
  return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FILE *sink = fopen("/dev/null", "w");
  tsr_text first = {0}, second = {0};
  if (print((const char *)data, size, &first, sink)) {
    bool again = print(first.data, first.length, &second, sink);
    assert(again);
    strip_comments(&first);
    strip_comments(&second);
    assert(!strcmp(first.data, second.data));
  }
  tsr_text_free(&first);
  tsr_text_free(&second);
  fclose(sink);
  return 0;
}
