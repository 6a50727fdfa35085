// SPDX-License-Identifier: Apache-2.0
/* The engine for lists without messages: all members' buffers are in this process. */
#ifndef TSR_COMM_ENGINE_LOCAL_H
#define TSR_COMM_ENGINE_LOCAL_H
#include "comm/chunk_ops.h"

/* Begins a collective whose members' buffers are in the device's memory. */
void tsr_in_process_run(
    const tsr_device *device, const tsr_step_list *list, const tsr_collective *c);

/* ---- on the host ---- */

/* A list's elements, all steps one after the other: what threads share. */
int64_t tsr_in_process_items(const tsr_step_list *list);
void tsr_in_process_run_range(
    const tsr_step_list *list, const tsr_collective *c, int64_t begin, int64_t end);

#endif
