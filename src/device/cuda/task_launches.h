// SPDX-License-Identifier: Apache-2.0
/* What runs on a CUDA device, without one: tasks and collectives run as the plugin runs them
 * (run_task.c and the files of the ops), on kernels that only record how they are launched. The
 * program links this beside the plugin's interface, never beside the plugin's own kernels. */
#ifndef TSR_DEVICE_CUDA_TASK_LAUNCHES_H
#define TSR_DEVICE_CUDA_TASK_LAUNCHES_H
#include "device/device.h"
#include "schedule/kernel_launch.h"

/* An address that is aligned as a device's memory is; there is no memory. */
void *tsr_cuda_address(int number);

/* Adds the launches of a task that is no collective, nor on the host, for the rank with `coord`. */
void tsr_cuda_task_launches(
    const tsr_program *program, const tsr_task *task, const int coord[TSR_AXES], int64_t microbatch,
    bool fast, tsr_kernel_launches *launches);

/* A device whose sum_members, move and copy add to the list; it has nothing else. */
tsr_device tsr_cuda_recording_device(tsr_kernel_launches *launches);

#endif
