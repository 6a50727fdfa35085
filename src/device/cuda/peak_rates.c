// SPDX-License-Identifier: Apache-2.0
/* What a device can do at most, measured by what is most like it: a large product, a large copy. */
#include "device/cuda/device.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>

enum { ROUNDS = 5, WIDTH_OF_PROCESSOR = 64, PROCESSORS_MAX = 128, COPIED_OF_PROCESSOR = 4 << 20 };

typedef struct {
  const cuda_state *state;
  cudaEvent_t begin, end;
  void *a, *b, *c;
  size_t bytes; /* of each */
  tsr_cuda_type type;
  int64_t width;
} measuring;

static bool run_gemm(const measuring *m) {
  const tsr_cuda_gemm p = {
      .M = m->width,
      .N = m->width,
      .K = m->width,
      .type = m->type,
      .c_type = m->type,
      .a = {m->a, m->width, false},
      .b = {m->b, m->width, false},
      .c = m->c,
      .c_stride = m->width};
  return tsr_cuda_run_gemm(m->state->blas, m->state->stream, &p);
}

static bool run_copy(const measuring *m) {
  return cudaMemcpyAsync(m->c, m->a, m->bytes, cudaMemcpyDefault, m->state->stream) == cudaSuccess;
}

/* The least of some rounds behind a first one; 0: it could not be measured. */
static double least_seconds(const measuring *m, bool (*run)(const measuring *m)) {
  float least = 0;
  for (int i = 0; i <= ROUNDS; i++) {
    float ms = 0;
    bool ok = cudaEventRecord(m->begin, m->state->stream) == cudaSuccess && run(m) &&
              cudaEventRecord(m->end, m->state->stream) == cudaSuccess &&
              cudaEventSynchronize(m->end) == cudaSuccess &&
              cudaEventElapsedTime(&ms, m->begin, m->end) == cudaSuccess;
    if (!ok) return 0;
    if (i > 0 && (least == 0 || ms < least)) least = ms;
  }
  return least * 1e-3;
}

/* Of memory of the host that is not pinned: it is read when this returns. */
static bool copy_to(const measuring *m, void *to, const void *from) {
  return cudaMemcpyAsync(to, from, m->bytes, cudaMemcpyHostToDevice, m->state->stream) ==
         cudaSuccess;
}

/* Numbers of all kinds: matrix units are quicker with zeros. */
static bool fill(const measuring *m) {
  uint16_t *numbers = malloc(m->bytes);
  uint32_t state = 1;
  for (size_t i = 0; numbers && i < m->bytes / 2; i++) {
    state = state * 1664525 + 1013904223;
    uint16_t exponent = m->type == TSR_CUDA_F16 ? 0x3800 : 0x3F00; /* about 1/2, either sign */
    numbers[i] = (uint16_t)((state >> 16 & 0x807F) | exponent);
  }
  bool ok = numbers && copy_to(m, m->a, numbers) && copy_to(m, m->b, numbers);
  free(numbers);
  return ok;
}

static bool make_room(measuring *m) {
  return cudaEventCreate(&m->begin) == cudaSuccess && cudaEventCreate(&m->end) == cudaSuccess &&
         cudaMalloc(&m->a, m->bytes) == cudaSuccess && cudaMalloc(&m->b, m->bytes) == cudaSuccess &&
         cudaMalloc(&m->c, m->bytes) == cudaSuccess;
}

void cuda_measure_peaks(
    const cuda_state *state, int processors, tsr_cuda_type type, double *ret_flops,
    double *ret_bytes) {
  int64_t count = processors < PROCESSORS_MAX ? processors : PROCESSORS_MAX;
  measuring m = {.state = state, .type = type, .width = WIDTH_OF_PROCESSOR * count};
  size_t matrix = (size_t)(m.width * m.width) * (type == TSR_CUDA_F32 ? 4 : 2);
  m.bytes = (size_t)count * COPIED_OF_PROCESSOR;
  if (m.bytes < matrix) m.bytes = matrix;
  *ret_flops = *ret_bytes = 0;
  if (make_room(&m) && fill(&m)) {
    double gemm = least_seconds(&m, run_gemm), copy = least_seconds(&m, run_copy);
    double width = (double)m.width;
    if (gemm > 0) *ret_flops = 2 * width * width * width / gemm;
    if (copy > 0) *ret_bytes = 2 * (double)m.bytes / copy;
  }
  cudaFree(m.a);
  cudaFree(m.b);
  cudaFree(m.c);
  if (m.begin) cudaEventDestroy(m.begin);
  if (m.end) cudaEventDestroy(m.end);
}
