// SPDX-License-Identifier: Apache-2.0
/* The command `plan`: what a step of a compiled run costs on a machine. */
#ifndef TSR_TRAIN_PLAN_RUN_H
#define TSR_TRAIN_PLAN_RUN_H
#include "device/cpu/cpu.h"
#include "plan/report.h"
#include "train/compile.h"

typedef struct {
  tsr_arena *arena;
  const tsr_config *config;
  const tsr_parallel *parallel;
  const tsr_machine *machine;
  const char *machine_why;
  const tsr_compiled *training, *evaluation, *generation; /* without `placed`: there is none */
  int threads;                                            /* that the run would have */
} tsr_plan_request;

/* What the report is made of, with its estimate; both, and `programs`, must outlive it. */
bool tsr_plan_make_report(
    const tsr_plan_request *request, tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX],
    tsr_estimate *estimate, tsr_report *ret_report, tsr_diags *diags);
/* Appends the report to `text`, with `gantt` also the pipeline over time, and writes pictures into
 * the folder `svg` (NULL: none). Notes on the way. */
bool tsr_plan_command(
    const tsr_plan_request *request, bool gantt, const char *svg, tsr_text *text, tsr_diags *diags);

/* The pictures alone. */
bool tsr_plan_write_pictures(const tsr_plan_request *request, const char *folder, tsr_diags *diags);

/* How long a step of a compiled run takes on the machine, by its plan. */
void tsr_plan_estimate(
    tsr_arena *arena, const tsr_config *config, const tsr_parallel *parallel,
    const tsr_compiled *training, const tsr_machine *machine, tsr_estimate *ret_estimate);

/* Seconds of a step of the model if all devices computed at their peak, as in the plan's MFU: its
 * ratio to a step's time is that step's MFU. 0: unknown. */
double tsr_plan_ideal_step(
    tsr_arena *arena, const tsr_config *config, const tsr_parallel *parallel,
    const tsr_compiled *training, const tsr_machine *machine);

/* The programs that a run holds at once; how many. */
int tsr_plan_programs(
    const tsr_compiled *training, const tsr_compiled *evaluation, const tsr_compiled *generation,
    tsr_programs ret_programs[TSR_COMPILED_PROGRAMS_MAX]);

/* What tasks need beside their tensors where the machine is none of this one's: the plainest
 * kernels on one thread, so that a plan is the same everywhere. */
tsr_cpu_context tsr_plan_device(void);

#endif
