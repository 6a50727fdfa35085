// SPDX-License-Identifier: Apache-2.0
/* cublasLt.h: matrices column by column, D (M, N) = op(A) (M, K) op(B) (K, N) + C, of each GEMM of
 * a batch. */
#include "cublasLt.h"
#include "kernels/kernels.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct emulated_layout {
  cudaDataType_t type;
  int64_t rows, cols, stride;
  int32_t count; /* of a batch, whose matrices begin `step` elements apart */
  int64_t step;
};
struct emulated_preference {
  uint32_t alignment[3];
};
struct emulated_matmul {
  cublasOperation_t a, b;
  cublasLtEpilogue_t epilogue;
  cudaDataType_t bias_type;
  const void *bias;
  int64_t bias_step;
  void *before;
  int64_t before_stride;
};

static unsigned long gemm_calls;
unsigned long emulated_gemm_calls(void) { return gemm_calls; }

size_t cublasLtGetVersion(void) { return 130100; }

const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    break;
  }
  return "CUBLAS_STATUS_NOT_SUPPORTED";
}

/* ---- objects ---- */

static cublasStatus_t new_object(void *ret, size_t bytes) {
  void *object = calloc(1, bytes);
  memcpy(ret, &object, sizeof object);
  return object ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
static cublasStatus_t delete_object(void *object) { return free(object), CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret) { return new_object(ret, 1); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return delete_object(handle); }

cublasStatus_t cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t *ret, cublasComputeType_t type, cudaDataType_t scale) {
  (void)type, (void)scale;
  cublasStatus_t status = new_object(ret, sizeof **ret);
  if (!status) (*ret)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return status;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t m) { return delete_object(m); }

static cublasStatus_t set(void *to, size_t size, const void *value, size_t bytes) {
  if (size != bytes) return CUBLAS_STATUS_INVALID_VALUE;
  return memcpy(to, value, bytes), CUBLAS_STATUS_SUCCESS;
}
#define SET(field) set(&(field), sizeof(field), value, bytes)

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t m, cublasLtMatmulDescAttributes_t attribute, const void *value,
    size_t bytes) {
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    return SET(m->a);
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return SET(m->b);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return SET(m->epilogue);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return SET(m->bias);
  case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
    return SET(m->bias_step);
  case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    return SET(m->bias_type);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    return SET(m->before);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    return SET(m->before_stride);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *ret, cudaDataType_t type, uint64_t rows, uint64_t cols,
    int64_t stride) {
  if ((int64_t)rows > stride) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = new_object(ret, sizeof **ret);
  if (!status) **ret = (struct emulated_layout){type, (int64_t)rows, (int64_t)cols, stride, 1, 0};
  return status;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute, const void *value,
    size_t bytes) {
  switch (attribute) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
    return SET(l->count);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
    return SET(l->step);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete_object(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret) {
  cublasStatus_t status = new_object(ret, sizeof **ret);
  for (int i = 0; !status && i < 3; i++) (*ret)->alignment[i] = 256; /* the library's default */
  return status;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return delete_object(p);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes) {
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    return SET(p->alignment[0]);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    return SET(p->alignment[1]);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return SET(p->alignment[2]);
  default:
    return CUBLAS_STATUS_SUCCESS;
  }
}

/* ---- the choice of an algorithm ---- */

