// SPDX-License-Identifier: Apache-2.0
/* cuBLASLt sees matrices column by column: a row-major c (M, N) is its c^T (N, M) = b^T a^T. */
#include "kernels/cuda/gemm_plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cudaDataType_t data_type(tsr_cuda_type type) {
  return type == TSR_CUDA_BF16 ? CUDA_R_16BF : type == TSR_CUDA_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static bool is_batch(const tsr_cuda_gemm *p) { return p->batch.count > 1; }

static gemm_key key_of(const tsr_cuda_gemm *p) {
  gemm_key k;
  memset(&k, 0, sizeof k); /* it is compared byte by byte */
  k.M = p->M, k.N = p->N, k.K = p->K;
  k.a_stride = p->a.stride, k.b_stride = p->b.stride, k.c_stride = p->c_stride;
  k.type = p->type, k.c_type = p->c_type;
  k.a_transposed = p->a.transposed, k.b_transposed = p->b.transposed;
  k.has_plus = p->plus != NULL, k.has_bias = p->bias != NULL, k.has_before = p->before != NULL;
  if (!is_batch(p)) return k;
  k.count = p->batch.count;
  k.a_step = p->batch.a, k.b_step = p->batch.b, k.c_step = p->batch.c;
  k.bias_step = p->batch.bias;
  return k;
}

static uint32_t hash_of(const gemm_key *k) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof *k; i++) hash = (hash ^ ((const uint8_t *)k)[i]) * 16777619u;
  return hash % GEMM_BUCKETS;
}

static const char *moved(const void *data, int64_t elements, tsr_cuda_type type) {
  return data ? (const char *)data + elements * gemm_type_bytes(type) : NULL;
}

tsr_cuda_gemm gemm_of_batch(const tsr_cuda_gemm *p, int i) {
  tsr_cuda_gemm q = *p;
  q.a.data = moved(p->a.data, i * p->batch.a, p->type);
  q.b.data = moved(p->b.data, i * p->batch.b, p->type);
  q.c = (void *)moved(p->c, i * p->batch.c, p->c_type);
  q.plus = moved(p->plus, i * p->batch.c, p->c_type);
  q.bias = moved(p->bias, i * p->batch.bias, p->c_type);
  q.batch = (tsr_cuda_batch){0};
  return q;
}

tsr_cuda_gemm gemm_canonical(const tsr_cuda_gemm *p) {
  tsr_cuda_gemm q = *p;
  q.a.stride = gemm_contiguous_a(p);
  q.b.stride = gemm_contiguous_b(p);
  q.c_stride = p->N;
  q.batch = (tsr_cuda_batch){0};
  return q;
}

/* ---- what the library is told ---- */

/* rows x cols as the library sees them, columns `stride` apart. */
static cublasStatus_t layout(
    cublasLtMatrixLayout_t *ret, tsr_cuda_type type, int64_t rows, int64_t cols, int64_t stride) {
  return cublasLtMatrixLayoutCreate(ret, data_type(type), (uint64_t)rows, (uint64_t)cols, stride);
}

