// SPDX-License-Identifier: Apache-2.0
/* Plugins: shared libraries with one versioned table of functions, which the program loads when it
 * needs what they link (MPI, CUDA) and runs without where they are not. */
#ifndef TSR_BASE_PLUGIN_H
#define TSR_BASE_PLUGIN_H
#include "base/arena.h"
#include <stddef.h>

/* What every plugin's table begins with. */
typedef struct {
  int abi;      /* of the program that it was built with */
  size_t bytes; /* of the whole table */
  const char *name;
} tsr_plugin_head;

typedef struct {
  const char *name;  /* the plugin is libtessera-NAME.so */
  const char *entry; /* the symbol of its table */
  int abi;
  size_t bytes;
} tsr_plugin_request;

/* The table, or NULL: then each path that was tried with its reason, "path: reason" with eight
 * spaces and a newline before it. Looked for in the folders of TESSERA_PLUGIN_PATH (with colons),
 * beside the program, and in ../lib/tessera-train. `ret_path`: where it was found. What was loaded
 * stays loaded: such libraries leave threads, handlers and keys behind that must not lose their
 * code. */
const void *tsr_plugin_find(
    tsr_arena *arena, const tsr_plugin_request *request, const char **ret_path,
    const char **ret_tried);

#endif
