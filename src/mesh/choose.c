// SPDX-License-Identifier: Apache-2.0
#include "mesh/choose.h"
#include "base/file_read.h"
#include <glob.h>
#include <string.h>

static const char *const metal_folders[] = {
    "tests/tt_metal/tt_fabric/custom_mesh_descriptors", "tt_metal/fabric/mesh_graph_descriptors"};
enum {
  METAL_FOLDERS = sizeof metal_folders / sizeof *metal_folders,
  FOLDERS_MAX = 16,
  RANKS_MAX = 1 << 24 /* of a made-up mesh; as many as a descriptor may have */
};

typedef struct {
  tsr_arena *arena;
  const tsr_mesh_request *request;
  tsr_diags *diags;
} chooser;

/* Who named a descriptor. */
typedef struct {
  const char *value, *source; /* "--mesh" */
  const char *folder;         /* that a relative path starts from */
  bool is_configured;         /* and from those above it, and from the working directory */
  tsr_location location;
} choice;

static bool is_given(const char *text) { return text && *text; }

const char *tsr_mesh_auto_name(int64_t devices) {
  if (devices == 8) return "t3k_1x8_mesh_graph_descriptor.textproto";
  if (devices == 32) return "galaxy_1x32_mesh_graph_descriptor.textproto";
  return NULL;
}

static void hint_other_ways(const chooser *c) {
  tsr_diag_hint(
      c->diags, "or name a file by --mesh, device_config.mesh_graph_descriptor or "
                "TT_MESH_GRAPH_DESC_PATH");
  tsr_diag_hint(c->diags, "or leave it out: 8 and 32 devices have a descriptor, others need none");
}

static bool metal_home_unset(const chooser *c, const choice *by) {
  tsr_diag_error(
      c->diags, by->location,
      "TT_METAL_HOME is not set, but the mesh descriptor '%s' (from %s) needs it", by->value,
      by->source);
  tsr_diag_hint(c->diags, "export TT_METAL_HOME=/path/to/tt-metal");
  hint_other_ways(c);
  return false;
}

/* The rest of a value behind $TT_METAL_HOME, or NULL when it does not start so. */
static const char *behind_variable(const char *value) {
  static const char *const forms[] = {"$TT_METAL_HOME", "${TT_METAL_HOME}"};
  for (int i = 0; i < 2; i++) {
    size_t length = strlen(forms[i]);
    if (!strncmp(value, forms[i], length) && (value[length] == '/' || !value[length]))
      return value + length + (value[length] == '/');
  }
  return NULL;
}

/* Characters that a pattern of glob(3) would take for more than themselves. */
static const char *quote_pattern(tsr_arena *arena, const char *text) {
  char *quoted = tsr_arena_array(arena, char, 2 * strlen(text) + 1), *to = quoted;
  for (; *text; text++) {
    if (strchr("*?[\\", *text)) *to++ = '\\';
    *to++ = *text;
  }
  return quoted;
}

/* The name in one of tt-train's examples for several hosts, or NULL. */
static const char *find_in_examples(const chooser *c, const char *name) {
  glob_t found = {0};
  const char *path = NULL;
  const char *pattern = tsr_arena_printf(
      c->arena, "%s/tt-train/sources/examples/python/multihost/*/configurations/%s",
      quote_pattern(c->arena, c->request->tt_metal_home), quote_pattern(c->arena, name));
  if (!glob(pattern, 0, NULL, &found) && found.gl_pathc)
    path = tsr_arena_strdup(c->arena, found.gl_pathv[0]);
  globfree(&found);
  return path;
}

/* The name in $TT_METAL_HOME's folders, or NULL. */
static const char *find_in_metal(const chooser *c, const char *name) {
  if (!is_given(c->request->tt_metal_home)) return NULL;
  for (int i = 0; i < METAL_FOLDERS; i++) {
    const char *path =
        tsr_arena_printf(c->arena, "%s/%s/%s", c->request->tt_metal_home, metal_folders[i], name);
    if (tsr_file_exists(path)) return path;
  }
  return find_in_examples(c, name);
}

static const char *find_shipped(const chooser *c, const char *name) {
  if (!is_given(c->request->shipped_folder)) return NULL;
  const char *path = tsr_path_join(c->arena, c->request->shipped_folder, name);
  return tsr_file_exists(path) ? path : NULL;
}

static const char *find_known(const chooser *c, const char *name) {
  const char *path = find_shipped(c, name);
  return path ? path : find_in_metal(c, name);
}

static bool not_found(const chooser *c, const choice *by, const char *first) {
  tsr_diag_error(
      c->diags, by->location, "mesh descriptor '%s' not found (from %s)", by->value, by->source);
  const char *searched = tsr_arena_printf(c->arena, "looked for '%s'", first);
  if (by->value[0] != '/' && by->is_configured)
    searched = tsr_arena_printf(c->arena, "%s, in the folders above it", searched);
  if (by->value[0] != '/' && is_given(c->request->shipped_folder))
    searched = tsr_arena_printf(c->arena, "%s, in '%s'", searched, c->request->shipped_folder);
  if (by->value[0] != '/' && is_given(c->request->tt_metal_home))
    searched = tsr_arena_printf(
        c->arena, "%s and in the folders of descriptors of '%s'", searched,
        c->request->tt_metal_home);
  tsr_diag_hint(c->diags, "%s", searched);
  if (by->value[0] != '/' && !is_given(c->request->tt_metal_home))
    tsr_diag_hint(c->diags, "with TT_METAL_HOME set, tt-metal's own descriptors are searched too");
  hint_other_ways(c);
  return false;
}

