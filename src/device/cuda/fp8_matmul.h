// SPDX-License-Identifier: Apache-2.0
/* GEMMs whose task quantises its operands to FP8 (schedule/fp8_operands.h), into `operands` of its
 * scratch (scratch.h). */
#ifndef TSR_DEVICE_CUDA_FP8_MATMUL_H
#define TSR_DEVICE_CUDA_FP8_MATMUL_H
#include "device/cuda/ops.h"

/* Quantises all operands. starts: of runs of rows of experts; NULL: none has any. */
void cuda_fp8_quantize(const cuda_call *c, void *operands, const int32_t *starts);

/* An operand from a unit of what is summed on; of weights of experts that of the first one. */
tsr_cuda_fp8_matrix cuda_fp8_matrix(const cuda_fp8_operand *operand, int64_t unit);

/* A GEMM of a task of sums (cuda_matmul_scratch), of inputs a and b over one unit of what they are
 * summed over. */
typedef struct {
  int a, b;
  int64_t unit;
  bool adds; /* to the sum before */
} cuda_fp8_call;
void cuda_fp8_gemm(const cuda_call *c, cuda_fp8_call of, void *into, tsr_cuda_type type);

#endif
