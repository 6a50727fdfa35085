// SPDX-License-Identifier: Apache-2.0
/* The hash of a rank's part of a tensor in the host's memory, by all threads of a pool. */
#ifndef TSR_DEVICE_CPU_PART_HASH_H
#define TSR_DEVICE_CPU_PART_HASH_H
#include "device/device.h"
#include "kernels/kernels.h"

uint64_t tsr_cpu_hash_part(const tsr_kernels *k, tsr_pool *pool, const tsr_hash_part *part);

#endif
