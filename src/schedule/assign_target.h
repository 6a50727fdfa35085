// SPDX-License-Identifier: Apache-2.0
/* Decides for every task of a program which device runs it, in which types its kernel computes, and
 * how much scratch it needs. */
#ifndef TSR_SCHEDULE_ASSIGN_TARGET_H
#define TSR_SCHEDULE_ASSIGN_TARGET_H
#include "schedule/target.h"

/* requires: tasks with local shapes, fused
 * produces: outputs that the target sizes (TSR_FACT_SIZED) */
void tsr_program_size_outputs(tsr_program *program, const tsr_target *target);
/* requires: tasks with all shapes
 * produces: on_host; casts and scratch_bytes of those that the target runs */
void tsr_program_assign(tsr_program *program, const tsr_target *target);
/* The same for a task that a target runs; `types`: room for its operands. */
void tsr_task_size_scratch(
    const tsr_target *target, const tsr_program *program, tsr_task *task, tsr_dtype *types);
/* requires: operands and scratch with offsets
 * produces: kernel_inputs and kernel_outputs with offsets */
void tsr_program_bind_kernels(tsr_program *program);
void tsr_task_bind_kernel(tsr_task *task);

#endif
