// SPDX-License-Identifier: Apache-2.0
/* What the tests of src/mesh share. */
#ifndef TSR_TESTS_MESH_TEST_H
#define TSR_TESTS_MESH_TEST_H
#include "tests/check.h"
#include "base/arena.h"
#include "base/diag.h"
#include "base/file_read.h"
#include <dirent.h>
#include <stdlib.h>

/* What would be printed; the caller frees it. */
static inline char *printed(tsr_diags *diags) {
  char *text = NULL;
  size_t length;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(diags, stream);
  fclose(stream);
  return text;
}

/* The folder of real mesh graph descriptors, or NULL (said so) where there is none. */
static inline const char *real_descriptors(tsr_arena *arena) {
  const char *shared = getenv("TESSERA_SHARED");
  const char *path =
      shared ? tsr_arena_printf(arena, "%s/tt/mgd", shared) : TSR_SOURCE_ROOT "/../shared/tt/mgd";
  if (tsr_file_exists(path)) return path;
  printf("skipped: no folder '%s' (set TESSERA_SHARED)\n", path);
  return NULL;
}

static inline int keep_all(const struct dirent *entry) { return entry->d_name[0] != '.'; }

#endif
