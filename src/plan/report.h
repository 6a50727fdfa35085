// SPDX-License-Identifier: Apache-2.0
/* What `plan` prints, and the advice that goes with it. */
#ifndef TSR_PLAN_REPORT_H
#define TSR_PLAN_REPORT_H
#include "plan/estimate.h"

typedef struct {
  const tsr_config *config;
  const tsr_parallel *parallel;
  const tsr_machine *machine;
  const char *machine_why;      /* which description was taken, and why */
  const tsr_programs *programs; /* training's first, then those that a run holds beside it */
  int programs_count;
  const tsr_graph *graph; /* of training, before placement */
  int64_t tokens;         /* of a step: positions, or samples where these are rows of a table */
  bool has_positions;
  const tsr_estimate *estimate;
} tsr_report;

/* Machine, mesh, memory by stage and kind, work by stage, communication by axis and link, the
 * step's time, advice. */
void tsr_report_print(const tsr_report *report, tsr_text *text);
/* When the pipeline's actions begin and end, in milliseconds; and as text of at most `columns`. */
tsr_pipeline_times tsr_report_pipeline_times(tsr_arena *arena, const tsr_report *report);
void tsr_report_gantt(tsr_arena *arena, const tsr_report *report, int columns, tsr_text *text);

/* What would suit the model better, a line each. */
void tsr_report_advise(const tsr_report *report, tsr_text *text);
/* Notes and warnings that need no machine: 10^12 parameters on less than three axes, `fast` without
 * overlap. For `check` too. */
void tsr_plan_lint(
    const tsr_config *config, const tsr_parallel *parallel, const tsr_graph *graph,
    tsr_diags *diags);

#endif
