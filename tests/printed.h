// SPDX-License-Identifier: Apache-2.0
/* What diagnostics print, for tests that compare exact texts. */
#ifndef TSR_TESTS_PRINTED_H
#define TSR_TESTS_PRINTED_H
#include "base/diag.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

/* In the arena; the diagnostics are forgotten, as after any printing. */
static inline char *printed_diags(tsr_arena *arena, tsr_diags *diags) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(diags, stream);
  fclose(stream);
  char *copy = tsr_arena_strdup(arena, text);
  free(text);
  return copy;
}

/* One line on stdout, {"error": …}. */
static inline void print_diags_json(tsr_arena *arena, tsr_diags *diags) {
  const char *text = printed_diags(arena, diags);
  tsr_text line = {0};
  tsr_json_add_text(&line, text, strlen(text));
  printf("{\"error\": %s}\n", line.data);
  tsr_text_free(&line);
}

#endif
