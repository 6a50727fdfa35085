/* Lets the tests that a program is made of run on the first device, which is emulated or real. */
#include "device/cuda_device.h"
#include <cuda_runtime_api.h>
#include "tests/run/harness.h"
#include <stdio.h>
#include <stdlib.h>

static void lost(void *context, const char *report) {
  (void)context;
  fprintf(stderr, "%s\n", report);
  abort();
}

__attribute__((constructor)) static void open_device(void) {
  char why[TSR_CUDA_WHY_BYTES];
  const tsr_cuda_wish wish = {.lost = lost};
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    puts("skipped: no GPU");
    exit(77);
  }
  if (!cuda_device_open(&wish, &harness_device, why)) lost(NULL, why);
  harness_scratch = cuda_task_scratch;
}
