// SPDX-License-Identifier: Apache-2.0
/* kernels/cuda/gemm.h for the emulated device. Like cuBLASLt it has other bits for another
 * shape: into how many runs K is split, each of them a sum by itself, is a hash of the shape. So
 * whoever relies on the bits of a product has to ask for it in calls of one shape. */
#include "kernels/cuda/gemm.h"
#include "cuda_runtime_api.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tsr_cuda_blas {
  bool fast;
};

bool tsr_cuda_blas_open(bool fast, tsr_cuda_blas **ret_blas, char *why) {
  (void)why;
  *ret_blas = calloc(1, sizeof **ret_blas);
  if (*ret_blas) (*ret_blas)->fast = fast;
  return *ret_blas;
}
void tsr_cuda_blas_close(tsr_cuda_blas *blas) { free(blas); }
const char *tsr_cuda_blas_error(const tsr_cuda_blas *blas) { return (void)blas, "no error"; }

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

static float read_number(tsr_cuda_type type, const void *data, int64_t at) {
  if (type == TSR_CUDA_F32) return ((const float *)data)[at];
  uint16_t bits = ((const uint16_t *)data)[at];
  if (type == TSR_CUDA_F16) return half_to_float(bits);
  uint32_t wide = (uint32_t)bits << 16;
  float number;
  memcpy(&number, &wide, sizeof number);
  return number;
}

static float element(tsr_cuda_type type, const tsr_cuda_matrix *m, int64_t i, int64_t j) {
  return read_number(type, m->data, m->transposed ? j * m->stride + i : i * m->stride + j);
}

static int64_t run_of(const tsr_cuda_gemm *p) {
  uint64_t hash = ((uint64_t)p->M * 1000003 + (uint64_t)p->N) * 1000003 + (uint64_t)p->K;
  hash = (hash ^ hash >> 31) * 0x9E3779B97F4A7C15u;
  return 1 + (int64_t)(hash >> 60) % 7;
}

static void write_number(tsr_cuda_type type, void *c, int64_t at, float number) {
  if (type == TSR_CUDA_F32) {
    ((float *)c)[at] = number;
    return;
  }
  const tsr_kernels *k = tsr_kernels_get(NULL);
  uint16_t *to = (uint16_t *)c + at;
  if (type == TSR_CUDA_BF16) k->f32_to_bf16(to, &number, 0, 1);
  else k->f32_to_fp16(to, &number, 0, 1);
}

static float sum_of(const tsr_cuda_gemm *p, int64_t i, int64_t j) {
  int64_t run = run_of(p);
  float sum = 0;
  for (int64_t begin = 0; begin < p->K; begin += run) {
    float part = 0;
    for (int64_t k = begin; k < begin + run && k < p->K; k++)
      part += element(p->type, &p->a, i, k) * element(p->type, &p->b, k, j);
    sum += part;
  }
  return sum;
}

/* Not as the kernels compute it, as the library does not either. */
static float gelu(float x) { return x / (1 + expf(-1.5957691f * (x + 0.044715f * x * x * x))); }

static void run_elements(const void *arguments) {
  tsr_cuda_gemm p;
  memcpy(&p, arguments, sizeof p);
  for (int64_t i = 0; i < p.M; i++)
    for (int64_t j = 0; j < p.N; j++) {
      int64_t at = i * p.c_stride + j;
      float sum = sum_of(&p, i, j);
      if (p.plus) sum += read_number(p.c_type, p.plus, at);
      if (p.bias) sum += read_number(p.c_type, p.bias, j);
      if (p.before) write_number(p.c_type, p.before, at, sum);
      write_number(p.c_type, p.c, at, p.before ? gelu(sum) : sum);
    }
}

/* $EMULATED_CUDA holds "ends": no product but the plain one. */
bool tsr_cuda_has_gemm(tsr_cuda_blas *blas, const tsr_cuda_gemm *p) {
  const char *faults = getenv("EMULATED_CUDA");
  (void)blas;
  return !faults || !strstr(faults, "ends") || !(p->bias || p->before);
}

/* As emulator.h logs the kernels' launches. */
static void log_gemm(const tsr_cuda_gemm *p) {
  const char *path = getenv("EMULATED_CUDA_LAUNCHES");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  fprintf(f, "cuBLASLt %lld %lld %lld\n", (long long)p->M, (long long)p->N, (long long)p->K);
  fclose(f);
}

bool tsr_cuda_run_gemm(tsr_cuda_blas *blas, tsr_cuda_stream stream, const tsr_cuda_gemm *gemm) {
  (void)blas, (void)stream;
  log_gemm(gemm);
  emulated_begin(run_elements, gemm, sizeof *gemm);
  return true;
}
