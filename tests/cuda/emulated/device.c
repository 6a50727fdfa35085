// SPDX-License-Identifier: Apache-2.0
/* Lets the tests that a program is made of run on the first device, which is emulated or real. */
#include "tests/cuda/emulated/device.h"
#include "device/cuda/device.h"
#include <cuda_runtime_api.h>
#include "tests/run/harness.h"
#include <stdio.h>
#include <stdlib.h>

static void lost(void *context, const char *report) {
  (void)context;
  fprintf(stderr, "%s\n", report);
  abort();
}

static tsr_cpu_context cpu;
static tsr_target host;

void test_device_open(bool fast) {
  char why[TSR_CUDA_WHY_BYTES];
  const tsr_cuda_request request = {.lost = lost, .fast = fast};
  if (harness_device) cuda_device_close(harness_device);
  if (!cuda_device_open(&request, &harness_device, why)) lost(NULL, why);
  cpu = (tsr_cpu_context){tsr_kernels_get(NULL), 1};
  host = tsr_cpu_target(&cpu);
  harness_target = tsr_cuda_target(&host, fast, false);
}

__attribute__((constructor)) static void open_device(void) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    puts("skipped: no GPU");
    exit(77);
  }
  test_device_open(false);
}
