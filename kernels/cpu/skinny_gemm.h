// SPDX-License-Identifier: Apache-2.0
/* Shared by the two kernels of a GEMM with few rows. */
#ifndef TSR_KERNELS_CPU_SKINNY_GEMM_H
#define TSR_KERNELS_CPU_SKINNY_GEMM_H
#include "kernels/cpu/level.h"

enum { SKINNY_ROWS_MAX = 32 }; /* rows of x for which w is read once */

/* y (R, N) = x (R, K) w (N, K)^T for R of at most SKINNY_ROWS_MAX, columns [begin, end), with the
 * rows of x in SIMD lanes. Only at instruction-set levels whose vectors have eight f32 or more. */
void LEVEL(skinny_gemm_lanes)(
    const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end);

#endif
