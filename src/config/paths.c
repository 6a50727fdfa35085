// SPDX-License-Identifier: Apache-2.0
/* Where the files are that a configuration names. */
#include "base/file_read.h"
#include "base/uri.h"
#include "config/config_internal.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { PARENTS_MAX = 16 };

char *tsr_include_expand(tsr_arena *arena, const char *name, const char **ret_unset) {
  char *out = tsr_arena_strdup(arena, "");
  *ret_unset = NULL;
  while (*name) {
    const char *open = strstr(name, "${"), *end = open ? open + 2 : NULL;
    while (end && (isalnum((unsigned char)*end) || *end == '_')) end++;
    if (!open || *end != '}' || end == open + 2) break;
    char *variable = tsr_arena_strndup(arena, open + 2, (size_t)(end - open) - 2);
    const char *value = getenv(variable);
    if (!value && !*ret_unset) *ret_unset = variable;
    if (!value) value = tsr_arena_printf(arena, "${%s}", variable);
    out = tsr_arena_printf(arena, "%s%.*s%s", out, (int)(open - name), name, value);
    name = end + 1;
  }
  return tsr_arena_printf(arena, "%s%s", out, name);
}

static const char *find_in_folder(tsr_arena *arena, const char *name, const char *folder) {
  char *path =
      !strcmp(folder, ".") ? tsr_arena_strdup(arena, name) : tsr_path_join(arena, folder, name);
  return tsr_file_exists(path) ? path : NULL;
}

/* The names that a path may go by: itself, or the tails of "${UNSET}/a/b.yaml", a/b.yaml and
 * b.yaml; and a bare name also in tt-train's model_configs. */
static const char *find_names(tsr_arena *arena, const char *path, bool tails, const char *folder) {
  const char *found = NULL;
  if (!tails) found = find_in_folder(arena, path, folder);
  for (const char *at = tails ? strchr(path, '/') : NULL; at && !found; at = strchr(at, '/'))
    if (*++at) found = find_in_folder(arena, at, folder);
  if (!found && !strchr(path, '/'))
    found = find_in_folder(arena, tsr_path_join(arena, "model_configs", path), folder);
  return found;
}

/* In the working directory as tt-train does it, then in `folder` and above it. */
static const char *
find_in_parents(tsr_arena *arena, const char *path, bool tails, const char *folder) {
  const char *here = tails ? NULL : find_in_folder(arena, path, ".");
  if (here) return here;
  for (int i = 0; i < PARENTS_MAX; i++) {
    const char *found = find_names(arena, path, tails, folder);
    if (found) return found;
    if (!strcmp(folder, "/")) break;
    folder = tsr_path_parent(arena, folder);
  }
  return find_names(arena, path, tails, ".");
}

bool tsr_config_find_file(
    tsr_arena *arena, const char *name, const char *from_file, tsr_location location,
    const char **ret_path, tsr_diags *diags) {
  const char *unset, *found = NULL, *path = tsr_include_expand(arena, name, &unset);
  *ret_path = NULL;
  if (!tsr_uri_path(arena, path, location, &path, diags)) return false;
  if (*path == '/') found = tsr_file_exists(path) ? path : NULL;
  else if (*path)
    found = find_in_parents(arena, path, unset != NULL, tsr_path_folder(arena, from_file));
  *ret_path = found;
  if (found) return true;
  tsr_diag_error(diags, location, "cannot find '%s'", path);
  if (unset)
    tsr_diag_hint(
        diags, "the environment variable %s is not set, and no tail of the path exists either",
        unset);
  if (*path != '/')
    tsr_diag_hint(
        diags, "looked in the working directory, beside %s and in the folders above it", from_file);
  return false;
}
