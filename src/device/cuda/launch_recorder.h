// SPDX-License-Identifier: Apache-2.0
/* kernels/cuda/kernels.h and gemm.h for a device that is not there: every function adds its
 * launches to a list, which stands for the stream. Their geometry is computed by the functions that
 * the launchers call (launch_shape.h, attention_shape.h); which kernels a function launches is
 * compared with the launchers on an emulated device (tests/cuda/test_launches.py). Nothing is read
 * or written at any address; only the alignment of addresses matters.
 *
 * GEMMs are cuBLASLt's, which is assumed to have every epilogue that it is asked for. */
#ifndef TSR_DEVICE_CUDA_LAUNCH_RECORDER_H
#define TSR_DEVICE_CUDA_LAUNCH_RECORDER_H
#include "kernels/cuda/launch_shape.h"
#include "schedule/kernel_launch.h"
#include <string.h>

/* A call's arguments that its geometry does not depend on. */
#define UNUSED(...) ((void)sizeof((const void *[]){__VA_ARGS__}))

static inline tsr_kernel_launches *list_of(tsr_cuda_stream s) {
  return (tsr_kernel_launches *)(void *)s;
}

static inline void
record_tile(tsr_cuda_stream s, const char *kernel, tsr_launch_shape shape, const char *tile) {
  tsr_kernel_launch l = {.kernel = kernel, .shared_bytes = shape.shared_bytes, .tile = tile};
  memcpy(l.grid, shape.grid, sizeof l.grid);
  memcpy(l.block, shape.block, sizeof l.block);
  tsr_kernel_launches_add(list_of(s), &l);
}

static inline void record(tsr_cuda_stream s, const char *kernel, tsr_launch_shape shape) {
  record_tile(s, kernel, shape, "");
}

/* A library's work, whose geometry it chooses. */
static inline void record_library(tsr_cuda_stream s, const char *library, const char *work) {
  tsr_kernel_launches_add(list_of(s), &(tsr_kernel_launch){.kernel = library, .tile = work});
}

static inline const char *product(tsr_cuda_stream s, int64_t a, int64_t b, int64_t c) {
  return tsr_arena_printf(
      list_of(s)->arena, "%lld×%lld×%lld", (long long)a, (long long)b, (long long)c);
}

#endif
