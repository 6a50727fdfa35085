// SPDX-License-Identifier: Apache-2.0
/* GEMMs of one shape have the same bits whatever their strides and addresses are: pieces of a
 * matrix whose columns a mesh splits, also where their number is odd. The emulated library's own
 * choices for each stride do not have them. The GEMMs of a batch have the bits that each has by
 * itself, which the library's choice for the batch does not have, whether they are one call or, of
 * algorithms and distances that allow no batch, several. */
#include "tests/cuda/emulated/device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernel_limits.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>

enum { GAP_MAX = 24, ROOM = 1 << 20 }; /* bytes of an operand */

typedef struct {
  tsr_cuda_blas *blas;
  char *device[6], *host; /* a, b, c, plus or bias, before, scratch */
  cudaStream_t stream;
} bench;

typedef struct {
  tsr_cuda_type type, c_type;
  int64_t M, N, K;
  bool a_transposed, b_transposed, adds, has_bias, has_gelu;
} problem;

static void check(cudaError_t error) {
  CHECK_AT(error == cudaSuccess, "%s", cudaGetErrorString(error));
  if (error != cudaSuccess) exit(1);
}

static bench bench_open(void) {
  bench b = {.host = malloc(ROOM)};
  char why[512];
  for (int i = 0; i < 6; i++) check(cudaMalloc((void **)&b.device[i], ROOM));
  check(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
  CHECK_AT(tsr_cuda_blas_open(false, &b.blas, why), "%s", why);
  return b;
}

static void bench_close(bench *b) {
  tsr_cuda_blas_close(b->blas);
  check(cudaStreamDestroy(b->stream));
  for (int i = 0; i < 6; i++) check(cudaFree(b->device[i]));
  free(b->host);
}

static int64_t bytes_of(tsr_cuda_type type) { return type == TSR_CUDA_F32 ? 4 : 2; }

/* About one, either sign; with gaps of NaNs. */
static void *
put(bench *b, int operand, tsr_cuda_type type, int64_t rows, int64_t cols, int64_t stride,
    int64_t first) {
  int64_t size = bytes_of(type);
  uint32_t state = 7 + (uint32_t)operand;
  memset(b->host, 0xFF, ROOM);
  for (int64_t i = 0; i < rows * cols; i++) {
    state = state * 1664525 + 1013904223;
    uint32_t word = 0x3F800000 | state >> 9 | (state & 1) << 31;
    uint16_t half = (uint16_t)(word >> 16);
    if (type == TSR_CUDA_F16) half = (uint16_t)(0x3C00 | (state >> 20 & 0x3FF) | (state & 1) << 15);
    char *to = b->host + (first + i / cols * stride + i % cols) * size;
    memcpy(to, size == 4 ? (void *)&word : (void *)&half, (size_t)size);
  }
  check(cudaMemcpyAsync(b->device[operand], b->host, ROOM, cudaMemcpyDefault, b->stream));
  check(cudaStreamSynchronize(b->stream));
  return b->device[operand] + first * size;
}

/* The elements of c, and of gelu's input, without their gaps, with operands `gap` elements between
 * their rows, beginning `first` elements behind an aligned address; false: no algorithm. */
static bool run(bench *b, const problem *p, int64_t gap, int64_t first, char *ret_c) {
  int64_t a_rows = p->a_transposed ? p->K : p->M, a_cols = p->a_transposed ? p->M : p->K;
  int64_t b_rows = p->b_transposed ? p->N : p->K, b_cols = p->b_transposed ? p->K : p->N;
  int64_t size = bytes_of(p->c_type), stride = p->N + gap;
  tsr_cuda_gemm g = {.M = p->M, .N = p->N, .K = p->K, .type = p->type, .c_type = p->c_type};
  g.a = (tsr_cuda_matrix){
      put(b, 0, p->type, a_rows, a_cols, a_cols + gap, first), a_cols + gap, p->a_transposed};
  g.b = (tsr_cuda_matrix){
      put(b, 1, p->type, b_rows, b_cols, b_cols + gap, first), b_cols + gap, p->b_transposed};
  g.c = put(b, 2, p->c_type, p->M, p->N, stride, first);
  g.c_stride = stride;
  if (p->adds) g.plus = g.c;
  if (p->has_bias) g.bias = put(b, 3, p->c_type, 1, p->N, p->N, first);
  if (p->has_gelu) g.before = put(b, 4, p->c_type, p->M, p->N, stride, first);
  g.scratch = b->device[5];
  int64_t scratch = tsr_cuda_gemm_scratch(
      p->M, p->N, p->K, (int)bytes_of(p->type), (int)size, p->has_bias || p->has_gelu);
  CHECK_AT(scratch <= ROOM, "%lld bytes of scratch", (long long)scratch);
  if (!tsr_cuda_run_gemm(b->blas, b->stream, &g)) return false;
  for (int from = 2; from < (p->has_gelu ? 5 : 3); from += 2, ret_c += p->M * p->N * size) {
    check(cudaMemcpyAsync(b->host, b->device[from], ROOM, cudaMemcpyDefault, b->stream));
    check(cudaStreamSynchronize(b->stream));
    for (int64_t i = 0; i < p->M; i++)
      memcpy(ret_c + i * p->N * size, b->host + (first + i * stride) * size, (size_t)(p->N * size));
  }
  return true;
}

/* Elements that 16 bytes have, where an operand's rows must be that aligned; else 1. */
static int64_t unit_of(const problem *p) {
  int64_t a = p->a_transposed ? p->M : p->K, b = p->b_transposed ? p->K : p->N;
  int64_t in = bytes_of(p->type), out = bytes_of(p->c_type);
  bool aligned = a * in % 16 == 0 || b * in % 16 == 0 || p->N * out % 16 == 0;
  return aligned ? 16 / (in < out ? in : out) : 1;
}

static void check_problem(bench *b, const problem *p) {
  static const int64_t gaps[] = {0, 1, 2, 3, 5}, firsts[] = {0, 1, 2};
  static char want[ROOM], got[ROOM];
  size_t bytes = (size_t)(p->M * p->N * bytes_of(p->c_type)) << p->has_gelu;
  int64_t unit = unit_of(p);
  CHECK_AT(run(b, p, 0, 0, want), "%s", tsr_cuda_blas_error(b->blas));
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < 3; k++) {
      bool is = run(b, p, gaps[i] * unit, firsts[k] * unit, got);
      CHECK_AT(
          is && !memcmp(got, want, bytes),
          "(%lld, %lld, %lld), types %d %d, transposed %d %d, adds %d, bias %d, gelu %d, rows %lld "
          "apart, at "
          "%lld: "
          "%s",
          (long long)p->M, (long long)p->N, (long long)p->K, (int)p->type, (int)p->c_type,
          p->a_transposed, p->b_transposed, p->adds, p->has_bias, p->has_gelu,
          (long long)(gaps[i] * unit), (long long)(firsts[k] * unit),
          is ? "other bits" : tsr_cuda_blas_error(b->blas));
    }
}

