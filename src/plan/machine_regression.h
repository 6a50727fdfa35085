// SPDX-License-Identifier: Apache-2.0
/* From measured tasks to a machine's figures. */
#ifndef TSR_PLAN_MACHINE_REGRESSION_H
#define TSR_PLAN_MACHINE_REGRESSION_H
#include "graph/graph.h"
#include "plan/machine.h"

typedef struct {
  tsr_op op;
  tsr_machine_dtype dtype; /* that it computes in */
  tsr_machine_work work;
  double seconds; /* > 0 */
} tsr_fit_sample;

/* Sets the device's figures: overhead is what the shortest tasks take, peaks are the best that any
 * task reached, efficiencies what ops of a kind reach on the whole, all in f32. Then a rate for
 * each op and type that there are samples of, where f32's stands for types that have none: after
 * that overhead, those seconds a byte, an operation and a call, none below 0, for which the sum of
 * the squares of the relative errors is the least (non-negative least squares, by coordinate
 * descent). Memory, threads and links are left as they are. */
void tsr_machine_fit(
    tsr_arena *arena, tsr_machine *machine, const tsr_fit_sample *samples, int count);

#endif
