// SPDX-License-Identifier: Apache-2.0
/* Sums of GEMMs whose task quantises its operands to FP8 (schedule/fp8_operands.h), into its
 * scratch (cuda_matmul_scratch). */
#ifndef TSR_DEVICE_CUDA_FP8_MATMUL_H
#define TSR_DEVICE_CUDA_FP8_MATMUL_H
#include "device/cuda/ops.h"

/* Quantises all operands. */
void cuda_fp8_quantize(const cuda_call *c);

/* A GEMM of inputs a and b over one unit of what they are summed over. */
typedef struct {
  int a, b;
  int64_t unit;
  bool adds; /* to the sum before */
} cuda_fp8_call;
void cuda_fp8_gemm(const cuda_call *c, cuda_fp8_call of, void *into, tsr_cuda_type type);

#endif
