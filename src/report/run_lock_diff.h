// SPDX-License-Identifier: Apache-2.0
/* What differs between two runs, by their run.lock. */
#ifndef TSR_REPORT_RUN_LOCK_DIFF_H
#define TSR_REPORT_RUN_LOCK_DIFF_H
#include "base/text.h"
#include "report/run_lock.h"

/* The first step that both have and whose loss or weights differ; -1: none does. By bisection:
 * where the chains of two steps are one, all before are, too. */
int64_t tsr_run_lock_first_difference(const tsr_run_lock *a, const tsr_run_lock *b);

/* All of it as lines: the recipes, what the runs ran on, and their steps. */
void tsr_run_lock_diff(const tsr_run_lock *a, const tsr_run_lock *b, tsr_text *text);

#endif
