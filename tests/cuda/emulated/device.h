// SPDX-License-Identifier: Apache-2.0
/* The device of the tests whose programs run on one. It is there, under policy deterministic, when
 * main begins. */
#ifndef TSR_TESTS_CUDA_DEVICE_H
#define TSR_TESTS_CUDA_DEVICE_H
#include "tests/check.h"
#include "tests/run/harness.h"

/* Another one in its place. */
void test_device_open(bool fast);

/* It runs all tasks but those that move bytes between ranks: nothing is left to the host. */
static inline void test_device_check_tasks(const tsr_programs *programs) {
  for (int s = 0; s < programs->pipeline->stages; s++) {
    const tsr_program *p = programs->of_stage[s];
    for (int i = 0; i < p->tasks_count; i++)
      CHECK_AT(
          !p->tasks[i].on_host, "%s '%s' is not the device's", tsr_op_name(p->tasks[i].op),
          programs->graph->nodes[p->tasks[i].node].name);
  }
}

#endif
