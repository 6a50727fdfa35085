// SPDX-License-Identifier: Apache-2.0
/* The head of a proof's report: what was reduced, and whether placements stayed. */
#ifndef TSR_PROVE_PROOF_TABLE_H
#define TSR_PROVE_PROOF_TABLE_H
#include "prove/reduced_run.h"

void tsr_proof_table_print(
    const tsr_prove_request *request, const tsr_reduced_run *plan, tsr_text *text);

#endif
