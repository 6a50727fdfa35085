// SPDX-License-Identifier: Apache-2.0
/* cuBLASLt sees matrices column by column: a row-major c (M, N) is its c^T (N, M) = b^T a^T. */
#include "kernels/cuda/gemm.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE_BYTES = 32 << 20, BIAS_BYTES = 1 << 20, WHY_BYTES = 512 };

/* A problem: the algorithm depends on all but the strides. */
typedef struct {
  int64_t M, N, K;
  int32_t type, c_type, a_turned, b_turned, has_plus, has_bias, has_before;
  int64_t a_stride, b_stride, c_stride;
} shape;

typedef struct known {
  struct known *next;
  shape shape;
  cublasLtMatmulDesc_t gemm;
  cublasLtMatrixLayout_t first, second, result;
  cublasLtMatmulAlgo_t algorithm;
} known;

enum { BUCKETS = 1024 };
struct tsr_cuda_blas {
  cublasLtHandle_t handle;
  void *workspace; /* and behind it BIAS_BYTES for an aligned bias */
  bool fast;
  char why[WHY_BYTES];
  known *known[BUCKETS];
};

static bool fail(tsr_cuda_blas *b, const char *what, cublasStatus_t status) {
  snprintf(b->why, sizeof b->why, "%s: %s", what, cublasLtGetStatusName(status));
  return false;
}

bool tsr_cuda_blas_open(bool fast, tsr_cuda_blas **ret_blas, char *why) {
  tsr_cuda_blas *b = calloc(1, sizeof *b);
  if (!b) return snprintf(why, WHY_BYTES, "no memory"), false;
  b->fast = fast;
  cublasStatus_t status = cublasLtCreate(&b->handle);
  cudaError_t error =
      status ? cudaSuccess : cudaMalloc(&b->workspace, WORKSPACE_BYTES + BIAS_BYTES);
  if (!status && !error) return *ret_blas = b, true;
  snprintf(
      why, WHY_BYTES, "cuBLASLt: %s",
      status ? cublasLtGetStatusName(status) : cudaGetErrorString(error));
  tsr_cuda_blas_close(b);
  return false;
}

static void forget(known *k) {
  if (k->gemm) cublasLtMatmulDescDestroy(k->gemm);
  if (k->first) cublasLtMatrixLayoutDestroy(k->first);
  if (k->second) cublasLtMatrixLayoutDestroy(k->second);
  if (k->result) cublasLtMatrixLayoutDestroy(k->result);
  free(k);
}

void tsr_cuda_blas_close(tsr_cuda_blas *b) {
  if (!b) return;
  for (int i = 0; i < BUCKETS; i++)
    for (known *k = b->known[i], *next; k; k = next) next = k->next, forget(k);
  cudaFree(b->workspace);
  if (b->handle) cublasLtDestroy(b->handle);
  free(b);
}

const char *tsr_cuda_blas_error(const tsr_cuda_blas *b) { return b->why; }

/* ---- a shape's algorithm ---- */

static cudaDataType_t data_type(tsr_cuda_type type) {
  return type == TSR_CUDA_BF16 ? CUDA_R_16BF : type == TSR_CUDA_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static shape shape_of(const tsr_cuda_gemm *p) {
  shape s;
  memset(&s, 0, sizeof s); /* it is compared byte by byte */
  s.M = p->M, s.N = p->N, s.K = p->K;
  s.a_stride = p->a.stride, s.b_stride = p->b.stride, s.c_stride = p->c_stride;
  s.type = p->type, s.c_type = p->c_type;
  s.a_turned = p->a.transposed, s.b_turned = p->b.transposed;
  s.has_plus = p->plus != NULL, s.has_bias = p->bias != NULL, s.has_before = p->before != NULL;
  return s;
}

static uint32_t hash_of(const shape *s) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof *s; i++) hash = (hash ^ ((const uint8_t *)s)[i]) * 16777619u;
  return hash % BUCKETS;
}

/* ---- operands: their extents, and how they are aligned in every problem of one algorithm ---- */

static int64_t bytes_of(tsr_cuda_type type) { return type == TSR_CUDA_F32 ? 4 : 2; }

/* Elements that lie one after the other. */
static int64_t contiguous_a(const tsr_cuda_gemm *p) { return p->a.transposed ? p->M : p->K; }
static int64_t contiguous_b(const tsr_cuda_gemm *p) { return p->b.transposed ? p->K : p->N; }

/* The alignment that is relied on follows from the extents, because those are the recipe's, and
 * addresses and strides are the mesh's: where an extent is a multiple of 16 bytes, the pieces of
 * an operand that is so large begin at multiples of 16 bytes, and so do its rows. */
