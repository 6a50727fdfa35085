// SPDX-License-Identifier: Apache-2.0
/* `check --prove`: two steps of the reduced model on the reduced mesh, folded onto this process,
 * and on one rank. Deterministic runs must have the same bits; the run on one rank must agree with
 * the interpreter. No file is read but the model's graph file, no data, tokenizer or weights. */
#ifndef TSR_PROVE_PROVE_H
#define TSR_PROVE_PROVE_H
#include "prove/reduced_run.h"

/* Appends the table of reductions and the results to `text`. Refused: a graph without a loss. A
 * difference is a failure that names the first tensor, its unit, task and place. */
bool tsr_prove(const tsr_prove_request *request, tsr_text *text, tsr_diags *diags);

#endif
