// SPDX-License-Identifier: Apache-2.0
#include "train/data_paths.h"
#include "base/file_read.h"
#include <string.h>

enum { FOLDERS_ABOVE = 3 };

/* Whether a path exists, or the index of Megatron's pair that it begins; of a pattern, the folder
 * before its first wildcard. */
static bool is_there(tsr_arena *arena, const char *path) {
  size_t plain = strcspn(path, "*?[");
  if (!path[plain])
    return tsr_file_exists(path) || tsr_file_exists(tsr_arena_printf(arena, "%s.idx", path));
  char *start = tsr_arena_strndup(arena, path, plain);
  char *slash = strrchr(start, '/');
  if (slash) *slash = 0;
  return tsr_file_exists(slash ? (*start ? start : "/") : ".");
}

static const char *
find(tsr_arena *arena, const tsr_config *c, const char *path, bool *ret_is_above) {
  *ret_is_above = false;
  if (!path[0]) return NULL;
  if (is_there(arena, path)) return path;
  const char *folder = tsr_path_folder(arena, c->file);
  int above = strchr(path, '/') ? FOLDERS_ABOVE : 0;
  for (int up = 0; up <= above && path[0] != '/'; up++) {
    const char *tried = tsr_path_join(arena, folder, path);
    *ret_is_above = up > 0;
    if (is_there(arena, tried)) return tried;
    folder = tsr_path_parent(arena, folder);
  }
  return NULL;
}

const char *tsr_data_path_find(tsr_arena *arena, const tsr_config *c, const char *path) {
  bool is_above;
  return find(arena, c, path, &is_above);
}

const char *tsr_data_path(tsr_arena *arena, const tsr_config *c, const char *path) {
  const char *found = tsr_data_path_find(arena, c, path);
  return found ? found : path;
}

static void report(
    tsr_arena *arena, const tsr_config *c, const char *path, tsr_location location,
    tsr_diags *diags) {
  bool is_above;
  const char *found = find(arena, c, path, &is_above);
  if (found && is_above)
    tsr_diag_note(
        diags, location, "'%s' is neither in the working folder nor beside %s: '%s' is read", path,
        c->file, found);
}

void tsr_data_paths_report(tsr_arena *arena, const tsr_config *c, tsr_diags *diags) {
  const tsr_config_training *t = &c->training;
  for (int i = 0; i < t->data_sources_count; i++)
    report(arena, c, t->data_sources[i].path, t->data_sources[i].location, diags);
  struct {
    const char *path, *key;
  } others[] = {
      {t->data_sources_count ? "" : t->data_path, "training_config.data_path"},
      {t->validation_path, "training_config.validation_path"},
      {t->tokenizer_path, "training_config.tokenizer_path"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    report(arena, c, others[i].path, tsr_config_location(c, others[i].key), diags);
}
