// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/wgmma.h"
#include "kernels/cuda/kernels.h"
#include <stdio.h>

bool cuda_wgmma_choose(const tsr_cuda_device *is, bool *ret_runs, char *why) {
  bool wanted = cuda_wgmma_is_wanted();
  *ret_runs = wanted && is->major == 9 && is->minor == 0 && tsr_cuda_has_wgmma();
  if (!wanted || *ret_runs) return true;
  snprintf(
      why, TSR_CUDA_WHY_BYTES,
      "sm_%d%d: TESSERA_CUDA_WGMMA needs a GPU of sm_90, code for sm_90a in the plugin, and a "
      "driver that encodes tensor maps\nunset TESSERA_CUDA_WGMMA",
      is->major, is->minor);
  return false;
}
