// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/staging.h"

cudaError_t cuda_staging_open(cuda_staging *s) {
  enum { BYTES = TSR_STAGING_BUFFERS * CUDA_STAGING_BYTES };
  pthread_mutex_init(&s->access, NULL);
  cudaError_t error = cudaHostAlloc((void **)&s->memory, BYTES, cudaHostAllocDefault);
  for (int i = 0; error == cudaSuccess && i < TSR_STAGING_BUFFERS; i++)
    error = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming);
  return error;
}

void cuda_staging_close(cuda_staging *s) {
  for (int i = 0; i < TSR_STAGING_BUFFERS; i++) cudaEventDestroy(s->done[i]);
  cudaFreeHost(s->memory);
  pthread_mutex_destroy(&s->access);
}

cudaError_t cuda_staging_begin(
    cuda_staging *s, int buffer, void *to, const void *from, int64_t bytes, cudaStream_t stream) {
  bool reads = to == cuda_staging_buffer(s, buffer);
  cudaError_t error = cudaMemcpyAsync(
      to, from, (size_t)bytes, reads ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream);
  return error == cudaSuccess ? cudaEventRecord(s->done[buffer], stream) : error;
}
