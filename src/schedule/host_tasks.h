// SPDX-License-Identifier: Apache-2.0
/* Tasks that the host runs for a device with memory of its own. The host has a WORK of its own, of
 * a rank's `host_bytes`: before such a task the operands that it reads are copied there, behind it
 * those that it has written are copied back. All such tasks use the same bytes, one after the
 * other. */
#ifndef TSR_SCHEDULE_HOST_TASKS_H
#define TSR_SCHEDULE_HOST_TASKS_H
#include "schedule/target.h"

/* requires: on_host, operands with offsets
 * produces: each such task's `host`, and host_bytes */
void tsr_program_plan_host_tasks(tsr_program *program, const tsr_target *target);

/* Whether the host needs what is in an operand's bytes before the task runs, and whether the task
 * has written them when it is done. Operands are inputs, then outputs. */
bool tsr_host_task_reads(const tsr_program *program, const tsr_task *task, int operand);
bool tsr_host_task_writes(const tsr_program *program, const tsr_task *task, int operand);

#endif
