// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/kernel_limits.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

bool gemm_fail(tsr_cuda_blas *b, const char *what, cublasStatus_t status) {
  snprintf(b->why, sizeof b->why, "%s: %s", what, cublasLtGetStatusName(status));
  return false;
}

bool tsr_cuda_blas_open(bool fast, tsr_cuda_blas **ret_blas, char *why) {
  tsr_cuda_blas *b = calloc(1, sizeof *b);
  if (!b) return snprintf(why, GEMM_WHY_BYTES, "no memory"), false;
  b->fast = fast;
  cublasStatus_t status = cublasLtCreate(&b->handle);
  cudaError_t error = status ? cudaSuccess : cudaMalloc(&b->workspace, GEMM_WORKSPACE_BYTES);
  if (!status && !error) return *ret_blas = b, true;
  snprintf(
      why, GEMM_WHY_BYTES, "cuBLASLt: %s",
      status ? cublasLtGetStatusName(status) : cudaGetErrorString(error));
  tsr_cuda_blas_close(b);
  return false;
}

void tsr_cuda_blas_close(tsr_cuda_blas *b) {
  if (!b) return;
  gemm_destroy_plans(b);
  cudaFree(b->workspace);
  if (b->handle) cublasLtDestroy(b->handle);
  free(b);
}

const char *tsr_cuda_blas_error(const tsr_cuda_blas *b) { return b->why; }

bool tsr_cuda_has_gemm(tsr_cuda_blas *b, const tsr_cuda_gemm *p) { return gemm_find_plan(b, p); }

/* ---- one call of the library ---- */

static cublasStatus_t point_epilogue(const gemm_plan *k, const tsr_cuda_gemm *p) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (p->bias)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
  if (!status && p->before)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->before, sizeof p->before);
  return status;
}

static cublasStatus_t
call(tsr_cuda_blas *b, tsr_cuda_stream stream, const gemm_plan *k, const tsr_cuda_gemm *p) {
  float one = 1, zero = 0;
  cublasStatus_t status = point_epilogue(k, p);
  if (status) return status;
  return cublasLtMatmul(
      b->handle, k->gemm, &one, p->b.data, k->first, p->a.data, k->second, p->plus ? &one : &zero,
      p->plus ? p->plus : p->c, k->result, p->c, k->result, &k->algorithm, b->workspace,
      GEMM_WORKSPACE_BYTES, stream);
}

/* ---- on copies of the operands ---- */

typedef struct {
  cudaStream_t stream;
  char *at; /* the rest of the scratch */
  cudaError_t error;
} copies;

/* rows x cols elements of `bytes`, `from` and `to` with other strides. */
static void copy(
    copies *c, void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
    int64_t cols, int64_t bytes) {
  if (c->error) return;
  c->error = cudaMemcpy2DAsync(
      to, (size_t)(to_stride * bytes), from, (size_t)(from_stride * bytes), (size_t)(cols * bytes),
      (size_t)rows, cudaMemcpyDeviceToDevice, c->stream);
}

static void *take(copies *c, int64_t elements, int64_t bytes) {
  void *at = c->at;
  c->at += tsr_cuda_gemm_operand_bytes(elements, bytes);
  return at;
}

static const void *
copy_matrix(copies *c, const tsr_cuda_matrix *m, int64_t rows, int64_t cols, int64_t bytes) {
  void *to = take(c, rows * cols, bytes);
  copy(c, to, cols, m->data, m->stride, rows, cols, bytes);
  return to;
}

/* An operand begins, and its rows do, at multiples of 16 bytes where their length is one. */
static bool is_at(const void *data, int64_t stride, tsr_cuda_type type, int64_t contiguous) {
  int64_t bytes = gemm_type_bytes(type), alignment = contiguous * bytes % 16 ? bytes : 16;
  return ((uintptr_t)data | (uint64_t)(stride * bytes)) % (uint64_t)alignment == 0;
}

/* Whether the operands are aligned as the algorithm relies on. */
static bool is_aligned(const tsr_cuda_gemm *p) {
  return is_at(p->a.data, p->a.stride, p->type, gemm_contiguous_a(p)) &&
         is_at(p->b.data, p->b.stride, p->type, gemm_contiguous_b(p)) &&
         is_at(p->c, p->c_stride, p->c_type, p->N) && is_at(p->plus, 0, p->c_type, p->N) &&
         is_at(p->before, 0, p->c_type, p->N);
}