/* As other files that a configuration names; NULL: nowhere. */
static const char *find_above(const chooser *c, const choice *by) {
  const char *folder = by->folder;
  for (int i = 0; i < FOLDERS_MAX && strcmp(folder, "/"); i++) {
    folder = tsr_path_parent(c->arena, folder);
    const char *path = tsr_path_join(c->arena, folder, by->value);
    if (tsr_file_exists(path)) return path;
  }
  return tsr_file_exists(by->value) ? by->value : NULL;
}

/* The path of a value that is not `auto`, or NULL after an error. */
static const char *find_named(const chooser *c, const choice *by) {
  const char *rest = behind_variable(by->value);
  if (rest && !is_given(c->request->tt_metal_home)) {
    metal_home_unset(c, by);
    return NULL;
  }
  const char *path = rest ? tsr_path_join(c->arena, c->request->tt_metal_home, rest)
                          : tsr_path_join(c->arena, by->folder, by->value);
  if (tsr_file_exists(path)) return path;
  const char *found = NULL;
  if (!rest && by->value[0] != '/') {
    if (by->is_configured) found = find_above(c, by);
    if (!found) found = find_known(c, by->value);
    if (!found && !strchr(by->value, '.'))
      found = find_known(c, tsr_arena_printf(c->arena, "%s.textproto", by->value));
  }
  if (!found) not_found(c, by, path);
  return found;
}

/* The path for `auto`, or NULL after an error. */
static const char *find_automatic(const chooser *c, const choice *by) {
  const char *name = tsr_mesh_auto_name(c->request->devices);
  if (!name) {
    tsr_diag_error(
        c->diags, by->location,
        "no mesh descriptor is chosen by itself for %lld device%s (%s: auto)",
        (long long)c->request->devices, c->request->devices == 1 ? "" : "s", by->source);
    tsr_diag_hint(c->diags, "8 devices become %s", tsr_mesh_auto_name(8));
    tsr_diag_hint(c->diags, "32 devices become %s", tsr_mesh_auto_name(32));
    return NULL;
  }
  const char *path = find_in_metal(c, name);
  if (!path) path = find_shipped(c, name);
  if (path) return path;
  choice named = {.value = name, .source = by->source, .folder = ".", .location = by->location};
  if (is_given(c->request->tt_metal_home)) not_found(c, &named, name);
  else metal_home_unset(c, &named);
  return NULL;
}

static bool
read_choice(const chooser *c, const choice *by, tsr_mesh **ret_mesh, const char **ret_why) {
  bool automatic = !strcmp(by->value, "auto");
  const char *path = automatic ? find_automatic(c, by) : find_named(c, by);
  if (!path) return false;
  *ret_why = automatic ? tsr_arena_printf(
                             c->arena, "mesh: %s (%s: auto, for %lld devices)", path, by->source,
                             (long long)c->request->devices)
                       : tsr_arena_printf(c->arena, "mesh: %s (from %s)", path, by->source);
  return tsr_mesh_read(c->arena, path, by->location, ret_mesh, c->diags);
}

/* Point 4 if no descriptor was named: the path, or NULL when there is none to choose. */
static const char *find_by_count(const chooser *c, const char **ret_why) {
  const tsr_mesh_request *w = c->request;
  const char *name = tsr_mesh_auto_name(w->devices);
  if (!name) return NULL;
  const char *path = find_in_metal(c, name), *where = "from TT_METAL_HOME";
  if (!path && w->ndim == 2 && w->dims[0] == 1) {
    path = find_shipped(c, name);
    where = "shipped";
  }
  *ret_why = tsr_arena_printf(
      c->arena, "mesh: %s (for %lld devices, %s)", path ? path : name, (long long)w->devices,
      where);
  return path;
}

static tsr_mesh *make_up(const chooser *c, const char **ret_why) {
  const tsr_mesh_request *w = c->request;
  int line[1] = {(int)w->devices};
  const int *dims = w->ndim ? w->dims : line;
  int ndim = w->ndim ? w->ndim : 1;
  *ret_why = tsr_arena_printf(
      c->arena, "mesh: none given; generated %s %s as %s", tsr_text_count(w->devices).text,
      w->arch == TSR_ARCH_CUDA ? (w->devices == 1 ? "GPU" : "GPUs")
                               : (w->devices == 1 ? "CPU rank" : "CPU ranks"),
      tsr_mesh_dims_text(c->arena, dims, ndim));
  return tsr_mesh_make(c->arena, w->arch, dims, ndim);
}

bool tsr_mesh_choose(
    tsr_arena *arena, const tsr_mesh_request *request, tsr_mesh **ret_mesh, const char **ret_why,
    tsr_diags *diags) {
  chooser c = {arena, request, diags};
  *ret_mesh = NULL;
  *ret_why = "";
  choice by = {.folder = "."};
  if (is_given(request->option)) {
    by.value = request->option;
    by.source = "--mesh";
  } else if (is_given(request->config_value)) {
    by.value = request->config_value;
    by.source = "device_config.mesh_graph_descriptor";
    by.folder = is_given(request->config_file) ? tsr_path_folder(arena, request->config_file) : ".";
    by.is_configured = true;
    by.location = request->config_place;
  } else if (is_given(request->environment)) {
    by.value = request->environment;
    by.source = "TT_MESH_GRAPH_DESC_PATH";
  }
  if (by.value) return read_choice(&c, &by, ret_mesh, ret_why);
  const char *path = find_by_count(&c, ret_why);
  if (path) return tsr_mesh_read(arena, path, TSR_NOWHERE, ret_mesh, diags);
  if (request->devices > RANKS_MAX)
    return tsr_diag_error(
        diags, by.location, "a mesh of %s ranks; at most %s", tsr_text_count(request->devices).text,
        tsr_text_count(RANKS_MAX).text);
  *ret_mesh = make_up(&c, ret_why);
  return true;
}
