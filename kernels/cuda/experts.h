// SPDX-License-Identifier: Apache-2.0
/* The GPU's kernels of a mixture of experts: the math of kernels/kernels.h's, on device memory,
 * with the contract of kernels.h. How many rows an expert has is read from the plan on the device:
 * a launch has blocks for as many as there can be. S tokens, E experts, k choices of a token, slots
 * s * k + choice, R rows that there is room for. */
#ifndef TSR_KERNELS_CUDA_EXPERTS_H
#define TSR_KERNELS_CUDA_EXPERTS_H
#include "kernels/cuda/kernels.h"
#include "kernels/experts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- router.cu; the choice, counts and updates have the bits of the CPU's, and so have weights
 * and gradients but for the device's exp and log ---- */

/* Where a score or the bias is a NaN, *nan_place becomes the least of itself and `place`; NULL:
 * that is not wanted. Scratch: tsr_cuda_choose_experts_scratch bytes. */
void tsr_cuda_choose_experts(
    tsr_cuda_stream s, const tsr_choice *r, int32_t *experts, const float *scores,
    const float *bias, int64_t S, uint64_t place, uint64_t *nan_place, void *scratch);
void tsr_cuda_expert_weights(
    tsr_cuda_stream s, const tsr_choice_weights *w, float *weights, const float *scores,
    const int32_t *experts, int64_t S);
void tsr_cuda_expert_weights_backward(
    tsr_cuda_stream s, const tsr_choice_weights *w, float *dscores, const float *dweights,
    const float *scores, const int32_t *experts, int64_t S);

/* counts (runs, E): how often each expert occurs in each run of `each` numbers, `step` apart. With
 * a `digit` there is one run, and counts (2, E) are those modulo it, and the rest divided by it. */
typedef struct {
  int64_t runs, E, each, step;
  int digit;
} tsr_cuda_expert_counting;
void tsr_cuda_expert_counts(
    tsr_cuda_stream s, float *counts, const int32_t *experts, const tsr_cuda_expert_counting *of);
/* balance_backward of kernels.h; counts of runs of `each` tokens, or in digits (0: they are not);
 * factor * *more, NULL: 1. */
typedef struct {
  int64_t each;
  int digit;
  float factor;
  const float *more;
  bool normalizes;
} tsr_cuda_balance;
void tsr_cuda_balance_backward(
    tsr_cuda_stream s, float *dscores, const float *counts, const float *scores, int64_t S,
    int64_t E, const tsr_cuda_balance *b);
void tsr_cuda_router_z_backward(
    tsr_cuda_stream s, float *dlogits, const float *logits, int64_t S, int64_t E, float factor,
    const float *more);

/* Updates from counts (2, E) in digits: bias += rate where an expert has fewer tokens than the
 * mean, -= rate where it has more, less the mean of these changes where `centre`; and load =
 * counts. */
void tsr_cuda_expert_bias(
    tsr_cuda_stream s, float *bias, const float *counts, int64_t E, int digit, double rate,
    bool centre, const float *clip);
void tsr_cuda_expert_load(
    tsr_cuda_stream s, float *load, const float *counts, int64_t E, int digit, const float *clip);

/* ---- expert_plan.cu: the plan (R, 2) of kernels.h's expert_plan, of the same numbers: a counting
 * sort by passes whose result does not depend on timing. Scratch: tsr_cuda_expert_plan_scratch
 * bytes. ---- */
void tsr_cuda_expert_plan(
    tsr_cuda_stream s, const tsr_experts *e, const tsr_capacity *capacity, int32_t *plan,
    const int32_t *experts, const float *priority, int64_t S, int64_t R, void *scratch);

/* ---- expert_rows.cu: rows (R, C) of `type`, tokens (S, C) of `tokens` ---- */
/* Rows of x, each of its token, of `bytes` bytes; rows behind the last are 0. */
void tsr_cuda_permute_rows(
    tsr_cuda_stream s, void *rows, const void *x, const int32_t *plan, int64_t R, int64_t k,
    int64_t bytes);
/* rows + the biases (count, C) of their experts; rows behind the last are 0. `out` may be
 * `rows`. */
void tsr_cuda_expert_add(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *rows, const void *bias,
    const int32_t *plan, int64_t first, int64_t R, int64_t C);
/* row_of (slots): where a slot's row is, -1: not here. */
void tsr_cuda_expert_row_of(
    tsr_cuda_stream s, int32_t *row_of, const int32_t *plan, int64_t slots, int64_t R);
