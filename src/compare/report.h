// SPDX-License-Identifier: Apache-2.0
/* The texts of a comparison of two runs. */
#ifndef TSR_COMPARE_REPORT_H
#define TSR_COMPARE_REPORT_H
#include "compare/difference.h"
#include "compare/elements.h"

/* A run of the two, with its programs. */
typedef struct {
  const tsr_run_record *record;
  const tsr_compiled *compiled;
  const tsr_parallel *parallel;
} tsr_compared_run;

/* How many losses, tensors, gradients, weights and states were compared, and how many differ. */
void tsr_compare_report_counts(const tsr_difference *difference, int64_t step, tsr_text *text);

/* What differs first in the step: its tensor, and the task and the place in the graph file that it
 * is from, in the first run. `elements`: of its numbers in both; its `first` below 0: of none. */
void tsr_compare_report_first(
    const tsr_difference *difference, const tsr_compared_run *first, const tsr_run_record *second,
    int64_t step, const tsr_element_difference *elements, tsr_text *text);

#endif
