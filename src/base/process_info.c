// SPDX-License-Identifier: Apache-2.0
#include "base/process_info.h"
#include "base/file_read.h"
#include <string.h>
#include <sys/stat.h>

enum { BYTES_MAX = 1 << 22 };

bool tsr_process_read(
    tsr_arena *arena, long pid, const char *what, char **ret_text, size_t *ret_length) {
  const char *path = tsr_arena_printf(arena, "/proc/%ld/%s", pid, what);
  return tsr_file_read(
      arena, path, BYTES_MAX, TSR_NOWHERE, ret_text, ret_length, tsr_diags_new(arena));
}

const char *tsr_process_variable(tsr_arena *arena, long pid, const char *name) {
  char *text;
  size_t length, n = strlen(name);
  if (!tsr_process_read(arena, pid, "environ", &text, &length)) return NULL;
  for (size_t at = 0; at < length; at += strlen(text + at) + 1)
    if (!strncmp(text + at, name, n) && text[at + n] == '=') return text + at + n + 1;
  return NULL;
}

bool tsr_process_runs_this_program(tsr_arena *arena, long pid) {
  struct stat mine, theirs;
  return !stat("/proc/self/exe", &mine) &&
         !stat(tsr_arena_printf(arena, "/proc/%ld/exe", pid), &theirs) &&
         mine.st_ino == theirs.st_ino && mine.st_dev == theirs.st_dev;
}

void tsr_process_program_hash(char ret_text[TSR_HASH_TEXT]) {
  tsr_arena *arena = tsr_arena_new();
  tsr_file_map map;
  memcpy(ret_text, "unknown", sizeof "unknown");
  if (tsr_file_map_open("/proc/self/exe", 0, TSR_NOWHERE, &map, tsr_diags_new(arena))) {
    tsr_hash_text(map.bytes, map.length, ret_text);
    tsr_file_map_close(&map);
  }
  tsr_arena_free(arena);
}
