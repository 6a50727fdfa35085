// SPDX-License-Identifier: Apache-2.0
#include "watch/find_runs.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LEVELS = 3, ENTRIES_MAX = 1 << 20 /* of a folder; one of data may have many millions */ };

/* Whether `file` exists, which has the metrics of the run at `path`. */
static bool add(tsr_arena *arena, const char *path, const char *file, tsr_found_runs *runs) {
  struct stat info;
  if (stat(file, &info)) return false;
  tsr_arena_grow(arena, (void **)&runs->items, sizeof *runs->items, runs->count, &runs->capacity);
  runs->items[runs->count++] =
      (tsr_found_run){path, (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec};
  return true;
}

static bool is_real_folder(const char *path) {
  struct stat info;
  return !lstat(path, &info) && S_ISDIR(info.st_mode);
}

static void find_in(tsr_arena *arena, const char *folder, int levels, tsr_found_runs *runs) {
  if (add(arena, folder, tsr_path_join(arena, folder, "metrics.jsonl"), runs)) return;
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

void tsr_find_runs(tsr_arena *arena, const char *path, tsr_found_runs *runs) {
  if (!tsr_file_is_folder(path)) add(arena, path, path, runs);
  else find_in(arena, path, LEVELS, runs);
}

/* ---- order ---- */

static int by_name(const void *a, const void *b) {
  return strcmp(((const tsr_found_run *)a)->path, ((const tsr_found_run *)b)->path);
}

static int by_time(const void *a, const void *b) {
  double first = ((const tsr_found_run *)a)->changed, other = ((const tsr_found_run *)b)->changed;
  return first != other ? (first < other ? 1 : -1) : by_name(a, b);
}

void tsr_found_runs_sort_by_time(tsr_found_runs *runs) {
  if (runs->count) qsort(runs->items, (size_t)runs->count, sizeof *runs->items, by_time);
}

void tsr_found_runs_sort_by_name(tsr_found_runs *runs, int count) {
  if (count) qsort(runs->items, (size_t)count, sizeof *runs->items, by_name);
}