static cublasStatus_t repeat(cublasLtMatrixLayout_t matrix, int32_t count, int64_t step) {
  cublasStatus_t status = cublasLtMatrixLayoutSetAttribute(
      matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (status) return status;
  return cublasLtMatrixLayoutSetAttribute(
      matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
}

static cublasStatus_t describe_batch(gemm_plan *k, const tsr_cuda_gemm *p) {
  const tsr_cuda_batch *batch = &p->batch;
  cublasStatus_t status = repeat(k->first, batch->count, batch->b);
  if (!status) status = repeat(k->second, batch->count, batch->a);
  if (!status) status = repeat(k->result, batch->count, batch->c);
  if (!status && p->bias)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &batch->bias, sizeof batch->bias);
  return status;
}

static cublasStatus_t describe_layouts(gemm_plan *k, const tsr_cuda_gemm *p) {
  const tsr_cuda_matrix *a = &p->a, *b = &p->b;
  cublasStatus_t status =
      layout(&k->first, p->type, gemm_contiguous_b(p), b->transposed ? p->N : p->K, b->stride);
  if (!status)
    status =
        layout(&k->second, p->type, gemm_contiguous_a(p), a->transposed ? p->K : p->M, a->stride);
  if (!status) status = layout(&k->result, p->c_type, p->N, p->M, p->c_stride);
  return status;
}

/* Its rows are our columns, and its gelu is that by tanh. */
static cublasStatus_t describe_epilogue(gemm_plan *k, const tsr_cuda_gemm *p) {
  cublasLtEpilogue_t epilogue = p->before ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_BIAS;
  if (p->before && p->bias) epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  cudaDataType_t type = data_type(p->c_type);
  cublasStatus_t status = cublasLtMatmulDescSetAttribute(
      k->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!status && p->bias)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  if (!status && p->before)
    status = cublasLtMatmulDescSetAttribute(
        k->gemm, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->c_stride, sizeof p->c_stride);
  return status;
}

static cublasStatus_t describe(const tsr_cuda_blas *b, gemm_plan *k, const tsr_cuda_gemm *p) {
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
  if (!status && (p->bias || p->before)) status = describe_epilogue(k, p);
  if (!status) status = describe_layouts(k, p);
  return status || !is_batch(p) ? status : describe_batch(k, p);
}

/* ---- the algorithm ---- */

/* The alignment that is relied on follows from the extents, because those are the recipe's, and
 * addresses and strides are the mesh's: where an extent is a multiple of 16 bytes, the pieces of
 * an operand that is so large begin at multiples of 16 bytes, and so do its rows. */
static uint32_t alignment_of(tsr_cuda_type type, int64_t contiguous) {
  int64_t bytes = gemm_type_bytes(type);
  return contiguous * bytes % 16 == 0 ? 16 : (uint32_t)bytes;
}

static bool
read_config(const cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoConfigAttributes_t which, void *ret) {
  size_t written = 0, size = which >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
  memset(ret, 0, 4);
  return !cublasLtMatmulAlgoConfigGetAttribute(a, which, ret, size, &written);
}
static bool write_config(
    cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoConfigAttributes_t which, const void *value) {
  size_t size = which >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
  return !cublasLtMatmulAlgoConfigSetAttribute(a, which, value, size);
}

/* Some algorithms have no tiles to choose from. */
static bool has_tiles(const cublasLtMatmulAlgo_t *a) {
  size_t bytes = 0;
  return !cublasLtMatmulAlgoCapGetAttribute(a, CUBLASLT_ALGO_CAP_TILE_IDS, NULL, 0, &bytes) &&
         bytes > sizeof(uint32_t);
}

/* Leaves the library nothing to choose when it is called: the tile of the heuristic's result is
 * written back as a request. Each element is one chain of additions, because a split K would make
 * the bits depend on how the parts are joined; with atomics also on timing. */
static bool pin(cublasLtMatmulAlgo_t *a, bool fast) {
  uint32_t tile, stages, reduction, none = CUBLASLT_REDUCTION_SCHEME_NONE;
  int32_t splits, one = 1;
  if (!read_config(a, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile) ||
      !read_config(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages) ||
      !read_config(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits) ||
      !read_config(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction))
    return false;
  if (fast) return reduction == none || reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (splits > 1 || reduction != none) return false;
  if (tile == CUBLASLT_MATMUL_TILE_UNDEFINED && has_tiles(a)) return false;
  return write_config(a, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile) &&
         write_config(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages) &&
         write_config(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &one) &&
         write_config(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &none);
}

static cublasStatus_t check(const tsr_cuda_blas *b, gemm_plan *k) {
  cublasLtMatmulHeuristicResult_t checked;
  cublasStatus_t status = cublasLtMatmulAlgoCheck(
      b->handle, k->gemm, k->first, k->second, k->result, k->result, &k->algorithm, &checked);
  if (!status && checked.workspaceSize > GEMM_WORKSPACE_BYTES) status = CUBLAS_STATUS_NOT_SUPPORTED;
  return status;
}

enum { CANDIDATES = 32 };

/* The first of the library's proposals that does as `pin` requires, and runs so. */
static cublasStatus_t choose(const tsr_cuda_blas *b, gemm_plan *k, const tsr_cuda_gemm *p) {
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  size_t workspace = GEMM_WORKSPACE_BYTES;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE,
           first = alignment_of(p->type, gemm_contiguous_b(p)),
           second = alignment_of(p->type, gemm_contiguous_a(p)),
           result = alignment_of(p->c_type, p->N);
  if (b->fast) reductions |= CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
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
        b->handle, k->gemm, k->first, k->second, k->result, k->result, preference, CANDIDATES,
        found, &count);
  if (preference) cublasLtMatmulPreferenceDestroy(preference);
  for (int i = 0; !status && i < count; i++) {
    k->algorithm = found[i].algo;
    if (!found[i].state && pin(&k->algorithm, b->fast) && !check(b, k))
      return CUBLAS_STATUS_SUCCESS;
  }
  return status ? status : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- plans ---- */

/* The canonical problem whose algorithm it has: without what is added to the sum, which may be an
 * op of its own on another mesh, and has to give the same bits there. */
static tsr_cuda_gemm chosen_for(const tsr_cuda_blas *b, const tsr_cuda_gemm *dense) {
  tsr_cuda_gemm bare = *dense;
  if (!b->fast) bare.plus = bare.bias = bare.before = NULL;
  return bare;
}

/* Of the bare canonical problem the library's choice, of others that one's. With what is added it
 * may refuse that; other strides are refused for copies, and a batch for single calls. */
static cublasStatus_t plan(tsr_cuda_blas *b, gemm_plan *k, const tsr_cuda_gemm *p) {
  tsr_cuda_gemm dense = gemm_canonical(p), bare = chosen_for(b, &dense);
  gemm_key of_dense = key_of(&dense), of_bare = key_of(&bare);
  bool is_dense = !memcmp(&k->key, &of_dense, sizeof of_dense);
  cublasStatus_t status = describe(b, k, p);
  if (status) return status;
  if (!memcmp(&k->key, &of_bare, sizeof of_bare)) return choose(b, k, p);
  tsr_cuda_gemm one = gemm_of_batch(p, 0);
  const gemm_plan *is = gemm_find_plan(b, is_batch(p) ? &one : is_dense ? &bare : &dense);
  if (!is) return CUBLAS_STATUS_NOT_SUPPORTED;
  k->algorithm = is->algorithm;
  status = is_batch(p) && is->refused ? CUBLAS_STATUS_NOT_SUPPORTED : check(b, k);
  if (is_dense && !is_batch(p)) return status;
  k->refused = status != CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

static void destroy(gemm_plan *k) {
  if (k->gemm) cublasLtMatmulDescDestroy(k->gemm);
  if (k->first) cublasLtMatrixLayoutDestroy(k->first);
  if (k->second) cublasLtMatrixLayoutDestroy(k->second);
  if (k->result) cublasLtMatrixLayoutDestroy(k->result);
  free(k);
}

gemm_plan *gemm_find_plan(tsr_cuda_blas *b, const tsr_cuda_gemm *p) {
  gemm_key key = key_of(p);
  gemm_plan **bucket = &b->plans[hash_of(&key)];
  for (gemm_plan *k = *bucket; k; k = k->next)
    if (!memcmp(&k->key, &key, sizeof key)) return k;
  gemm_plan *k = calloc(1, sizeof *k);
  if (!k) return gemm_fail(b, "a GEMM's plan", CUBLAS_STATUS_ALLOC_FAILED), NULL;
  k->key = key;
  cublasStatus_t status = plan(b, k, p);
  if (status) {
    char what[GEMM_WHY_BYTES / 2];
    snprintf(
        what, sizeof what, "no algorithm for a GEMM (%lld, %lld, %lld)", (long long)p->M,
        (long long)p->N, (long long)p->K);
    destroy(k);
    return gemm_fail(b, what, status), NULL;
  }
  k->next = *bucket;
  return *bucket = k;
}

void gemm_destroy_plans(tsr_cuda_blas *b) {
  for (int i = 0; i < GEMM_BUCKETS; i++)
    for (gemm_plan *k = b->plans[i], *next; k; k = next) next = k->next, destroy(k);
}