static uint32_t alignment_of(tsr_cuda_type type, int64_t contiguous) {
  int64_t bytes = bytes_of(type);
  return contiguous * bytes % 16 == 0 ? 16 : (uint32_t)bytes;
}

static bool lies_at(const void *data, int64_t stride, tsr_cuda_type type, uint32_t alignment) {
  return ((uintptr_t)data | (uint64_t)(stride * bytes_of(type))) % alignment == 0;
}

/* Whether the operands are aligned as the algorithm relies on. */
static bool is_aligned(const tsr_cuda_gemm *p) {
  uint32_t c = alignment_of(p->c_type, p->N);
  return lies_at(p->a.data, p->a.stride, p->type, alignment_of(p->type, contiguous_a(p))) &&
         lies_at(p->b.data, p->b.stride, p->type, alignment_of(p->type, contiguous_b(p))) &&
         lies_at(p->c, p->c_stride, p->c_type, c) && lies_at(p->plus, 0, p->c_type, c) &&
         lies_at(p->bias, 0, p->c_type, c) && lies_at(p->before, 0, p->c_type, c);
}

/* The problem by whose algorithm all others are computed that differ in their strides: its operands
 * have no gaps. */
static tsr_cuda_gemm canonical(const tsr_cuda_gemm *p) {
  tsr_cuda_gemm q = *p;
  q.a.stride = contiguous_a(p);
  q.b.stride = contiguous_b(p);
  q.c_stride = p->N;
  return q;
}

/* rows x cols as the library sees them, columns `stride` apart. */
static cublasStatus_t layout(
    cublasLtMatrixLayout_t *ret, tsr_cuda_type type, int64_t rows, int64_t cols, int64_t stride) {
  return cublasLtMatrixLayoutCreate(ret, data_type(type), (uint64_t)rows, (uint64_t)cols, stride);
}

static cublasStatus_t layouts(known *k, const tsr_cuda_gemm *p) {
  const tsr_cuda_matrix *a = &p->a, *b = &p->b;
  cublasStatus_t status =
      layout(&k->first, p->type, contiguous_b(p), b->transposed ? p->N : p->K, b->stride);
  if (!status)
    status = layout(&k->second, p->type, contiguous_a(p), a->transposed ? p->K : p->M, a->stride);
  if (!status) status = layout(&k->result, p->c_type, p->N, p->M, p->c_stride);
  return status;
}

/* Its rows are our columns, and its gelu is that by tanh. */
static cublasStatus_t describe_end(known *k, const tsr_cuda_gemm *p) {
  cublasLtEpilogue_t end = p->before ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_BIAS;
  if (p->before && p->bias) end = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  cudaDataType_t type = data_type(p->c_type);
  cublasStatus_t status =
      cublasLtMatmulDescSetAttribute(k->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE, &end, sizeof end);
  if (!status && p->bias)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  if (!status && p->before)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->c_stride, sizeof p->c_stride);
  return status;
}

