// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "queue.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned long emulated_launches(void) { return emulator::launches; }

/* ---- what is wrong ---- */

/* A device that has failed stays so. */
cudaError_t emulated_count(void) {
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
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
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
cudaError_t cudaGetLastError(void) { return emulated_count(); }

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *ret) { return *ret = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *ret) { return *ret = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *ret) {
  return (*ret = (int)emulator::setting("devices=", 1)) ? cudaSuccess : cudaErrorNoDevice;
}

static cudaError_t check_device(int device) {
  return device >= 0 && device < emulator::setting("devices=", 1) ? cudaSuccess
                                                                  : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret, int device) {
  int arch = (int)emulator::setting("arch=", 90);
  *ret = {"Emulated H200", arch / 10, arch % 10, 1, 0};
  ret->totalGlobalMem = (size_t)emulator::setting("bytes=", 4ll << 30);
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
