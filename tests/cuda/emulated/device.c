/* Lets the tests that a program is made of run on the emulated device. */
#include "device/cuda_device.h"
#include "tests/run/harness.h"
#include <stdio.h>
#include <stdlib.h>

static void lost(void *context, const char *report) {
  (void)context;
  fprintf(stderr, "%s\n", report);
  abort();
}

__attribute__((constructor)) static void open_device(void) {
  char why[512];
  if (!cuda_device_open(0, false, lost, NULL, &harness_device, why)) lost(NULL, why);
  harness_scratch = cuda_task_scratch;
}
