// SPDX-License-Identifier: Apache-2.0
/* How kernels are launched, the same for nvcc and for the tests' emulator (tests/cuda/emulator.h).
 * A kernel with several template arguments is put in brackets: TSR_LAUNCH((map<T, ADD>), …). Its
 * geometry is a tsr_launch_shape, which launch_shape.h computes. */
#ifndef TSR_KERNELS_CUDA_LAUNCH_CUH
#define TSR_KERNELS_CUDA_LAUNCH_CUH
#include "kernels/cuda/launch_shape.h"

#if defined(TSR_EMULATED)
#define TSR_LAUNCH(kernel, shape, stream, ...)                                                     \
  (emulator::log_launch(#kernel, launch_grid(shape), launch_block(shape), (shape).shared_bytes),   \
   emulator::launch_kernel(                                                                        \
       (stream), #kernel, launch_grid(shape), launch_block(shape), (size_t)(shape).shared_bytes,   \
       (kernel), __VA_ARGS__))
/* The memory that a launch asked for, `shared_bytes` of it, aligned to 128. */
#define TSR_SHARED(type, name) type *name = (type *)emulator::shared()
/* Before a launch with more than 48 KiB. Its error is what cudaGetLastError returns behind the
 * task, as a launch's is. */
#define TSR_ALLOW_SHARED(kernel, bytes)                                                            \
  emulator::allow_shared((const void *)(kernel), (size_t)(bytes))
#else
#define TSR_LAUNCH(kernel, shape, stream, ...)                                                     \
  kernel<<<launch_grid(shape), launch_block(shape), (size_t)(shape).shared_bytes, (stream)>>>(     \
      __VA_ARGS__)
#define TSR_SHARED(type, name)                                                                     \
  extern __shared__ __align__(128) unsigned char tsr_shared_bytes[];                               \
  type *name = (type *)tsr_shared_bytes
#define TSR_ALLOW_SHARED(kernel, bytes)                                                            \
  ((void)cudaFuncSetAttribute(                                                                     \
      (const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)))
#endif

static inline dim3 launch_grid(const tsr_launch_shape &s) {
  return dim3(s.grid[0], s.grid[1], s.grid[2]);
}
static inline dim3 launch_block(const tsr_launch_shape &s) {
  return dim3(s.block[0], s.block[1], s.block[2]);
}

static __device__ inline int64_t map_thread(void) {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t map_threads(void) { return (int64_t)gridDim.x * blockDim.x; }

#endif
