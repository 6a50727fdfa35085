// SPDX-License-Identifier: Apache-2.0
/* The level's table of kernels. */
#include "kernels/cpu/level.h"

#define ENTRY(name) .name = LEVEL(name),
#define COUNT(name) +1

_Static_assert(
    sizeof(tsr_kernels) == sizeof(void *) * (1 TSR_KERNEL_LIST(COUNT)),
    "TSR_KERNEL_LIST names every kernel of tsr_kernels");

const tsr_kernels LEVEL(table) = {.isa = TSR_LEVEL_NAME, TSR_KERNEL_LIST(ENTRY)};
