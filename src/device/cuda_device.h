/* One device of the plugin, as the worker wants it. */
#ifndef TSR_DEVICE_CUDA_DEVICE_H
#define TSR_DEVICE_CUDA_DEVICE_H
#include "device/cuda_ops.h"
#include "device/device.h"

/* `fast`: policy fast. `lost` is called with a report when a task fails, and does not return. */
bool cuda_device_open(
    int number, bool fast, void (*lost)(void *context, const char *report), void *context,
    const tsr_device **ret_device, char *why);
void cuda_device_close(const tsr_device *device);

/* A tsr_scratch_rule: what a task's kernels need, on the device or on the host; the context is a
 * tsr_cpu_context. */
int64_t cuda_task_scratch(
    const tsr_task *task, const tsr_program *program, bool output, const void *context);

#endif
