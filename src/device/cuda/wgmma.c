// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/wgmma.h"
#include <stdlib.h>
#include <string.h>

bool cuda_wgmma_is_wanted(void) {
  const char *value = getenv("TESSERA_CUDA_WGMMA");
  return value && *value && strcmp(value, "0") != 0;
}