/* ---- batches ---- */

enum { GEMMS = 3, STEP = 1 << 14 }; /* bytes from one operand to the next */

/* All in one call or each in one of its own; c of all of them. False: no algorithm. */
static bool run_batch(bench *b, const problem *p, int64_t off, bool whole, char *ret_c) {
  int64_t in = bytes_of(p->type), out = bytes_of(p->c_type), step = STEP + off;
  int64_t a_cols = p->a_transposed ? p->M : p->K, b_cols = p->b_transposed ? p->K : p->N;
  char *at[4] = {
      put(b, 0, p->type, 1, ROOM / in, ROOM / in, 0),
      put(b, 1, p->type, 1, ROOM / in, ROOM / in, 0),
      put(b, 2, p->c_type, 1, ROOM / out, ROOM / out, 0),
      put(b, 3, p->c_type, 1, ROOM / out, ROOM / out, 0)};
  for (int i = 0; i < (whole ? 1 : GEMMS); i++) {
    tsr_cuda_gemm g = {.M = p->M, .N = p->N, .K = p->K, .type = p->type, .c_type = p->c_type};
    g.a = (tsr_cuda_matrix){at[0] + i * step, a_cols, p->a_transposed};
    g.b = (tsr_cuda_matrix){at[1], b_cols, p->b_transposed}; /* all read it */
    g.c = at[2] + i * step;
    g.c_stride = p->N;
    if (p->adds) g.plus = g.c;
    if (p->has_bias) g.bias = at[3] + i * step;
    g.scratch = b->device[5];
    if (whole) g.batch = (tsr_cuda_batch){GEMMS, step / in, 0, step / out, step / out};
    if (!tsr_cuda_run_gemm(b->blas, b->stream, &g)) return false;
  }
  check(cudaMemcpyAsync(b->host, b->device[2], ROOM, cudaMemcpyDefault, b->stream));
  check(cudaStreamSynchronize(b->stream));
  for (int i = 0; i < GEMMS; i++) {
    char *from = b->host + i * step;
    memcpy(ret_c + i * p->M * p->N * out, from, (size_t)(p->M * p->N * out));
  }
  return true;
}

#ifdef TSR_TESTS_CUDA_RUNTIME_H /* the emulator, which counts */
#include <cublasLt.h>
static unsigned long count_calls(void) { return emulated_gemm_calls(); }
#else
static unsigned long count_calls(void) { return 0; }
#endif

