// SPDX-License-Identifier: Apache-2.0
/* A folder for a test's files, and diagnostics as text. */
#ifndef TSR_TESTS_DATA_SCRATCH_H
#define TSR_TESTS_DATA_SCRATCH_H
#include "base/diag.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Makes an empty folder and works in it, so that messages name files as they are written here. */
static inline void scratch_enter(char folder[64]) {
  strcpy(folder, "/tmp/tessera-test-XXXXXX");
  int ok = mkdtemp(folder) != NULL && chdir(folder) == 0;
  assert(ok);
}

static inline void scratch_leave(const char *folder) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  int ok = chdir("/") == 0 && system(command) == 0;
  assert(ok);
}

static inline void scratch_write(const char *name, const void *bytes, size_t length) {
  FILE *file = fopen(name, "wb");
  assert(file);
  size_t put = fwrite(bytes, 1, length, file);
  assert(put == length);
  fclose(file);
}

static inline void scratch_text(const char *name, const char *text) {
  scratch_write(name, text, strlen(text));
}

/* The diagnostics since the last call, in a buffer that the next call reuses. */
static inline const char *scratch_diags(tsr_diags *diags) {
  static char text[8192];
  FILE *stream = fmemopen(text, sizeof text, "w");
  assert(stream);
  tsr_diags_print(diags, stream);
  long length = ftell(stream);
  fclose(stream);
  text[length < (long)sizeof text ? length : (long)sizeof text - 1] = 0;
  return text;
}

/* Whether they start with this text; forgets them. */
static inline int scratch_diags_start(tsr_diags *diags, const char *text) {
  return !strncmp(scratch_diags(diags), text, strlen(text));
}

#endif
