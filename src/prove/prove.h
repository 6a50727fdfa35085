// SPDX-License-Identifier: Apache-2.0
/* `check --prove`: two steps of the reduced model on the reduced mesh, folded onto this process,
 * and on one rank. Deterministic runs must have the same losses, gradients, weights and optimizer
 * state, to the bit; the run on one rank must agree with the interpreter, and its updates must
 * change the weights. No file is read but the model's graph file, no data, tokenizer or weights.
 *
 * Both programs are those that `train` would execute with these sizes (prove/recorded_run.h). What
 * differs from a run of `train` are the sizes, the samples, the first values of parameters that
 * begin with one number (prove/synthetic_weights.h), and the learning rate where the report says
 * so. */
#ifndef TSR_PROVE_PROVE_H
#define TSR_PROVE_PROVE_H
#include "prove/reduced_run.h"

/* Appends the table of reductions and the results to `text`. Refused: a graph without a loss. A
 * difference is a failure that names the first kind of numbers, tensor, unit, task and place. It is
 * tsr_reduced_run_make and then tsr_prove_plan. */
bool tsr_prove(const tsr_prove_request *request, tsr_text *text, tsr_diags *diags);

/* Runs and compares what was compiled. */
bool tsr_prove_plan(
    const tsr_prove_request *request, const tsr_reduced_run *plan, tsr_text *text,
    tsr_diags *diags);

#endif
