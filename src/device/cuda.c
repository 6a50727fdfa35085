#include "device/cuda.h"

const tsr_cuda_table *
tsr_cuda_find(tsr_arena *arena, const char **ret_path, const char **ret_tried) {
  const tsr_plugin_wish wish = {"cuda", TSR_CUDA_ENTRY, TSR_CUDA_ABI, sizeof(tsr_cuda_table)};
  return tsr_plugin_find(arena, &wish, ret_path, ret_tried);
}
