// SPDX-License-Identifier: Apache-2.0
/* The pinned buffers by which the host reads and writes a device's memory (device.h). */
#ifndef TSR_DEVICE_CUDA_STAGING_H
#define TSR_DEVICE_CUDA_STAGING_H
#include "device/device.h"
#include <cuda_runtime_api.h>

enum { CUDA_STAGING_BYTES = 4 << 20 }; /* of a buffer */

typedef struct {
  pthread_mutex_t access;
  char *memory;                          /* TSR_STAGING_BUFFERS of them */
  cudaEvent_t done[TSR_STAGING_BUFFERS]; /* the last copy of each */
} cuda_staging;

static inline char *cuda_staging_buffer(const cuda_staging *s, int buffer) {
  return s->memory + (int64_t)buffer * CUDA_STAGING_BYTES;
}

cudaError_t cuda_staging_open(cuda_staging *ret_staging);
void cuda_staging_close(cuda_staging *s);
/* Begins a copy that has a buffer as one of its ends, and marks where it is done. */
cudaError_t cuda_staging_begin(
    cuda_staging *s, int buffer, void *to, const void *from, int64_t bytes, cudaStream_t stream);

#endif
