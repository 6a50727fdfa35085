// SPDX-License-Identifier: Apache-2.0
/* cuBLASLt sees matrices column by column: a row-major c (M, N) is its c^T (N, M) = b^T a^T. */
#include "kernels/cuda/gemm.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE_BYTES = 32 << 20, WHY_BYTES = 512 };

/* What an algorithm is chosen by. */
typedef struct {
  int64_t M, N, K, a_stride, b_stride, c_stride;
  int32_t type, c_type, a_turned, b_turned, aligned, has_plus, has_bias, has_before;
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
  void *workspace;
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
  cudaError_t error = status ? cudaSuccess : cudaMalloc(&b->workspace, WORKSPACE_BYTES);
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

/* Whether a vector of 16 bytes may be read at every pointer. */
static int aligned(const tsr_cuda_gemm *p) {
  uintptr_t all = (uintptr_t)p->a.data | (uintptr_t)p->b.data | (uintptr_t)p->c;
  all |= (uintptr_t)p->plus | (uintptr_t)p->bias | (uintptr_t)p->before;
  return (all & 15) == 0;
}

static shape shape_of(const tsr_cuda_gemm *p) {
  shape s;
  memset(&s, 0, sizeof s); /* it is compared byte by byte */
  s.M = p->M, s.N = p->N, s.K = p->K;
  s.a_stride = p->a.stride, s.b_stride = p->b.stride, s.c_stride = p->c_stride;
  s.type = p->type, s.c_type = p->c_type;
  s.a_turned = p->a.transposed, s.b_turned = p->b.transposed;
  s.aligned = aligned(p), s.has_plus = p->plus != NULL, s.has_bias = p->bias != NULL;
  s.has_before = p->before != NULL;
  return s;
}

static uint32_t hash_of(const shape *s) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof *s; i++) hash = (hash ^ ((const uint8_t *)s)[i]) * 16777619u;
  return hash % BUCKETS;
}

/* rows x cols as the library sees them, columns `stride` apart. */
static cublasStatus_t layout(
    cublasLtMatrixLayout_t *ret, tsr_cuda_type type, int64_t rows, int64_t cols, int64_t stride) {
  return cublasLtMatrixLayoutCreate(ret, data_type(type), (uint64_t)rows, (uint64_t)cols, stride);
}

static cublasStatus_t layouts(known *k, const tsr_cuda_gemm *p) {
  const tsr_cuda_matrix *a = &p->a, *b = &p->b;
  cublasStatus_t status = layout(
      &k->first, p->type, b->transposed ? p->K : p->N, b->transposed ? p->N : p->K, b->stride);
  if (!status)
    status = layout(
        &k->second, p->type, a->transposed ? p->M : p->K, a->transposed ? p->K : p->M, a->stride);
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
static cublasStatus_t choose(const tsr_cuda_blas *b, known *k, const shape *s) {
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  size_t workspace = WORKSPACE_BYTES;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
           alignment = s->aligned ? 16 : 2;
  int count = 0;
  if (!s->aligned && s->type == TSR_CUDA_F32) alignment = 4;
  cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
#define SET(name, value)                                                                           \
  if (!status)                                                                                     \
  status = cublasLtMatmulPreferenceSetAttribute(                                                   \
      preference, CUBLASLT_MATMUL_PREF_##name, &(value), sizeof(value))
  SET(MAX_WORKSPACE_BYTES, workspace);
  SET(REDUCTION_SCHEME_MASK, reductions);
  SET(MIN_ALIGNMENT_A_BYTES, alignment);
  SET(MIN_ALIGNMENT_B_BYTES, alignment);
  SET(MIN_ALIGNMENT_C_BYTES, alignment);
  SET(MIN_ALIGNMENT_D_BYTES, alignment);
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

static const known *find(tsr_cuda_blas *b, const tsr_cuda_gemm *p) {
  shape s = shape_of(p);
  known **bucket = &b->known[hash_of(&s)];
  for (known *k = *bucket; k; k = k->next)
    if (!memcmp(&k->shape, &s, sizeof s)) return k;
  known *k = calloc(1, sizeof *k);
  if (!k) return fail(b, "a product's plan", CUBLAS_STATUS_ALLOC_FAILED), NULL;
  k->shape = s;
  cublasStatus_t status = describe(b, k, p);
  if (!status) status = choose(b, k, &s);
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

bool tsr_cuda_run_gemm(tsr_cuda_blas *b, tsr_cuda_stream stream, const tsr_cuda_gemm *p) {
  const known *k = find(b, p);
  float one = 1, zero = 0;
  if (!k) return false;
  cublasStatus_t status = point_end(k, p);
  if (status) return fail(b, "a product's end", status);
  status = cublasLtMatmul(
      b->handle, k->gemm, &one, p->b.data, k->first, p->a.data, k->second, p->plus ? &one : &zero,
      p->plus ? p->plus : p->c, k->result, p->c, k->result, &k->algorithm, b->workspace,
      WORKSPACE_BYTES, stream);
  return status ? fail(b, "a product", status) : true;
}
