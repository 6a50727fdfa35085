// SPDX-License-Identifier: Apache-2.0
/* The emulator runs right kernels and stops wrong ones. */
#include "kernels/cuda/block.cuh"
#include "stopped.h"

/* The sum of 0..threads-1 in every way that a block has. */
static __global__ void sums(float *out, double *wide) {
  __shared__ float scratch[TSR_WARP];
  __shared__ double more[TSR_WARP];
  TSR_SHARED(float, words);
  bool poisoned = std::isnan(scratch[threadIdx.x % TSR_WARP]) || threadIdx.x >= TSR_WARP;
  words[threadIdx.x] = (float)threadIdx.x;
  __syncthreads();
  float other = words[blockDim.x - 1 - threadIdx.x];
  float sum = block_sum(other, scratch), most = block_max(other, scratch);
  double twice = block_sum(2.0 * threadIdx.x, more);
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = poisoned ? sum + most * 100000 : NAN;
  wide[i] = twice;
}

static tsr_launch_shape shape(dim3 grid, int threads, int64_t shared_bytes) {
  return {{grid.x, grid.y, grid.z}, {(unsigned)threads, 1, 1}, shared_bytes};
}

static void test_sums(int threads) {
  enum { BLOCKS = 3 };
  static float out[BLOCKS * 1024];
  static double wide[BLOCKS * 1024];
  for (int backwards = 0; backwards < 2; backwards++) {
    emulator::backwards = backwards;
    TSR_LAUNCH(sums, shape(BLOCKS, threads, threads * 4), 0, out, wide);
    for (int i = 0; i < BLOCKS * threads; i++) {
      CHECK_NEAR(out[i], threads * (threads - 1) / 2 + (threads - 1) * 100000.0, 1e-6);
      CHECK_NEAR(wide[i], threads * (threads - 1.0), 0);
    }
  }
  emulator::backwards = false;
}

static __global__ void shuffles(int *out) {
  int t = (int)threadIdx.x, x = __shfl_xor_sync(~0u, t, 5), y = __shfl_xor_sync(~0u, x, 3);
  out[t] = x + 100 * y + 10000 * __shfl_xor_sync(~0u, y, 16);
}

/* ---- what must not be ---- */

static __global__ void ends_early(int *) {
  if (threadIdx.x == 40) return;
  __syncthreads();
}

static __global__ void parts_ways(int *) {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
}

static __global__ void lane_ends(int *out) {
  if (threadIdx.x == 3) return;
  out[0] = __shfl_xor_sync(~0u, 1, 1);
}

static __global__ void masks_differ(int *out) {
  out[0] = __shfl_xor_sync(threadIdx.x % 2 ? ~0u : 0x55555555u, 1, 2);
}

static __global__ void half_waits(int *) {
  if (threadIdx.x < 32) __syncthreads();
  else __syncwarp(0xFFFF);
}

static __global__ void writes_behind(int *) {
  TSR_SHARED(float, words);
  words[threadIdx.x] = 0;
}

static __global__ void nothing(int *) {}

#define STOPPED(kernel, ...)                                                                       \
  stopped([] {                                                                                     \
    static int out[64];                                                                            \
    TSR_LAUNCH(kernel, shape(__VA_ARGS__), 0, out);                                                \
  })

int main(void) {
  for (int threads = 32; threads <= 1024; threads *= 2) test_sums(threads);
  static int out[64];
  TSR_LAUNCH(shuffles, shape(1, 64, 0), 0, out);
  for (int t = 0; t < 64; t++) CHECK_INT(out[t], (t ^ 5) + 100 * (t ^ 6) + 10000 * (t ^ 22));
  check_stopped(STOPPED(ends_early, 1, 64, 0), "has ended, others wait for it");
  check_stopped(STOPPED(parts_ways, 1, 64, 0), "waits elsewhere than the block");
  check_stopped(STOPPED(lane_ends, 1, 32, 0), "waits for a lane that has ended");
  check_stopped(STOPPED(masks_differ, 1, 32, 0), "waits for a lane that has ended");
  check_stopped(STOPPED(half_waits, 1, 64, 0), "its mask is without it");
  check_stopped(STOPPED(lane_ends, 1, 16, 0), "waits for a lane that has ended");
  check_stopped(STOPPED(writes_behind, 1, 64, 252), "wrote behind its shared memory");
  check_stopped(STOPPED(nothing, 1, 1025, 0), "a block of that size");
  check_stopped(STOPPED(nothing, dim3(1, 65536), 1, 0), "a grid of that size");
  check_stopped(STOPPED(nothing, 1, 1, 300000), "that much shared memory");
  check_stopped(STOPPED(nothing, 1, 1, 60000), "more shared memory than is allowed");
  CHECK(STOPPED(nothing, 2, 1024, 0) == "it went on");
  return check_done("cuda.emulator");
}
