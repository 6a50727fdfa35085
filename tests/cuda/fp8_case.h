// SPDX-License-Identifier: Apache-2.0
/* In which ways a GEMM in FP8 is computed, and the bound's first term, which depends on the device. */
#ifndef TSR_TESTS_CUDA_FP8_CASE_H
#define TSR_TESTS_CUDA_FP8_CASE_H
#include "cuda_check.h"

/* Which instructions, and when fetches come; one way on a real device. */
enum { WAYS = 4 };
static inline bool set_way(int way) {
#if defined(TSR_EMULATED)
  emulator::has_fp8 = way & 1;
  emulator::fetches_late = way & 2;
  run_backwards(way & 2);
  return true;
#else
  return way == 0;
#endif
}

/* The bound's first term: the emulator rounds once an instruction, of which a block has 8; tensor
 * cores for codes are those of sm_89 and sm_12x. */
static inline double steps_of_device() {
#if defined(TSR_EMULATED)
  return 8;
#else
  int major = 0, minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  bool codes = major >= 12 || (major == 8 && minor == 9);
  return codes ? TSR_CUDA_FP8_COARSE_STEPS : TSR_CUDA_FP8_STEPS;
#endif
}

#endif
