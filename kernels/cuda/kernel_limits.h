// SPDX-License-Identifier: Apache-2.0
/* What the GPU's kernels support, and the scratch memory that they need: pure functions, known
 * without a device and without nvcc. */
#ifndef TSR_KERNELS_CUDA_KERNEL_LIMITS_H
#define TSR_KERNELS_CUDA_KERNEL_LIMITS_H
#include "base/norm_grid.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sums over rows are made of runs of so many rows. */
enum { TSR_CUDA_ROWS = 32 };
/* The attention kernels keep a row of a head in registers: the widest head, of queries and keys or
 * of values. */
enum { TSR_CUDA_HEAD_MAX = 256 };

/* X(ID, name): the functions that elementwise.cu has; the host has all of TSR_UNARY_LIST. */
#define TSR_CUDA_UNARY_LIST(X)                                                                     \
  X(GELU, gelu_tanh)                                                                               \
  X(GELU_ERF, gelu_erf)                                                                            \
  X(RELU, relu)                                                                                    \
  X(RELU2, relu2)                                                                                  \
  X(SILU, silu)                                                                                    \
  X(TANH, tanh)                                                                                    \
  X(SIGMOID, sigmoid)
bool tsr_cuda_has_unary(tsr_unary kind);

/* ---- scratch, in bytes, of the functions in kernels.h ---- */

/* Of a GEMM (gemm.h) whose operands may be copied: a and b of `in` bytes an element, c of `out`;
 * with an epilogue its bias and the gelu's input, too. */
int64_t tsr_cuda_gemm_scratch(int64_t M, int64_t N, int64_t K, int in, int out, bool epilogue);
int64_t tsr_cuda_gemm_operand_bytes(int64_t elements, int64_t bytes); /* of one copy */
int64_t tsr_cuda_sum_rows_scratch(int64_t rows, int64_t C);
int64_t tsr_cuda_sum_scratch(int64_t n);
int64_t tsr_cuda_gradient_scratch(const tsr_norm_grid *grid);
int64_t tsr_cuda_embedding_scratch(int64_t R, int64_t v_begin, int64_t v_end);
int64_t tsr_cuda_attention_scratch(const tsr_attention *a);
/* Of S tokens' choices of experts in so many groups. */
int64_t tsr_cuda_choose_experts_scratch(int64_t S, int64_t groups);
/* Of `count` experts' rows of S tokens with k choices each. */
int64_t
tsr_cuda_expert_plan_scratch(int64_t count, int64_t S, int64_t k, const tsr_capacity *capacity);

/* A sum over the units of a sequence (attention_ring.cuh): a member's rows of partial results. */
typedef struct {
  int64_t lines;         /* (b,h), of dk and dv (b,g) */
  int64_t lines_at_once; /* of a launch */
  int64_t runs, unit;    /* a member's units, and the rows of one */
  int64_t sums, width;   /* floats of a row: out; dq; dk and dv. And with maximum and sum of out */
  int slots, temps;      /* kept and temporary partial results */
} tsr_cuda_ring_size;
tsr_cuda_ring_size tsr_cuda_ring_size_of(const tsr_attention_ring *r, tsr_attention_sum sum);
/* Bytes of an acc, and of the scratch of a step. */
int64_t tsr_cuda_attention_ring_acc(const tsr_attention_ring *r, tsr_attention_sum sum);
int64_t tsr_cuda_attention_ring_scratch(const tsr_attention_ring *r, tsr_attention_sum sum);

#ifdef __cplusplus
}
#endif

#endif
