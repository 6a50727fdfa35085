// SPDX-License-Identifier: Apache-2.0
/* Which calls of GEMMs a task is made of. cuBLASLt's bits depend on a call's shape, so rows and
 * columns that an axis may split are computed in calls as large as the recipe's units, and sums
 * that an axis may split are made of one call a unit, added in the tree's order. Without units,
 * which is a mesh's default, a GEMM is one call. A classifier's GEMMs split the rows of a unit into
 * further calls (schedule/classifier_calls.h). The target sizes scratch with them, the plugin runs
 * them. */
#ifndef TSR_DEVICE_CUDA_GEMM_CALLS_H
#define TSR_DEVICE_CUDA_GEMM_CALLS_H
#include "device/arguments.h"

/* c (M, N) = a (M, K) b (K, N) of one leaf of the sum, in row_pieces x col_pieces pieces of one
 * shape, the rows of each in calls of `call_rows`, of which the last one may have fewer. Of
 * linear_dw, which adds up runs of rows, K is the rows of a call; the last one of a run may have
 * fewer. */
typedef struct {
  int64_t M, N, K, row_pieces, col_pieces, call_rows;
} cuda_gemm_calls;

/* `at`: of linear_dx, whose inputs are pairs, the first input of one; else 0. */
cuda_gemm_calls cuda_gemm_calls_of(const tsr_task_call *call, int at);
/* Whether several results are added in f32 and then rounded to half precision. */
bool cuda_matmul_is_wide(const tsr_task *task);
/* Bytes for copies of a call's operands (kernels/cuda/gemm.h), of the largest call; 0: all calls
 * are of operands without gaps that begin at multiples of 16 bytes, which no algorithm refuses. */
int64_t cuda_gemm_calls_scratch(const tsr_task_call *call);

#endif
