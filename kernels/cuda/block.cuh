// SPDX-License-Identifier: Apache-2.0
/* Sums and maxima over a warp and over a block, in a tree that depends on the number of threads
 * alone, sums over the threads before each, and the loop over a row. Every thread gets the result:
 * lanes add each other's values crosswise, and a + b has the bits of b + a. */
#ifndef TSR_KERNELS_CUDA_BLOCK_CUH
#define TSR_KERNELS_CUDA_BLOCK_CUH
#include "kernels/cuda/launch.cuh"

template <typename T> static __device__ inline T warp_sum(T x) {
  for (int distance = TSR_WARP / 2; distance; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}

/* A NaN may be passed over: the sums that follow show it. */
static __device__ inline float larger(float a, float b) { return fmaxf(a, b); }
static __device__ inline double larger(double a, double b) { return fmax(a, b); }

template <typename T> static __device__ inline T warp_max(T x) {
  for (int distance = TSR_WARP / 2; distance; distance /= 2)
    x = larger(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

/* The number of threads is a multiple of 32. `scratch` is shared memory of 32 numbers, and free
 * again afterwards. */
template <typename T> static __device__ inline T block_sum(T x, T *scratch) {
  int warps = (int)blockDim.x / TSR_WARP, lane = (int)threadIdx.x % TSR_WARP;
  x = warp_sum(x);
  if (warps == 1) return x;
  if (lane == 0) scratch[threadIdx.x / TSR_WARP] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? scratch[lane] : (T)0);
  __syncthreads();
  return x;
}

template <typename T> static __device__ inline T block_max(T x, T *scratch) {
  int warps = (int)blockDim.x / TSR_WARP, lane = (int)threadIdx.x % TSR_WARP;
  x = warp_max(x);
  if (warps == 1) return x;
  if (lane == 0) scratch[threadIdx.x / TSR_WARP] = x;
  __syncthreads();
  x = warp_max(scratch[lane < warps ? lane : 0]);
  __syncthreads();
  return x;
}

/* The sum of x over the threads before this one, and over all; all LAUNCH_SCAN_THREADS threads of
 * the block come here, once in a kernel. (Hillis and Steele 1986) */
static __device__ inline int32_t block_sum_before(int32_t x, int32_t *ret_all) {
  __shared__ int32_t ends[LAUNCH_SCAN_THREADS];
  ends[threadIdx.x] = x;
  __syncthreads();
  for (unsigned distance = 1; distance < LAUNCH_SCAN_THREADS; distance *= 2) {
    int32_t before = threadIdx.x >= distance ? ends[threadIdx.x - distance] : 0;
    __syncthreads();
    ends[threadIdx.x] += before;
    __syncthreads();
  }
  *ret_all = ends[LAUNCH_SCAN_THREADS - 1];
  return ends[threadIdx.x] - x;
}

/* A block's row: packs of W elements, dealt out to the threads in turn. */
#define EACH_PACK(c, C, W)                                                                         \
  for (int64_t c = (int64_t)threadIdx.x * (W); c < (C); c += (int64_t)blockDim.x * (W))

#define EACH_LANE(k, W) _Pragma("unroll") for (int k = 0; k < (W); k++)

#endif
