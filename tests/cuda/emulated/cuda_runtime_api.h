/* The part of CUDA's runtime that the plugin's host code calls, for a device that the emulator is:
 * its memory is the host's, its work is done when it is begun. */
#ifndef TSR_TESTS_CUDA_RUNTIME_H
#define TSR_TESTS_CUDA_RUNTIME_H
#include <stdlib.h>
#include <string.h>

typedef int cudaError_t;
typedef struct CUstream_st *cudaStream_t;
enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum { cudaMemAttachGlobal = 1, cudaStreamNonBlocking = 1, cudaMemcpyDeviceToDevice = 3 };

static inline const char *cudaGetErrorString(cudaError_t error) {
  return error ? "out of memory" : "no error";
}
static inline cudaError_t cudaGetLastError(void) { return cudaSuccess; }
static inline cudaError_t cudaSetDevice(int device) { return device ? 101 : cudaSuccess; }

/* What was never written is no number. */
static inline cudaError_t cudaMallocManaged(void **ret, size_t bytes, unsigned flags) {
  (void)flags;
  bytes = (bytes + 255) / 256 * 256;
  *ret = aligned_alloc(256, bytes ? bytes : 256);
  if (*ret) memset(*ret, 0xFF, bytes);
  return *ret ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaFree(void *memory) { return free(memory), cudaSuccess; }
static inline cudaError_t cudaMemset(void *to, int byte, size_t bytes) {
  return memset(to, byte, bytes), cudaSuccess;
}
static inline cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_all) {
  return *ret_free = *ret_all = (size_t)1 << 32, cudaSuccess;
}
static inline cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream) {
  (void)kind, (void)stream;
  return memmove(to, from, bytes), cudaSuccess;
}
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags) {
  (void)flags;
  return *ret = NULL, cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t s) { return (void)s, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return (void)s, cudaSuccess; }

#endif
