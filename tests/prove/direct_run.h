// SPDX-License-Identifier: Apache-2.0
/* What programs compute, read directly: the loss and the norm of each of three steps, and the bytes
 * of every parameter and all optimizer state on every rank behind each. Samples and weights are
 * other ones than those of a proof. */
#ifndef TSR_TESTS_PROVE_DIRECT_RUN_H
#define TSR_TESTS_PROVE_DIRECT_RUN_H
#include "proof.h"

enum { DIRECT_RUNS = 2 };

/* Run 0 begins with the model's own first values, run 1 with numbers everywhere. Ends the process
 * where it cannot. */
void direct_run(tsr_arena *arena, const tsr_prove_run *run, int number, tsr_text *ret_bytes);

#endif
