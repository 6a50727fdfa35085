// SPDX-License-Identifier: Apache-2.0
/* A collective's task as the algorithms see it. */
#ifndef TSR_COMM_TASK_COLLECTIVE_H
#define TSR_COMM_TASK_COLLECTIVE_H
#include "comm/collective.h"
#include "schedule/program.h"

/* Op, sizes and dimensions; buffers and kernels are the caller's to set. */
tsr_collective tsr_collective_of(const tsr_program *program, const tsr_task *task);

#endif