static cublasStatus_t describe(const tsr_cuda_blas *b, known *k, const tsr_cuda_gemm *p) {
  cublasOperation_t first = p->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                    second = p->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  bool rounds = b->fast && p->type == TSR_CUDA_F32;
  cublasStatus_t status = cublasLtMatmulDescCreate(
      &k->gemm, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (!status)
    status =
        cublasLtMatmulDescSetAttribute(k->gemm, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  if (!status)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  if (!status && (p->bias || p->before)) status = describe_end(k, p);
  return status ? status : layouts(k, p);
}

/* Reductions between blocks by atomics would change with timing: only those in the workspace. */
static cublasStatus_t choose(const tsr_cuda_blas *b, known *k, const tsr_cuda_gemm *p) {
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  size_t workspace = WORKSPACE_BYTES;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
           first = alignment_of(p->type, contiguous_b(p)),
           second = alignment_of(p->type, contiguous_a(p)), result = alignment_of(p->c_type, p->N);
  int count = 0;
  cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
#define SET(name, value)                                                                           \
  if (!status)                                                                                     \
  status = cublasLtMatmulPreferenceSetAttribute(                                                   \
      preference, CUBLASLT_MATMUL_PREF_##name, &(value), sizeof(value))
  SET(MAX_WORKSPACE_BYTES, workspace);
  SET(REDUCTION_SCHEME_MASK, reductions);
  SET(MIN_ALIGNMENT_A_BYTES, first);
  SET(MIN_ALIGNMENT_B_BYTES, second);
  SET(MIN_ALIGNMENT_C_BYTES, result);
  SET(MIN_ALIGNMENT_D_BYTES, result);
#undef SET
  if (!status)
    status = cublasLtMatmulAlgoGetHeuristic(
        b->handle, k->gemm, k->first, k->second, k->result, k->result, preference, 1, &found,
        &count);
  if (preference) cublasLtMatmulPreferenceDestroy(preference);
  if (status) return status;
  if (!count) return CUBLAS_STATUS_NOT_SUPPORTED;
  k->algorithm = found.algo;
  return CUBLAS_STATUS_SUCCESS;
}

static const known *find(tsr_cuda_blas *b, const tsr_cuda_gemm *p);

/* Of the canonical problem the library's choice, of others that one's. */
static cublasStatus_t plan(tsr_cuda_blas *b, known *k, const tsr_cuda_gemm *p) {
  tsr_cuda_gemm dense = canonical(p);
  shape of_dense = shape_of(&dense);
  cublasStatus_t status = describe(b, k, p);
  if (status) return status;
  if (!memcmp(&k->shape, &of_dense, sizeof of_dense)) return choose(b, k, p);
  const known *is = find(b, &dense);
  if (!is) return CUBLAS_STATUS_NOT_SUPPORTED;
  k->algorithm = is->algorithm;
  cublasLtMatmulHeuristicResult_t checked;
  status = cublasLtMatmulAlgoCheck(
      b->handle, k->gemm, k->first, k->second, k->result, k->result, &k->algorithm, &checked);
  if (!status && checked.workspaceSize > WORKSPACE_BYTES) status = CUBLAS_STATUS_NOT_SUPPORTED;
  return status;
}

static const known *find(tsr_cuda_blas *b, const tsr_cuda_gemm *p) {
  shape s = shape_of(p);
  known **bucket = &b->known[hash_of(&s)];
  for (known *k = *bucket; k; k = k->next)
    if (!memcmp(&k->shape, &s, sizeof s)) return k;
  known *k = calloc(1, sizeof *k);
  if (!k) return fail(b, "a product's plan", CUBLAS_STATUS_ALLOC_FAILED), NULL;
  k->shape = s;
  cublasStatus_t status = plan(b, k, p);
  if (status) {
    char what[WHY_BYTES / 2];
    snprintf(
        what, sizeof what, "a product (%lld, %lld, %lld)", (long long)p->M, (long long)p->N,
        (long long)p->K);
    forget(k);
    return fail(b, what, status), NULL;
  }
  k->next = *bucket;
  return *bucket = k;
}

bool tsr_cuda_has_gemm(tsr_cuda_blas *b, const tsr_cuda_gemm *p) { return find(b, p); }

static cublasStatus_t point_end(const known *k, const tsr_cuda_gemm *p) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (p->bias)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
  if (!status && p->before)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->before, sizeof p->before);
  return status;
}

/* A piece of an odd number of columns has a bias that is aligned to its type alone, with which some
 * algorithms do not run, and no preference says so: it is copied. */
static bool align_bias(tsr_cuda_blas *b, tsr_cuda_stream stream, tsr_cuda_gemm *p) {
  int64_t bytes = p->N * bytes_of(p->c_type);
  if ((uintptr_t)p->bias % 16 == 0) return true;
  if (bytes > BIAS_BYTES)
    return fail(b, "a bias of more than 1 MiB that is not aligned", CUBLAS_STATUS_INVALID_VALUE);
  void *aligned = (char *)b->workspace + WORKSPACE_BYTES;
  cudaError_t error =
      cudaMemcpyAsync(aligned, p->bias, (size_t)bytes, cudaMemcpyDeviceToDevice, stream);
  p->bias = aligned;
  return !error || fail(b, "a bias", CUBLAS_STATUS_EXECUTION_FAILED);
}

bool tsr_cuda_run_gemm(tsr_cuda_blas *b, tsr_cuda_stream stream, const tsr_cuda_gemm *of) {
  tsr_cuda_gemm aligned = *of, *p = &aligned;
  const known *k = find(b, p);
  float one = 1, zero = 0;
  if (!k || !align_bias(b, stream, p)) return false;
  if (!is_aligned(p)) return fail(b, "a product's operands", CUBLAS_STATUS_INVALID_VALUE);
  cublasStatus_t status = point_end(k, p);
  if (status) return fail(b, "a product's end", status);
  status = cublasLtMatmul(
      b->handle, k->gemm, &one, p->b.data, k->first, p->a.data, k->second, p->plus ? &one : &zero,
      p->plus ? p->plus : p->c, k->result, p->c, k->result, &k->algorithm, b->workspace,
      WORKSPACE_BYTES, stream);
  return status ? fail(b, "a product", status) : true;
}