/* A failure is the device's; it may be that of an earlier task. */
static bool fail_copies(tsr_cuda_blas *b, cudaError_t error) {
  snprintf(
      b->why, sizeof b->why, "the device failed: %s (%s)", cudaGetErrorString(error),
      cudaGetErrorName(error));
  return false;
}

/* The canonical problem has the same algorithm, so the same bits. */
static bool run_on_copies(tsr_cuda_blas *b, copies *c, const tsr_cuda_gemm *of) {
  tsr_cuda_gemm p = gemm_canonical(of);
  int64_t in = gemm_type_bytes(p.type), out = gemm_type_bytes(p.c_type);
  const gemm_plan *k = gemm_find_plan(b, &p);
  if (!k) return false;
  if (!p.scratch)
    return gemm_fail(b, "a GEMM whose strides its algorithm refuses", CUBLAS_STATUS_NOT_SUPPORTED);
  p.a.data = copy_matrix(c, &of->a, of->a.transposed ? p.K : p.M, p.a.stride, in); // (M, K)
  p.b.data = copy_matrix(c, &of->b, of->b.transposed ? p.N : p.K, p.b.stride, in); // (K, N)
  p.c = take(c, p.M * p.N, out);                                                   // (M, N)
  if (of->plus) {
    copy(c, p.c, p.N, of->plus, of->c_stride, p.M, p.N, out);
    p.plus = p.c;
  }
  if (of->before) p.before = take(c, p.M * p.N, out);
  cublasStatus_t status = c->error ? CUBLAS_STATUS_SUCCESS : call(b, c->stream, k, &p);
  if (status) return gemm_fail(b, "a GEMM on copies of its operands", status);
  copy(c, of->c, of->c_stride, p.c, p.N, p.M, p.N, out);
  if (of->before) copy(c, of->before, of->c_stride, p.before, p.N, p.M, p.N, out);
  return !c->error || fail_copies(b, c->error);
}

/* Whether a batch has run as one call. Otherwise nothing has begun, and its GEMMs are calls of
 * their own, which also report a failure. */
static bool run_batch(tsr_cuda_blas *b, tsr_cuda_stream stream, const tsr_cuda_gemm *p) {
  int64_t in = gemm_type_bytes(p->type), out = gemm_type_bytes(p->c_type);
  int64_t steps = p->batch.a * in | p->batch.b * in | p->batch.c * out | p->batch.bias * out;
  bool biased = p->bias && (uintptr_t)p->bias % 16;
  gemm_plan *k = gemm_find_plan(b, p);
  if (!k || k->refused || steps % 16 || biased || !is_aligned(p)) return false;
  cublasStatus_t status = call(b, stream, k, p);
  k->refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  return !status;
}

/* A piece of an odd number of columns has a bias that is aligned to its type alone, with which some
 * algorithms do not run, and no preference says so: it is copied. Of other refusals the call tells;
 * it has begun nothing then. */
static bool run_one(tsr_cuda_blas *b, tsr_cuda_stream stream, const tsr_cuda_gemm *of) {
  tsr_cuda_gemm p = *of;
  copies c = {stream, p.scratch, cudaSuccess};
  gemm_plan *k = gemm_find_plan(b, &p);
  if (!k) return false;
  if (p.bias && p.scratch && (uintptr_t)p.bias % 16) {
    const tsr_cuda_matrix row = {p.bias, p.N, false}; // (1, N)
    p.bias = copy_matrix(&c, &row, 1, p.N, gemm_type_bytes(p.c_type));
    if (c.error) return fail_copies(b, c.error);
  }
  /* Another task of the shape may have been refused for its address: without scratch ours is one
   * that no algorithm refuses. */
  if ((k->refused && p.scratch) || !is_aligned(&p)) return run_on_copies(b, &c, &p);
  cublasStatus_t status = call(b, stream, k, &p);
  if (!status) return true;
  k->refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  return k->refused ? run_on_copies(b, &c, &p) : gemm_fail(b, "a GEMM", status);
}

bool tsr_cuda_run_gemm(tsr_cuda_blas *b, tsr_cuda_stream stream, const tsr_cuda_gemm *p) {
  bool batch = p->batch.count > 1, ok = true;
  if (batch && run_batch(b, stream, p)) return true;
  for (int i = 0; ok && i < (batch ? p->batch.count : 1); i++) {
    tsr_cuda_gemm one = gemm_of_batch(p, i);
    ok = run_one(b, stream, &one);
  }
  return ok;
}
