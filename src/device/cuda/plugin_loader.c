// SPDX-License-Identifier: Apache-2.0
/* Finds and opens libtessera-cuda.so. */
#include "device/cuda/plugin_abi.h"
#include <dlfcn.h>

bool tsr_cuda_has_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library) dlclose(library);
  return library;
}

const tsr_cuda_table *
tsr_cuda_find(tsr_arena *arena, const char **ret_path, const char **ret_tried) {
  const tsr_plugin_request request = {"cuda", TSR_CUDA_ENTRY, TSR_CUDA_ABI, sizeof(tsr_cuda_table)};
  const tsr_cuda_table *table = tsr_plugin_find(arena, &request, ret_path, ret_tried);
  if (!table || table->layout == TSR_CUDA_LAYOUT) return table;
  *ret_tried = tsr_arena_printf(
      arena, "\n        %s: of another build: its programs have another layout", *ret_path);
  return NULL;
}
