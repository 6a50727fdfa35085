// SPDX-License-Identifier: Apache-2.0
/* How kernels are launched, the same for nvcc and for the tests' emulator (tests/cuda/emulator.h).
 * A kernel with several template arguments is put in brackets: TSR_LAUNCH((map<T, ADD>), …). */
#ifndef TSR_KERNELS_CUDA_LAUNCH_CUH
#define TSR_KERNELS_CUDA_LAUNCH_CUH
#include "kernels/cuda/kernels.h"

#if defined(TSR_EMULATED)
#define TSR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
  ((void)(stream),                                                                                 \
   emulator::launch_kernel((grid), (block), (size_t)(shared_bytes), (kernel), __VA_ARGS__))
/* The memory that a launch asked for, `shared_bytes` of it, aligned to 128. */
#define TSR_SHARED(type, name) type *name = (type *)emulator::shared()
/* Before a launch with more than 48 KiB. */
#define TSR_ALLOW_SHARED(kernel, bytes) ((void)(bytes))
#else
#define TSR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
  kernel<<<(grid), (block), (size_t)(shared_bytes), (stream)>>>(__VA_ARGS__)
#define TSR_SHARED(type, name)                                                                     \
  extern __shared__ __align__(128) unsigned char tsr_shared_bytes[];                               \
  type *name = (type *)tsr_shared_bytes
#define TSR_ALLOW_SHARED(kernel, bytes)                                                            \
  ((void)cudaFuncSetAttribute(                                                                     \
      (const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)))
#endif

enum { TSR_WARP = 32, TSR_MAP_THREADS = 256, TSR_MAP_BLOCKS = 1 << 16 };

/* Blocks for so many items, one a thread, where a kernel strides by the number of all threads. */
static inline unsigned map_blocks(int64_t items) {
  int64_t blocks = (items + TSR_MAP_THREADS - 1) / TSR_MAP_THREADS;
  return blocks < TSR_MAP_BLOCKS ? (unsigned)blocks : (unsigned)TSR_MAP_BLOCKS;
}

static __device__ inline int64_t map_thread(void) {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t map_threads(void) { return (int64_t)gridDim.x * blockDim.x; }

#endif
