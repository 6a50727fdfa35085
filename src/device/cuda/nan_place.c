// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/nan_place.h"
#include "device/device.h"

static cudaError_t clear(const cuda_nan_place *p, cudaStream_t stream) {
  _Static_assert(TSR_NAN_NOWHERE == UINT64_MAX, "nowhere has all bits");
  return cudaMemsetAsync(p->least, 0xFF, sizeof *p->least, stream);
}

cudaError_t cuda_nan_place_open(cuda_nan_place *p, cudaStream_t stream) {
  cudaError_t error = cudaMalloc((void **)&p->least, sizeof *p->least);
  if (error == cudaSuccess)
    error = cudaHostAlloc((void **)&p->read, sizeof *p->read, cudaHostAllocDefault);
  return error == cudaSuccess ? clear(p, stream) : error;
}

cudaError_t cuda_nan_place_take(const cuda_nan_place *p, cudaStream_t stream) {
  cudaError_t error =
      cudaMemcpyAsync(p->read, p->least, sizeof *p->read, cudaMemcpyDeviceToHost, stream);
  return error == cudaSuccess ? clear(p, stream) : error;
}

void cuda_nan_place_close(cuda_nan_place *p) {
  cudaFree(p->least);
  cudaFreeHost(p->read);
}
