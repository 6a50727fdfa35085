// SPDX-License-Identifier: Apache-2.0
/* The CPU as a device that reports each task before it runs. The program, its memory and its
 * kernels are those of a run without it. */
#ifndef TSR_PROVE_OBSERVED_DEVICE_H
#define TSR_PROVE_OBSERVED_DEVICE_H
#include "device/cpu/cpu.h"

/* Between two tasks, on the thread that runs the steps: what the task reads is complete on all
 * ranks of its stage. */
typedef void tsr_task_observer(void *context, const tsr_launch *launch);

typedef struct {
  tsr_device device; /* what tsr_process_options takes */
  const tsr_device *cpu;
  tsr_task_observer *observe;
  void *context;
} tsr_observed_device;

bool tsr_observed_device_open(
    tsr_arena *arena, const tsr_cpu_context *cpu, tsr_task_observer *observe, void *context,
    tsr_observed_device **ret_device, tsr_diags *diags);
void tsr_observed_device_close(tsr_observed_device *device);

#endif
