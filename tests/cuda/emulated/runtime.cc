// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ctime>
#include <string>

unsigned long emulated_launches(void) { return emulator::launches; }

/* ---- what is wrong ---- */

static long long setting(const char *word, long long otherwise) {
  const char *text = getenv("EMULATED_CUDA"), *at = text ? strstr(text, word) : NULL;
  return at ? strtoll(at + strlen(word), NULL, 10) : otherwise;
}

/* A device that has failed stays so. */
static cudaError_t begin(void) {
  static long long begun, at = -1, code;
  if (at < 0) {
    const char *text = getenv("EMULATED_CUDA"), *fail = text ? strstr(text, "fail=") : NULL;
    at = 0;
    if (fail && sscanf(fail, "fail=%lld@%lld", &code, &at) != 2) abort();
  }
  return ++begun >= at && at ? (cudaError_t)code : cudaSuccess;
}

static const struct {
  cudaError_t code;
  const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
};
enum { ERRORS = sizeof errors / sizeof *errors };

const char *cudaGetErrorString(cudaError_t error) {
  for (int i = 0; i < ERRORS; i++)
    if (errors[i].code == error) return errors[i].text;
  return "unrecognized error code";
}
const char *cudaGetErrorName(cudaError_t error) {
  for (int i = 0; i < ERRORS; i++)
    if (errors[i].code == error) return errors[i].name;
  return "unrecognized error code";
}
cudaError_t cudaGetLastError(void) { return begin(); }

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *ret) { return *ret = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *ret) { return *ret = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *ret) {
  return (*ret = (int)setting("devices=", 1)) ? cudaSuccess : cudaErrorNoDevice;
}

static cudaError_t check_device(int device) {
  return device >= 0 && device < setting("devices=", 1) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret, int device) {
  int arch = (int)setting("arch=", 90);
  *ret = {"Emulated H200", arch / 10, arch % 10, 1, 0};
  ret->totalGlobalMem = (size_t)setting("bytes=", 4ll << 30);
  return check_device(device);
}
cudaError_t cudaDeviceGetPCIBusId(char *ret, int length, int device) {
  snprintf(ret, (size_t)length, "0000:%02x:00.0", 0x1b + device);
  return check_device(device);
}
cudaError_t cudaDeviceCanAccessPeer(int *ret, int device, int peer) {
  *ret = 1;
  cudaError_t error = check_device(device);
  return error ? error : check_device(peer);
}
cudaError_t cudaSetDevice(int device) { return check_device(device); }

/* ---- memory ---- */

static size_t used;
/* In front of each block, which begins at a multiple of 256. */
enum { HEAD = 256 };

cudaError_t cudaMalloc(void **ret, size_t bytes) {
  bytes = (bytes + 255) / 256 * 256 + HEAD;
  if (used + bytes > (size_t)setting("bytes=", 4ll << 30)) return cudaErrorMemoryAllocation;
  char *block = (char *)aligned_alloc(256, bytes);
  if (!block) return cudaErrorMemoryAllocation;
  used += bytes;
  memset(block, 0xFF, bytes);
  memcpy(block, &bytes, sizeof bytes);
  return *ret = block + HEAD, cudaSuccess;
}
cudaError_t cudaMallocManaged(void **ret, size_t bytes, unsigned flags) {
  (void)flags;
  return cudaMalloc(ret, bytes);
}
cudaError_t cudaFree(void *memory) {
  size_t bytes;
  if (!memory) return cudaSuccess;
  memcpy(&bytes, (char *)memory - HEAD, sizeof bytes);
  used -= bytes;
  return free((char *)memory - HEAD), cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_all) {
  *ret_all = (size_t)setting("bytes=", 4ll << 30);
  return *ret_free = *ret_all - used, cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t) {
  emulator::begin([=]() { memset(to, byte, bytes); });
  return begin();
}
cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  emulator::begin([=]() { memmove(to, from, bytes); });
  return begin();
}

cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned) {
  *ret = malloc(bytes ? bytes : 1);
  return *ret ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *memory) { return free(memory), cudaSuccess; }

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned) {
  return *ret = NULL, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return emulator::captured ? cudaErrorStreamCaptureUnsupported : begin();
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

struct CUevent_st {
  double ms;
};

/* With stall=N the Nth question finds a stream that does not end, nor any later one. */
cudaError_t cudaStreamQuery(cudaStream_t) {
  static long long asked;
  long long at = setting("stall=", 0);
  return at && ++asked >= at ? cudaErrorNotReady : begin();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return begin(); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned) {
  return *ret = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *ret) { return cudaEventCreateWithFlags(ret, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  event->ms = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
  return begin();
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return begin(); }
cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t from, cudaEvent_t to) {
  return *ret_ms = (float)(to->ms - from->ms), cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }

/* ---- graphs ---- */

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  emulator::captured = new std::vector<std::function<void()>>;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *ret) {
  *ret = new CUgraph_st{std::move(*emulator::captured)};
  delete emulator::captured;
  emulator::captured = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret, cudaGraph_t graph, unsigned long long) {
  return *ret = new CUgraph_st(*graph), cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t recording) {
  return delete recording, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t recording, cudaStream_t) {
  for (const auto &work : recording->work) work();
  return begin();
}

void emulated_begin(void (*work)(const void *arguments), const void *arguments, size_t bytes) {
  std::string copy((const char *)arguments, bytes);
  emulator::begin([=]() { work(copy.data()); });
}
