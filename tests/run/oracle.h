// SPDX-License-Identifier: Apache-2.0
/* The interpreter (src/interpreter) beside a program of the harness: with the same inputs,
 * parameters and masks of dropout. */
#ifndef TSR_TESTS_ORACLE_H
#define TSR_TESTS_ORACLE_H
#include "harness.h"
#include "interpreter/interpreter.h"

/* The numbers of one microbatch of step `step`; `t` is of h->graph as it was before the harness
 * compiled it. Masks are those of the kernels' random stream, so `h` must outlive the step. */
typedef struct {
  const harness *h;
  int64_t step, microbatch;
} oracle_moment;
tsr_interpreter_step oracle_step_of(const oracle_moment *moment);

/* Parameters as the program has them now. */
void oracle_fill_params(tsr_interpreter *t, const harness *h);
/* Inputs as the harness gives them to a microbatch of any step. */
void oracle_fill_inputs(tsr_interpreter *t, const harness *h, int64_t microbatch);

/* All of a step but the update: gradients from zero over every microbatch; returns the loss. */
double oracle_run(tsr_interpreter *t, const harness *h, int64_t step);

/* The largest absolute value. */
double oracle_largest(const double *x, int64_t count);

#endif
