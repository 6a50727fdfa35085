// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/copy_stream.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

cudaError_t cuda_copy_stream_open(cuda_copy_stream *s) {
  *s = (cuda_copy_stream){.room = 0};
  cudaError_t error = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  return cudaEventCreateWithFlags(&s->begin, cudaEventDisableTiming);
}

void cuda_copy_stream_close(cuda_copy_stream *s) {
  for (int i = 0; i < s->room; i++)
    if (s->done[i]) cudaEventDestroy(s->done[i]);
  free(s->done);
  cudaEventDestroy(s->begin);
  cudaStreamDestroy(s->stream);
}

/* The first step makes all of them. */
static cudaError_t find_event(cuda_copy_stream *s, int number, cudaEvent_t *ret_event) {
  cudaError_t error = cudaSuccess;
  if (number >= s->room) {
    int room = number + 1;
    cudaEvent_t *done = realloc(s->done, sizeof *done * (size_t)room);
    if (!done) return cudaErrorMemoryAllocation;
    memset(done + s->room, 0, sizeof *done * (size_t)(room - s->room));
    s->done = done;
    s->room = room;
  }
  if (!s->done[number]) error = cudaEventCreateWithFlags(&s->done[number], cudaEventDisableTiming);
  *ret_event = s->done[number];
  return error;
}

cudaError_t cuda_copies_begin(
    cuda_copy_stream *s, cudaStream_t tasks, int number, const tsr_device_copy *copies, int count) {
  cudaEvent_t done;
  cudaError_t error = find_event(s, number, &done);
  if (error == cudaSuccess) error = cudaEventRecord(s->begin, tasks);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(s->stream, s->begin, 0);
  for (int i = 0; error == cudaSuccess && i < count; i++)
    error = cudaMemcpyAsync(
        copies[i].to, copies[i].from, (size_t)copies[i].bytes, cudaMemcpyDefault, s->stream);
  return error == cudaSuccess ? cudaEventRecord(done, s->stream) : error;
}

cudaError_t cuda_copies_wait(cuda_copy_stream *s, cudaStream_t tasks, int number) {
  assert(number < s->room && s->done[number]);
  return cudaStreamWaitEvent(tasks, s->done[number], 0);
}
