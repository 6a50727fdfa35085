// SPDX-License-Identifier: Apache-2.0
/* Copies between the device's memory and the host's pinned memory, on a stream of their own beside
 * that of the tasks. They may be captured: the stream joins a capture with its first copies, and
 * the wait for its last ones ends that. */
#ifndef TSR_DEVICE_CUDA_COPY_STREAM_H
#define TSR_DEVICE_CUDA_COPY_STREAM_H
#include "device/cuda/numbered_events.h"
#include "device/device.h"
#include <cuda_runtime_api.h>

typedef struct {
  cudaStream_t stream;
  cudaEvent_t begin;         /* of the tasks' stream, which copies come after */
  cuda_numbered_events done; /* of the number's last copies */
} cuda_copy_stream;

cudaError_t cuda_copy_stream_open(cuda_copy_stream *ret_stream);
void cuda_copy_stream_close(cuda_copy_stream *s);
/* The copies come after what `tasks` has so far. */
cudaError_t cuda_copies_begin(
    cuda_copy_stream *s, cudaStream_t tasks, int number, const tsr_device_copy *copies, int count);
/* What `tasks` gets from now on comes after the number's copies. */
cudaError_t cuda_copies_wait(cuda_copy_stream *s, cudaStream_t tasks, int number);

#endif
