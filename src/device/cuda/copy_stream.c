// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/copy_stream.h"
#include <assert.h>

cudaError_t cuda_copy_stream_open(cuda_copy_stream *s) {
  *s = (cuda_copy_stream){.stream = NULL};
  cudaError_t error = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  return cudaEventCreateWithFlags(&s->begin, cudaEventDisableTiming);
}

void cuda_copy_stream_close(cuda_copy_stream *s) {
  cuda_numbered_events_close(&s->done);
  cudaEventDestroy(s->begin);
  cudaStreamDestroy(s->stream);
}

cudaError_t cuda_copies_begin(
    cuda_copy_stream *s, cudaStream_t tasks, int number, const tsr_device_copy *copies, int count) {
  cudaEvent_t done;
  cudaError_t error = cuda_numbered_event(&s->done, number, &done);
  if (error == cudaSuccess) error = cudaEventRecord(s->begin, tasks);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(s->stream, s->begin, 0);
  for (int i = 0; error == cudaSuccess && i < count; i++)
    error = cudaMemcpyAsync(
        copies[i].to, copies[i].from, (size_t)copies[i].bytes, cudaMemcpyDefault, s->stream);
  return error == cudaSuccess ? cudaEventRecord(done, s->stream) : error;
}

cudaError_t cuda_copies_wait(cuda_copy_stream *s, cudaStream_t tasks, int number) {
  assert(number < s->done.room && s->done.all[number]);
  return cudaStreamWaitEvent(tasks, s->done.all[number], 0);
}
