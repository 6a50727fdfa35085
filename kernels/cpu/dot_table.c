// SPDX-License-Identifier: Apache-2.0
/* The table of a level whose GEMMs of bf16 have an instruction of their own; its other kernels are
 * those of the level below. */
#include "kernels/cpu/level.h"

#define OWN(name) .name = LEVEL(name),
#define SHARED(name) .name = BELOW(name),

const tsr_kernels LEVEL(table) = {
    .isa = TSR_LEVEL_NAME, TSR_SHARED_KERNEL_LIST(SHARED) TSR_DOT_KERNEL_LIST(OWN)};
