// SPDX-License-Identifier: Apache-2.0
/* Inside gemm.c: what cuBLASLt is told of a GEMM, and the algorithm that computes it. */
#ifndef TSR_KERNELS_CUDA_GEMM_PLAN_H
#define TSR_KERNELS_CUDA_GEMM_PLAN_H
#include "kernels/cuda/gemm.h"
#include <cublasLt.h>

enum { GEMM_WORKSPACE_BYTES = 32 << 20, GEMM_WHY_BYTES = 512 };

/* What a plan is found by: the algorithm depends on all but the strides and the batch. */
typedef struct {
  int64_t M, N, K;
  int32_t type, c_type, a_transposed, b_transposed, has_plus, has_bias, has_before;
  int64_t a_stride, b_stride, c_stride;
  int64_t count, a_step, b_step, c_step, bias_step; /* of a batch, else 0 */
} gemm_key;

typedef struct gemm_plan {
  struct gemm_plan *next;
  gemm_key key;
  cublasLtMatmulDesc_t gemm;
  cublasLtMatrixLayout_t first, second, result;
  cublasLtMatmulAlgo_t algorithm;
  bool refused; /* the algorithm does not run with these strides or as this batch, or has not with
                   an address */
} gemm_plan;

enum { GEMM_BUCKETS = 1024 };
struct tsr_cuda_blas {
  cublasLtHandle_t handle;
  void *workspace;
  bool fast;
  char why[GEMM_WHY_BYTES];
  gemm_plan *plans[GEMM_BUCKETS];
};

/* Into `why`; false. */
bool gemm_fail(tsr_cuda_blas *blas, const char *what, cublasStatus_t status);

/* Elements of an operand that lie one after the other. */
static inline int64_t gemm_contiguous_a(const tsr_cuda_gemm *p) {
  return p->a.transposed ? p->M : p->K;
}
static inline int64_t gemm_contiguous_b(const tsr_cuda_gemm *p) {
  return p->b.transposed ? p->K : p->N;
}
static inline int64_t gemm_type_bytes(tsr_cuda_type type) { return type == TSR_CUDA_F32 ? 4 : 2; }

/* The i-th GEMM of a batch. */
tsr_cuda_gemm gemm_of_batch(const tsr_cuda_gemm *p, int i);

/* The same GEMM with operands that have no gaps: of each shape it is this one whose algorithm is
 * chosen. */
tsr_cuda_gemm gemm_canonical(const tsr_cuda_gemm *p);

/* Makes a plan, or finds the one that was made. NULL: the library has no algorithm for the shape,
 * or there is no memory. */
gemm_plan *gemm_find_plan(tsr_cuda_blas *blas, const tsr_cuda_gemm *p);
void gemm_destroy_plans(tsr_cuda_blas *blas);

#endif
