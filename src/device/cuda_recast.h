// SPDX-License-Identifier: Apache-2.0
/* Private to the plugin: tasks that read f32 beside half precision. */
#ifndef TSR_DEVICE_CUDA_RECAST_H
#define TSR_DEVICE_CUDA_RECAST_H
#include "device/cuda_ops.h"

enum { CUDA_RECAST_MAX = 64 };

/* A task whose tensors are of one type, some of them copies in the first `bytes` of its scratch. */
typedef struct {
  tsr_task task;
  tsr_tensor inputs[CUDA_RECAST_MAX], outputs[CUDA_RECAST_MAX];
  int64_t bytes;
} cuda_recast_task;

/* False: the task runs as it is. */
bool cuda_recast(const tsr_program *program, const tsr_task *task, cuda_recast_task *ret_task);
/* Runs the op's task, with copies where it needs them. */
void cuda_run_task(const cuda_call *call, const cuda_op *op);

#endif
