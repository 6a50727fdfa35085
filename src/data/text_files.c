// SPDX-License-Identifier: Apache-2.0
#include "data/text_files.h"
#include "base/file_read.h"
#include <errno.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>

static const size_t FILE_BYTES_MAX = (size_t)1 << 40;
static const size_t QUOTED_BYTES_MAX = (size_t)1 << 24; /* quoting copies the text */

typedef struct {
  tsr_text_file *items;
  int count, capacity;
} file_list;

bool tsr_text_file_check(const char *path, tsr_location location, tsr_diags *diags) {
  struct stat info;
  if (stat(path, &info) || !S_ISCHR(info.st_mode)) return true;
  return tsr_diag_error(
      diags, location, "cannot read '%s': it is a character device, not a file", path);
}

static bool is_pattern(const char *path) {
  /* A file whose name holds a bracket is a file all the same. */
  return strpbrk(path, "*?[") && !tsr_file_exists(path);
}

bool tsr_text_files_find(
    tsr_arena *arena, const char *pattern, tsr_location location, const char ***ret_paths,
    int *ret_count, tsr_diags *diags) {
  glob_t found = {0};
  bool one = !is_pattern(pattern);
  int status = one ? 0 : glob(pattern, 0, NULL, &found);
  if (status == GLOB_NOMATCH)
    return tsr_diag_error(diags, location, "no file matches '%s'", pattern);
  if (status) return tsr_file_cannot("list", pattern, errno, location, diags);
  *ret_count = one ? 1 : (int)found.gl_pathc;
  *ret_paths = tsr_arena_array(arena, const char *, *ret_count);
  for (int i = 0; i < *ret_count; i++)
    (*ret_paths)[i] = tsr_arena_strdup(arena, one ? pattern : found.gl_pathv[i]);
  if (!one) globfree(&found);
  return true;
}

static bool add_file(
    tsr_arena *arena, file_list *list, const char *path, tsr_location location, tsr_diags *diags) {
  tsr_text_file file = {.path = path};
  char *text;
  if (!tsr_text_file_check(path, location, diags)) return false;
  if (!tsr_file_read(arena, path, FILE_BYTES_MAX, location, &text, &file.length, diags))
    return false;
  file.text = text;
  tsr_arena_grow(arena, (void **)&list->items, sizeof file, list->count, &list->capacity);
  list->items[list->count++] = file;
  return true;
}

bool tsr_text_files_read(
    tsr_arena *arena, const char *const *patterns, int count, tsr_location location,
    tsr_text_file **ret_files, int *ret_count, tsr_diags *diags) {
  file_list list = {0};
  bool ok = true;
  for (int i = 0; i < count; i++) {
    const char **paths;
    int found = 0;
    ok &= tsr_text_files_find(arena, patterns[i], location, &paths, &found, diags);
    for (int k = 0; k < found; k++) ok &= add_file(arena, &list, paths[k], location, diags);
  }
  *ret_files = list.items;
  *ret_count = list.count;
  return ok;
}

tsr_location
tsr_text_file_place(const tsr_text_file *file, size_t offset, int length, tsr_diags *diags) {
  tsr_location location = {.file = file->path, .line = 1, .length = length};
  const char *start = file->text, *end = file->text + offset;
  for (const char *at; (at = memchr(start, '\n', (size_t)(end - start))); start = at + 1)
    location.line++;
  location.col = (int)(end - start) + 1;
  if (file->length <= QUOTED_BYTES_MAX)
    tsr_diags_source(diags, file->path, file->text, file->length);
  return location;
}