/* combine_rows of kernels.h, whose leaves are rounded to `type`. */
void tsr_cuda_combine_rows(
    tsr_cuda_stream s, const tsr_experts *e, tsr_cuda_type tokens, void *y, tsr_cuda_type type,
    const void *rows, const float *weights, const int32_t *plan, const int32_t *row_of, int64_t S,
    int64_t C);
/* combine_rows_backward of kernels.h; rows of drows behind the last are 0. */
void tsr_cuda_combine_rows_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *drows, float *dweights, tsr_cuda_type tokens,
    const void *dy, const void *rows, const float *weights, const int32_t *plan, int64_t S,
    int64_t k, int64_t R, int64_t C);

/* ---- expert_gemm.cu, expert_gemm_tensor.cu ---- */

/* Where the rows of each of `count` experts and each batch unit of `unit_slots` slots begin in the
 * plan: starts (count * units + 1). tiles (count + 1), or NULL: how many tiles of tile_rows rows
 * the experts before have. */
typedef struct {
  int64_t first, count, units, unit_slots, R;
  int64_t tile_rows;
} tsr_cuda_expert_segments;
void tsr_cuda_find_expert_segments(
    tsr_cuda_stream s, int32_t *starts, int32_t *tiles, const int32_t *plan,
    const tsr_cuda_expert_segments *of);

/* A GEMM for each expert, of the rows that it has. In half precision the tensor cores multiply 16
 * elements of the sum at once, in f32 each is one fused multiplication and addition. Either way an
 * element is one chain in the order of what is summed, which depends on nothing else.
 *   FORWARD  c (rows, N) = a (rows, K) w[e] (N, K)^T
 *   DX       c (rows, N) = a (rows, K) w[e] (K, N)
 *   DW       c[e] (M, N) = a (rows, M)^T b (rows, N), over the rows of the batch units [first_unit,
 *            end_unit) of all `units`; each begins a step of the tensor cores; `adds`: added to c
 * Operands, and c of FORWARD and DX, are of `type`, or that c is f32. Rows of c behind the last are
 * left alone. */
typedef enum {
  TSR_CUDA_EXPERT_FORWARD,
  TSR_CUDA_EXPERT_DX,
  TSR_CUDA_EXPERT_DW
} tsr_cuda_expert_form;
typedef struct {
  tsr_cuda_expert_form form;
  int64_t count, R; /* experts, and room for their rows */
  int64_t M, N, K;  /* M: of DW; K: of the others */
  const void *a, *b;
  int64_t a_stride, b_stride; /* elements from row to row */
  int64_t b_expert;           /* from w[e] to w[e + 1] */
  void *c;
  bool c_is_f32, adds;
  const int32_t *starts, *tiles; /* as above; of FORWARD and DX units are 1, of DW tiles NULL */
  int64_t units, first_unit, end_unit;
} tsr_cuda_expert_gemm;
void tsr_cuda_run_expert_gemm(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_gemm *p);
/* ---- expert_gemm_fp8.cu: the same of operands in FP8 (fp8_quantize.cu), whose b is in E4M3; c is
 * of `type`. The sum, its bits and the bound of its error are those of tsr_cuda_run_fp8_gemm, but
 * that each batch unit's rows begin a block. ---- */
typedef struct {
  tsr_cuda_expert_gemm of;   /* a, b, their strides and c_is_f32 are not read */
  tsr_cuda_fp8_matrix a, b;  /* of rows (R, K), or of their runs; of w[0] (N, K), or of runs */
  int64_t b_codes, b_scales; /* from w[e] to w[e + 1] */
  tsr_fp8_format a_format;
} tsr_cuda_expert_fp8_gemm;
void tsr_cuda_run_expert_fp8_gemm(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_fp8_gemm *p);

/* Zeros in rows of c (R, N) behind the last. */
void tsr_cuda_clear_expert_rows(
    tsr_cuda_stream s, tsr_cuda_type type, void *c, const int32_t *plan, int64_t R, int64_t N);
/* The gradient of biases, out (count, N): the sum of dy's rows over the same units, one chain. */
void tsr_cuda_expert_row_sums(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *dy, const int32_t *starts,
    int64_t count, int64_t N, int64_t units, int64_t first_unit, int64_t end_unit, bool adds);

#ifdef __cplusplus
}
#endif
#endif
