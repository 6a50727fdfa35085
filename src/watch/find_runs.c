// SPDX-License-Identifier: Apache-2.0
#include "watch/find_runs.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LEVELS = 3, ENTRIES_MAX = 10000 /* of a folder; one of data may have millions */ };

static bool has(tsr_arena *arena, const char *folder, const char *name) {
  return tsr_file_exists(tsr_path_join(arena, folder, name));
}

static void add(tsr_found_runs *runs, const char *path) {
  if (runs->count < TSR_FOUND_RUNS_MAX) runs->paths[runs->count++] = path;
  else runs->is_cut = true;
}

static bool is_real_folder(const char *path) {
  struct stat info;
  return !lstat(path, &info) && S_ISDIR(info.st_mode);
}

static void find_in(tsr_arena *arena, const char *folder, int levels, tsr_found_runs *runs) {
  if (has(arena, folder, "metrics.jsonl")) {
    add(runs, folder);
    return;
  }
  DIR *d = levels ? tsr_disk_open_folder(folder) : NULL;
  if (!d) return;
  struct dirent *e;
  for (int i = 0; i < ENTRIES_MAX && (e = readdir(d)); i++) {
    if (e->d_name[0] == '.') continue;
    if (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN) continue;
    const char *path = tsr_path_join(arena, folder, e->d_name);
    if (is_real_folder(path)) find_in(arena, path, levels - 1, runs);
  }
  closedir(d);
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void tsr_find_runs(tsr_arena *arena, const char *path, tsr_found_runs *ret) {
  *ret = (tsr_found_runs){0};
  if (!tsr_file_exists(path)) return;
  if (!tsr_file_is_folder(path)) add(ret, path);
  else find_in(arena, path, LEVELS, ret);
  qsort(ret->paths, (size_t)ret->count, sizeof *ret->paths, by_name);
}