/* Returns whether the batch was one call. */
static bool check_batch(bench *b, const problem *p, int64_t off) {
  static char want[ROOM], got[ROOM];
  size_t bytes = (size_t)(GEMMS * p->M * p->N * bytes_of(p->c_type));
  if (!run_batch(b, p, off, false, want)) return false; /* no such epilogue */
  unsigned long before = count_calls();
  CHECK_AT(run_batch(b, p, off, true, got), "%s", tsr_cuda_blas_error(b->blas));
  unsigned long calls = count_calls() - before;
  CHECK_AT(
      !memcmp(got, want, bytes),
      "a batch of (%lld, %lld, %lld), types %d %d, transposed %d %d, adds %d, bias %d, %lld bytes "
      "apart, has other bits",
      (long long)p->M, (long long)p->N, (long long)p->K, (int)p->type, (int)p->c_type,
      p->a_transposed, p->b_transposed, p->adds, p->has_bias, (long long)(STEP + off));
  return calls < GEMMS;
}

/* Distances that are no multiple of 16 bytes are no batch. */
static void check_batches(const char *faults) {
  static const int64_t shapes[][3] = {{8, 16, 32}, {16, 8, 24}, {5, 33, 64}, {64, 13, 7}};
  static const tsr_cuda_type types[][2] = {
      {TSR_CUDA_F32, TSR_CUDA_F32}, {TSR_CUDA_BF16, TSR_CUDA_BF16}, {TSR_CUDA_BF16, TSR_CUDA_F32}};
  int batches = 0, unaligned = 0, all = 0;
  if (faults) setenv("EMULATED_CUDA", faults, 1);
  bench b = bench_open();
  for (int s = 0; s < 4; s++)
    for (int t = 0; t < 3; t++)
      for (int turned = 0; turned < 4; turned++)
        for (int more = 0; more < 3; more++) {
          problem p = {types[t][0], types[t][1],      shapes[s][0], shapes[s][1], shapes[s][2],
                       turned & 1,  (turned & 2) > 0, more == 1,    more == 2};
          batches += check_batch(&b, &p, 0);
          unaligned += check_batch(&b, &p, 4);
          all++;
        }
  bench_close(&b);
  (void)unaligned, (void)all;
  unsetenv("EMULATED_CUDA");
#ifdef TSR_TESTS_CUDA_RUNTIME_H
  bool some = faults && strstr(faults, "choosy"), none = faults && strstr(faults, "singles");
  CHECK_AT(
      none   ? !batches
      : some ? batches > 0 && batches < all
             : batches > all / 2,
      "%d of %d batches are one call", batches, all);
  CHECK_INT(unaligned, 0);
#endif
}

/* Without room for copies some strides are refused: the copies above were needed. */
static void check_refusals(bench *b) {
  int refused = 0;
  for (int64_t stride = 17; stride < 81; stride++) {
    tsr_cuda_gemm g = {
        .M = 4, .N = 5, .K = 17, .a = {b->device[0], stride}, .b = {b->device[1], 5}};
    g.c = b->device[2];
    g.c_stride = 5;
    if (!tsr_cuda_run_gemm(b->blas, b->stream, &g)) refused++;
  }
  check(cudaStreamSynchronize(b->stream));
#ifdef TSR_TESTS_CUDA_RUNTIME_H
  CHECK(refused > 0 && refused < 64);
#endif
}

int main(void) {
  static const int64_t shapes[][3] = {{8, 16, 32}, {6, 7, 16},  {5, 33, 64},  {12, 25, 41},
                                      {1, 64, 96}, {64, 13, 7}, {32, 48, 128}};
  static const tsr_cuda_type types[][2] = {
      {TSR_CUDA_F32, TSR_CUDA_F32},
      {TSR_CUDA_BF16, TSR_CUDA_BF16},
      {TSR_CUDA_BF16, TSR_CUDA_F32},
      {TSR_CUDA_F16, TSR_CUDA_F16}};
  bench b = bench_open();
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int t = 0; t < 4; t++)
      for (int turned = 0; turned < 4; turned++)
        for (int more = 0; more < 4; more++) {
          problem p = {types[t][0],      types[t][1],      shapes[s][0], shapes[s][1], shapes[s][2],
                       (turned & 1) > 0, (turned & 2) > 0, more == 1,    more == 2,    more == 3};
          check_problem(&b, &p);
        }
  check_refusals(&b);
  bench_close(&b);
  check_batches(NULL);
  check_batches("choosy");
  check_batches("singles");
  return check_done("cuda.gemm");
}
