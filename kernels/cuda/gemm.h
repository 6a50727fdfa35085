// SPDX-License-Identifier: Apache-2.0
/* GEMMs, by cuBLASLt. Each shape's algorithm is chosen once, among those that the library's
 * heuristic proposes for operands without gaps, aligned as far as the shape alone ensures, and
 * without an epilogue. Its tile
 * and stages are pinned, and K is not split (policy fast leaves that to the library). It is kept
 * for all strides and addresses: those depend on the mesh, and the library would choose another one
 * for others. Where it refuses some, it computes on copies of the operands without gaps. A call of
 * the same shape then has the same bits, which is all that the contract on bits asks of it: sums
 * that an axis can split, and rows and columns that it splits, are made by calls whose shape is
 * fixed by the recipe (device/cuda/matmul.c). */
#ifndef TSR_KERNELS_CUDA_GEMM_H
#define TSR_KERNELS_CUDA_GEMM_H
#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_cuda_blas tsr_cuda_blas;

/* One operand: element (i, j) is data[i * stride + j], transposed data[j * stride + i]. */
typedef struct {
  const void *data;
  int64_t stride;
  bool transposed;
} tsr_cuda_matrix;

/* A batch: `count` GEMMs of one shape, each of whose operands begin so many elements behind those
 * of the one before it (0: all read the same); `plus` is then c. Its algorithm is that of one of
 * them, so the bits are; where that computes no batch, or not at these distances, they are as many
 * calls. count 0 or 1: it is one GEMM. */
typedef struct {
  int count;
  int64_t a, b, c, bias;
} tsr_cuda_batch;

/* c (M, N) = a (M, K) b (K, N). To a sum are added, before it is rounded, `plus` (M, N), which lies
 * as c does and may be c, and then the row `bias` (N). With `before` c is gelu (by tanh) of all
 * that, and `before` gets it, where c lies. plus, bias and before are of c's type; NULL: none. a
 * and b are of `type`; c too, or f32. `scratch`: tsr_cuda_gemm_scratch bytes, aligned to 256, for
 * copies of operands whose strides or addresses the algorithm refuses; NULL: a refusal is a
 * failure. */
typedef struct {
  int64_t M, N, K;
  tsr_cuda_type type, c_type;
  tsr_cuda_matrix a, b;
  void *c;
  int64_t c_stride;
  const void *plus, *bias;
  void *before;
  void *scratch;
  tsr_cuda_batch batch; /* none with `before` */
} tsr_cuda_gemm;

/* On the current device, with a workspace of its own. `fast`: GEMMs of f32 may be rounded to TF32.
 * `why` gets the reason of a failure (512 bytes). */
bool tsr_cuda_blas_open(bool fast, tsr_cuda_blas **ret_blas, char *why);
void tsr_cuda_blas_close(tsr_cuda_blas *blas);
/* Whether there is an algorithm for that shape and what is added. */
bool tsr_cuda_has_gemm(tsr_cuda_blas *blas, const tsr_cuda_gemm *p);
/* False: there is none, or the device is lost; tsr_cuda_blas_error returns why. */
bool tsr_cuda_run_gemm(tsr_cuda_blas *blas, tsr_cuda_stream stream, const tsr_cuda_gemm *p);
const char *tsr_cuda_blas_error(const tsr_cuda_blas *blas);

#ifdef __cplusplus
}
#endif
#endif
