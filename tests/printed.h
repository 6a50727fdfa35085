// SPDX-License-Identifier: Apache-2.0
/* What diagnostics print, for tests that compare exact texts. */
#ifndef TSR_TESTS_PRINTED_H
#define TSR_TESTS_PRINTED_H
#include "base/diag.h"
#include <stdlib.h>

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

#endif
