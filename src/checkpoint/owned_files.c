// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/owned_files.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "checkpoint/manifest.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

const char *const tsr_hf_side_files[] = {"tokenizer.json",         "tokenizer.model",
                                         "tokenizer_config.json",  "special_tokens_map.json",
                                         "chat_template.jinja",    "chat_template.json",
                                         "generation_config.json", NULL};

typedef enum { FOREIGN, BESIDE, TENSORS } kind; /* TENSORS: also manifests */

/* Whether the name is the pattern, in which # stands for one digit or more. */
static bool matches(const char *name, const char *pattern) {
  for (; *pattern; pattern++) {
    if (*pattern != '#') {
      if (*name++ != *pattern) return false;
      continue;
    }
    size_t digits = strspn(name, "0123456789");
    if (!digits) return false;
    name += digits;
  }
  return !*name;
}

static bool matches_one(const char *name, const char *const *patterns) {
  for (; *patterns; patterns++)
    if (matches(name, *patterns)) return true;
  return false;
}

static kind kind_of(const char *name) {
  static const char *const tensors[] = {TSR_MANIFEST_NAME,          "rank-#.safetensors",
                                        "history.safetensors",      "model.safetensors",
                                        "model-#-of-#.safetensors", NULL};
  static const char *const beside[] = {
      "config.yaml",
      "vocabulary.txt",
      "part-#.tmp",
      "part-#.json",
      "part-#.failed",
      "config.json",
      "model.safetensors.index.json",
      NULL};
  if (matches_one(name, tensors)) return TENSORS;
  return matches_one(name, beside) || matches_one(name, tsr_hf_side_files) ? BESIDE : FOREIGN;
}

static bool is_entry(const char *name) { return strcmp(name, ".") && strcmp(name, ".."); }

/* Which kinds of entries are in a folder; *ret_left is the first that is foreign or of a folder. */
static bool
look(tsr_arena *arena, const char *path, bool *ret_any, bool *ret_tensors, const char **ret_left) {
  DIR *folder = tsr_disk_open_folder(path);
  *ret_any = *ret_tensors = false;
  *ret_left = NULL;
  if (!folder) return false;
  for (struct dirent *e; (e = readdir(folder));) {
    if (!is_entry(e->d_name)) continue;
    *ret_any = true;
    *ret_tensors |= kind_of(e->d_name) == TENSORS;
    if (arena && (!*ret_left || strcmp(e->d_name, *ret_left) < 0))
      *ret_left = tsr_arena_strdup(arena, e->d_name);
  }
  closedir(folder);
  return true;
}

bool tsr_own_folder(const char *path) {
  bool any, tensors;
  const char *left;
  return look(NULL, path, &any, &tensors, &left) && (tensors || !any);
}

/* A folder that has the name of one of the files is left to the last step, which names it. */
static bool remove_kind(tsr_arena *arena, const char *path, kind which) {
  DIR *folder = tsr_disk_open_folder(path);
  bool ok = folder != NULL;
  struct stat info;
  for (struct dirent *e; ok && (e = readdir(folder));) {
    const char *file = tsr_path_join(arena, path, e->d_name);
    if (kind_of(e->d_name) != which || lstat(file, &info) || S_ISDIR(info.st_mode)) continue;
    ok = tsr_disk_remove(file);
  }
  int error = errno;
  if (folder) closedir(folder);
  errno = error;
  return ok;
}

bool tsr_own_files_remove(tsr_arena *arena, const char *path, bool made, const char **ret_left) {
  struct stat info;
  bool any, tensors;
  *ret_left = NULL;
  if (lstat(path, &info)) return false;
  if (!S_ISDIR(info.st_mode)) {
    *ret_left = "";
    return false;
  }
  if (!look(arena, path, &any, &tensors, ret_left)) return false;
  if ((made || tensors) &&
      !(remove_kind(arena, path, BESIDE) && remove_kind(arena, path, TENSORS))) {
    *ret_left = NULL;
    return false;
  }
  if (tsr_disk_remove_empty(path)) return *ret_left = NULL, true;
  int error = errno;
  look(arena, path, &any, &tensors, ret_left);
  if (error != ENOTEMPTY && error != EEXIST) *ret_left = NULL;
  errno = error;
  return false;
}

const char *tsr_own_files_reason(tsr_arena *arena, const char *left) {
  static const char reason[] = "was not written by this program";
  return *left ? tsr_arena_printf(arena, "stays: '%s' in it %s", left, reason)
               : tsr_arena_printf(arena, "stays: it %s", reason);
}
