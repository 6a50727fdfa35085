// SPDX-License-Identifier: Apache-2.0
/* The part of CUDA's runtime that the plugin's host code calls, for devices that the emulator is.
 * What they are, and what is wrong with them, is in $EMULATED_CUDA, words of these with commas
 * between them:
 *
 *   devices=N     so many are visible (1)
 *   bytes=N       of memory that each has (4 GiB)
 *   arch=N        75: sm_75 (90)
 *   seed=N        operations are delayed and run in an order that is drawn from N, among those that
 *                 streams, events and graphs allow, and memory is protected (queue.h, memory.h).
 *                 0: an operation is done when it is begun, and no memory is protected
 *   fail=CODE@N   the Nth thing that a process begins fails with that error, and all after it
 *   stall=N       from the Nth cudaStreamQuery on streams do not end
 *   drop_wait=N   the Nth cudaStreamWaitEvent does nothing
 *   drop_sync=N   the Nth cudaStreamSynchronize, cudaEventSynchronize or cudaDeviceSynchronize does
 *                 nothing
 *   ends          cublasLt has no epilogue but the plain one
 *   uncaptured=N  the Nth capture fails when it ends */
#ifndef TSR_TESTS_CUDA_RUNTIME_H
#define TSR_TESTS_CUDA_RUNTIME_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Of kernels, so far. */
unsigned long emulated_launches(void);

typedef int cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
enum {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorSystemNotReady = 802,
  cudaErrorSystemDriverMismatch = 803,
  cudaErrorCompatNotSupportedOnDevice = 804,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906
};
enum { cudaMemAttachGlobal = 1, cudaHostAllocDefault = 0 };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};
struct cudaPointerAttributes {
  enum cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
#define CUDART_VERSION 13000

struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  size_t totalGlobalMem;
};

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);

cudaError_t cudaDriverGetVersion(int *ret);
cudaError_t cudaRuntimeGetVersion(int *ret);
cudaError_t cudaGetDeviceCount(int *ret);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret, int device);
cudaError_t cudaDeviceGetPCIBusId(char *ret, int length, int device);
cudaError_t cudaDeviceCanAccessPeer(int *ret, int device, int peer);
cudaError_t cudaSetDevice(int device);

/* What was never written is no number. */
cudaError_t cudaMallocManaged(void **ret, size_t bytes, unsigned flags);
cudaError_t cudaMalloc(void **ret, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocAsync(void **ret, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream);
cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned flags);
cudaError_t cudaMallocHost(void **ret, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_all);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *address);
cudaError_t cudaMemset(void *to, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    enum cudaMemcpyKind kind, cudaStream_t stream);

cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaStreamCreate(cudaStream_t *ret);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *ret);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
typedef void (*cudaHostFn_t)(void *context);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *context);

/* A graph holds what was begun while it was captured, with the arguments of that time. */
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraph_st *cudaGraphExec_t;
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t recording);
cudaError_t cudaGraphLaunch(cudaGraphExec_t recording, cudaStream_t stream);

/* ---- of the emulator's own ---- */

/* `work` gets a copy of what `arguments` point to. */
void emulated_begin(
    cudaStream_t stream, const char *what, void (*work)(const void *arguments),
    const void *arguments, size_t bytes);

/* What a stream begins with, for libraries that are not linked with the runtime. `step` goes as far
 * as it can now; whether it got anywhere is in *ret_moved, and whether it is done what it
 * returns. */
typedef bool emulated_step(void *context, bool *ret_moved);
struct emulated_stream {
  /* `step` of a captured stream is called in each launch of the graph until it returns true. */
  void (*begin)(cudaStream_t stream, const char *what, emulated_step *step, void *context);
  bool (*is_captured)(cudaStream_t stream);
};

#ifdef __cplusplus
}
#endif
#endif
