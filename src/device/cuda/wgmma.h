// SPDX-License-Identifier: Apache-2.0
/* Whether attention runs on the kernels with wgmma: TESSERA_CUDA_WGMMA=1 asks for them, 0 or
 * nothing does not. The calls that they have are chosen by shape and recipe alone
 * (attention_wgmma_can of attention_shape.h), so that all ranks and meshes have the same; and what
 * the device is called, on which a recipe's bits depend, says that it is used. */
#ifndef TSR_DEVICE_CUDA_WGMMA_H
#define TSR_DEVICE_CUDA_WGMMA_H
#include "device/cuda/plugin_abi.h"
#include <stdbool.h>

bool cuda_wgmma_is_wanted(void);

/* In the plugin: whether this thread's device, which is `is`, runs it. False: it is asked for, and
 * the device cannot; `why` has TSR_CUDA_WHY_BYTES. */
bool cuda_wgmma_choose(const tsr_cuda_device *is, bool *ret_runs, char *why);

#endif
