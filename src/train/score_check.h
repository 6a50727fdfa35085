// SPDX-License-Identifier: Apache-2.0
/* NaN among the scores of a router ends a run: no choice of experts follows from them. */
#ifndef TSR_TRAIN_SCORE_CHECK_H
#define TSR_TRAIN_SCORE_CHECK_H
#include "runtime/process.h"

/* After the program has run, on all processes alike. A failure at the statement that chooses
 * experts: `when` ("step 3") there was a NaN, on which rank, of which router. */
bool tsr_check_scores(tsr_executable *executable, const char *when, tsr_diags *diags);

#endif