static uint64_t mixed(uint64_t hash, int64_t number) {
  hash = (hash ^ (uint64_t)number) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

static size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

/* How far an address or a stride is a multiple of powers of two, 16 at most. */
static uint32_t alignment_of(uint64_t bytes) {
  uint32_t alignment = 16;
  while (bytes % alignment) alignment /= 2;
  return alignment;
}
static uint32_t stride_alignment(cublasLtMatrixLayout_t l) {
  return alignment_of((uint64_t)l->stride * bytes_of(l->type));
}

static cublasStatus_t check_shapes(
    cublasLtMatmulDesc_t m, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t d) {
  int64_t M = m->a ? a->cols : a->rows, K = m->a ? a->rows : a->cols;
  int64_t N = m->b ? b->rows : b->cols, rows = m->b ? b->cols : b->rows;
  bool fit = rows == K && d->rows == M && d->cols == N && a->type == b->type &&
             a->count == d->count && b->count == d->count && d->count > 0;
  return fit ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* $EMULATED_CUDA holds "ends": no epilogue but the plain one. */
static bool has_epilogue(cublasLtMatmulDesc_t m) {
  const char *faults = getenv("EMULATED_CUDA");
  return m->epilogue == CUBLASLT_EPILOGUE_DEFAULT || !faults || !strstr(faults, "ends");
}

/* What a proposal is: by its place among all, which the hash begins. */
typedef enum { SPLITS, LEAVES_TILE, CANNOT_RUN, HAS_NO_TILES, RUNS, KINDS } proposal_kind;
enum { PROPOSALS = 8, TILES = 20 };

static cublasLtMatmulHeuristicResult_t
proposal(cublasLtMatmulAlgo_t algo, proposal_kind kind, uint64_t hash) {
  algo.hash = hash;
  algo.run = 1 + (int64_t)(hash >> 60) % 7;
  algo.config[CUBLASLT_ALGO_CONFIG_TILE_ID] =
      kind == LEAVES_TILE || kind == HAS_NO_TILES ? 0 : TILES;
  algo.config[CUBLASLT_ALGO_CONFIG_ID] = kind;
  algo.config[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = kind == SPLITS ? 2 + (hash >> 40) % 3 : 1;
  if (kind == SPLITS) algo.config[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] = hash >> 50 & 3;
  cublasStatus_t state = kind == CANNOT_RUN ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  return (cublasLtMatmulHeuristicResult_t){algo, 0, state};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t m, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t *found,
    int *ret_count) {
  (void)handle, (void)c;
  const cublasLtMatrixLayout_t operands[] = {a, b, d};
  cublasLtMatmulAlgo_t algo = {0};
  cublasStatus_t status = check_shapes(m, a, b, d);
  if (status || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t hash = mixed(mixed(m->a * 2 + m->b, d->rows), d->cols);
  hash = mixed(mixed(hash, m->a ? a->rows : a->cols), (int64_t)m->epilogue);
  hash = mixed(mixed(hash, (int64_t)a->type), (int64_t)d->type);
  if (d->count > 1) hash = mixed(hash, d->count);
  for (int i = 0; i < 3; i++) {
    uint32_t alignment = preference->alignment[i], of_rows = stride_alignment(operands[i]);
    if (operands[i]->cols > 1 && of_rows < alignment) alignment = of_rows;
    algo.alignment[i] = alignment > 16 ? 16 : alignment;
    algo.strides[i] = operands[i]->stride;
    hash = mixed(mixed(hash, operands[i]->stride), algo.alignment[i]);
  }
  int first = (int)(hash >> 32) % KINDS;
  *ret_count = !has_epilogue(m) ? 0 : wanted < PROPOSALS ? wanted : PROPOSALS;
  for (int i = 0; i < *ret_count; i++)
    found[i] = proposal(algo, (proposal_kind)((first + i) % KINDS), mixed(hash, i));
  return CUBLAS_STATUS_SUCCESS;
}

static size_t config_bytes(cublasLtMatmulAlgoConfigAttributes_t attribute) {
  return attribute >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *ret,
    size_t bytes, size_t *ret_written) {
  if (bytes != config_bytes(attribute)) return CUBLAS_STATUS_INVALID_VALUE;
  *ret_written = bytes;
  return memcpy(ret, &algo->config[attribute], bytes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(
    cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, const void *value,
    size_t bytes) {
  if (bytes != config_bytes(attribute)) return CUBLAS_STATUS_INVALID_VALUE;
  algo->written |= 1u << attribute;
  return memcpy(&algo->config[attribute], value, bytes), CUBLAS_STATUS_SUCCESS;
}
/* The tiles that it has. */
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t attribute, void *ret,
    size_t bytes, size_t *ret_written) {
  if (attribute != CUBLASLT_ALGO_CAP_TILE_IDS || ret || bytes) return CUBLAS_STATUS_INVALID_VALUE;
  bool none = algo->config[CUBLASLT_ALGO_CONFIG_ID] == HAS_NO_TILES;
  return *ret_written = none ? sizeof(uint32_t) : TILES * sizeof(uint32_t), CUBLAS_STATUS_SUCCESS;
}

/* Whether an algorithm computes a batch: some do not, and none where $EMULATED_CUDA holds
 * "singles". */
static bool computes_batches(const cublasLtMatmulAlgo_t *algo) {
  const char *faults = getenv("EMULATED_CUDA");
  if (faults && strstr(faults, "singles")) return false;
  return !faults || !strstr(faults, "choosy") || (algo->hash >> 16) % 3;
}

/* Whether an algorithm runs with a stride: with that of the proposal. */
static bool fits(const cublasLtMatmulAlgo_t *algo, int operand, cublasLtMatrixLayout_t l) {
  if (l->count > 1 && l->step % (16 / (int64_t)bytes_of(l->type))) return false;
  if (l->cols <= 1 || l->stride == algo->strides[operand]) return true;
  return stride_alignment(l) >= algo->alignment[operand] &&
         (mixed(algo->hash, l->stride + operand) >> 40) % 3;
}

cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t m, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *ret) {
  (void)handle, (void)c;
  const cublasLtMatrixLayout_t operands[] = {a, b, d};
  cublasStatus_t status = check_shapes(m, a, b, d);
  if (algo->config[CUBLASLT_ALGO_CONFIG_ID] == CANNOT_RUN) status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (d->count > 1 && !computes_batches(algo)) status = CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; !status && i < 3; i++)
    if (!fits(algo, i, operands[i])) status = CUBLAS_STATUS_NOT_SUPPORTED;
  *ret = (cublasLtMatmulHeuristicResult_t){*algo, 0, status};
  return status;
}

/* Whether an algorithm runs with an address: some not with one that is aligned to its type alone,
 * whatever they were asked for. */
static bool runs_at(const cublasLtMatmulAlgo_t *algo, int operand, const void *data) {
  uint32_t alignment = algo->alignment[operand];
  if ((algo->hash >> (20 + operand)) % 4 == 0) alignment = 16;
  return (uintptr_t)data % alignment == 0;
}

/* The order of the additions in a call: of what was not written into the configuration, by the
 * strides; of parts that blocks add to the result, by chance. */
static int64_t run_of(const cublasLtMatmulAlgo_t *algo, const cublasLtMatrixLayout_t *operands) {
  static uint64_t calls;
  const uint32_t pinned =
      1u << CUBLASLT_ALGO_CONFIG_TILE_ID | 1u << CUBLASLT_ALGO_CONFIG_SPLITK_NUM |
      1u << CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME | 1u << CUBLASLT_ALGO_CONFIG_STAGES_ID;
  uint64_t hash = algo->hash;
  if (algo->config[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] > 1) hash = mixed(hash, (int64_t)calls++);
  bool open =
      (algo->written & pinned) != pinned || algo->config[CUBLASLT_ALGO_CONFIG_ID] == LEAVES_TILE;
  for (int i = 0; open && i < 3; i++) hash = mixed(hash, operands[i]->stride);
  return hash == algo->hash ? algo->run : 1 + (int64_t)(hash >> 60) % 7;
}

/* ---- the GEMM ---- */

typedef struct {
  struct emulated_matmul m;
  struct emulated_layout a, b, d;
  const void *a_data, *b_data, *plus; /* NULL: nothing is added */
  void *d_data;
  int64_t run;
} product;

static float half_to_float(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, rest = bits & 0x3FF;
  float number;
  if (!exponent) number = (float)rest / (1 << 24);
  else {
    uint32_t all = exponent == 31 ? 0x7F800000 | rest << 13 : (exponent + 112) << 23 | rest << 13;
    memcpy(&number, &all, sizeof number);
  }
  uint32_t signed_bits;
  memcpy(&signed_bits, &number, sizeof number);
  signed_bits |= sign;
  memcpy(&number, &signed_bits, sizeof number);
  return number;
}

static float read_number(cudaDataType_t type, const void *data, int64_t at) {
  if (type == CUDA_R_32F) return ((const float *)data)[at];
  uint16_t bits = ((const uint16_t *)data)[at];
  if (type == CUDA_R_16F) return half_to_float(bits);
  uint32_t wide = (uint32_t)bits << 16;
  float number;
  memcpy(&number, &wide, sizeof number);
  return number;
}

static void write_number(cudaDataType_t type, void *data, int64_t at, float number) {
  if (type == CUDA_R_32F) {
    ((float *)data)[at] = number;
    return;
  }
  const tsr_kernels *k = tsr_kernels_get(NULL);
  uint16_t *to = (uint16_t *)data + at;
  if (type == CUDA_R_16BF) k->f32_to_bf16(to, &number, 0, 1);
  else k->f32_to_fp16(to, &number, 0, 1);
}

/* Element (i, j) of op(x). */
static float
element(const struct emulated_layout *x, const void *data, bool turned, int64_t i, int64_t j) {
  return read_number(x->type, data, turned ? i * x->stride + j : j * x->stride + i);
}

static float sum_of(const product *p, int64_t i, int64_t j) {
  int64_t K = p->m.a ? p->a.rows : p->a.cols;
  float sum = 0;
  for (int64_t begin = 0; begin < K; begin += p->run) {
    float part = 0;
    for (int64_t k = begin; k < begin + p->run && k < K; k++)
      part += element(&p->a, p->a_data, p->m.a, i, k) * element(&p->b, p->b_data, p->m.b, k, j);
    sum += part;
  }
  return sum;
}

/* Not as the kernels compute it, as the library does not either. */
static float gelu(float x) { return x / (1 + expf(-1.5957691f * (x + 0.044715f * x * x * x))); }

static void run_matrices(product p) {
  bool has_gelu = p.m.epilogue & 32;
  for (int64_t j = 0; j < p.d.cols; j++)
    for (int64_t i = 0; i < p.d.rows; i++) {
      float sum = sum_of(&p, i, j);
      if (p.plus) sum += read_number(p.d.type, p.plus, j * p.d.stride + i);
      if (p.m.epilogue & 4) sum += read_number(p.m.bias_type, p.m.bias, i);
      if (has_gelu) write_number(p.d.type, p.m.before, j * p.m.before_stride + i, sum);
      write_number(p.d.type, p.d_data, j * p.d.stride + i, has_gelu ? gelu(sum) : sum);
    }
}

static const void *moved(const void *data, int64_t elements, cudaDataType_t type) {
  return data ? (const char *)data + elements * (int64_t)bytes_of(type) : NULL;
}

static void run_product(const void *arguments) {
  product p;
  memcpy(&p, arguments, sizeof p);
  for (int32_t i = 0; i < p.d.count; i++) {
    product one = p;
    one.a_data = moved(p.a_data, i * p.a.step, p.a.type);
    one.b_data = moved(p.b_data, i * p.b.step, p.b.type);
    one.plus = moved(p.plus, i * p.d.step, p.d.type);
    one.d_data = (void *)moved(p.d_data, i * p.d.step, p.d.type);
    one.m.bias = moved(p.m.bias, i * p.m.bias_step, p.m.bias_type);
    run_matrices(one);
  }
}

/* As emulator.h logs the kernels' launches; of the row-major product. */
static void log_product(const product *p) {
  const char *path = getenv("EMULATED_CUDA_LAUNCHES");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  fprintf(
      f, "cuBLASLt %lld %lld %lld %d\n", (long long)p->d.cols, (long long)p->d.rows,
      (long long)(p->m.a ? p->a.rows : p->a.cols), (int)p->d.count);
  fclose(f);
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t m, const void *alpha, const void *a_data,
    cublasLtMatrixLayout_t a, const void *b_data, cublasLtMatrixLayout_t b, const void *beta,
    const void *c_data, cublasLtMatrixLayout_t c, void *d_data, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
    cudaStream_t stream) {
  (void)workspace, (void)workspace_bytes;
  const void *at[] = {a_data, b_data, d_data};
  float one, plus;
  cublasLtMatmulHeuristicResult_t checked;
  memcpy(&one, alpha, sizeof one);
  memcpy(&plus, beta, sizeof plus);
  cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, m, a, b, c, d, algo, &checked);
  for (int i = 0; !status && i < 3; i++)
    if (!runs_at(algo, i, at[i])) status = CUBLAS_STATUS_NOT_SUPPORTED;
  /* As some of the library's algorithms on an H100. */
  if (m->epilogue & 4 && (uintptr_t)m->bias % 4) status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (status || one != 1 || (plus != 0 && plus != 1))
    return status ? status : CUBLAS_STATUS_INVALID_VALUE;
  const cublasLtMatrixLayout_t operands[] = {a, b, d};
  int64_t run = run_of(algo, operands);
  const product p = {*m, *a, *b, *d, a_data, b_data, plus == 1 ? c_data : NULL, d_data, run};
  log_product(&p);
  gemm_calls++;
  emulated_begin(stream, "cublasLtMatmul", run_product, &p, sizeof p);
  return CUBLAS_STATUS_SUCCESS;
}
