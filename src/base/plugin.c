// SPDX-License-Identifier: Apache-2.0
#include "base/plugin.h"
#include "base/file_read.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The message of dlerror, without the path before it. */
static const char *load_reason(tsr_arena *arena, const char *path) {
  const char *text = dlerror();
  size_t length = strlen(path);
  bool named = !strncmp(text, path, length) && !strncmp(text + length, ": ", 2);
  return tsr_arena_strdup(arena, named ? text + length + 2 : text);
}

/* The table of the plugin in that file, or NULL with the reason. */
static const void *load(
    tsr_arena *arena, const char *path, const tsr_plugin_request *request,
    const char **ret_reason) {
  if (access(path, R_OK)) {
    *ret_reason = errno == ENOENT ? "no such file" : tsr_arena_strdup(arena, strerror(errno));
    return NULL;
  }
  void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!module) return *ret_reason = load_reason(arena, path), NULL;
  const tsr_plugin_head *head = dlsym(module, request->entry);
  if (!head) *ret_reason = tsr_arena_printf(arena, "it has no %s", request->entry);
  else if (head->abi != request->abi)
    *ret_reason = tsr_arena_printf(
        arena, "of another build: its interface is number %d, this program's is number %d",
        head->abi, request->abi);
  else if (head->bytes != request->bytes)
    *ret_reason = tsr_arena_printf(
        arena, "of another build: its table has %zu bytes, this program's has %zu", head->bytes,
        request->bytes);
  else if (strcmp(head->name, request->name))
    *ret_reason = tsr_arena_printf(arena, "it is the plugin of '%s'", head->name);
  else return head;
  return NULL;
}

/* The folders where plugins may be, in the order of the search; returns how many. */
static int list_folders(tsr_arena *arena, const char ***ret_folders) {
  int count = 0, capacity = 0;
  void *folders = NULL;
  const char *path = getenv("TESSERA_PLUGIN_PATH");
  while (path && *path) {
    size_t length = strcspn(path, ":");
    if (length) {
      tsr_arena_grow(arena, &folders, sizeof(char *), count, &capacity);
      ((const char **)folders)[count++] = tsr_arena_strndup(arena, path, length);
    }
    path += length + (path[length] == ':');
  }
  char program[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) {
    program[length] = 0;
    const char *own = tsr_path_folder(arena, program);
    tsr_arena_grow(arena, &folders, sizeof(char *), count + 1, &capacity);
    ((const char **)folders)[count++] = own;
    ((const char **)folders)[count++] =
        tsr_path_join(arena, tsr_path_folder(arena, own), "lib/tessera-train");
  }
  *ret_folders = folders;
  return count;
}

const void *tsr_plugin_find(
    tsr_arena *arena, const tsr_plugin_request *request, const char **ret_path,
    const char **ret_tried) {
  const char **folders;
  int count = list_folders(arena, &folders);
  const char *file = tsr_arena_printf(arena, "libtessera-%s.so", request->name);
  *ret_tried = "";
  for (int i = 0; i < count; i++) {
    const char *path = tsr_path_join(arena, folders[i], file), *reason = NULL;
    const void *table = load(arena, path, request, &reason);
    if (table) return *ret_path = path, table;
    *ret_tried = tsr_arena_printf(arena, "%s\n        %s: %s", *ret_tried, path, reason);
  }
  return NULL;
}
