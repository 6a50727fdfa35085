// SPDX-License-Identifier: Apache-2.0
/* The dashboard of a run (--tui): what the run reports becomes its numbers, and a thread draws them
 * some times a second, so that steps are not waited for. */
#ifndef TSR_TRAIN_DASHBOARD_RUN_H
#define TSR_TRAIN_DASHBOARD_RUN_H
#include "report/metrics.h"

typedef struct tsr_trainer tsr_trainer;
typedef struct tsr_dashboard_run tsr_dashboard_run;

/* Takes the terminal. NULL: there is none that can be taken, and the run prints plain lines.
 * `title`: what the run is; `ideal_step_s`: a step's time at the devices' peak, 0: unknown; `stop`:
 * not 0 where a signal has asked for the end: the terminal is given back then, before the run has
 * stopped. */
tsr_dashboard_run *tsr_dashboard_run_open(
    tsr_arena *arena, const char *title, double ideal_step_s, const volatile sig_atomic_t *stop);
/* Gives the terminal back, with what was printed meanwhile. NULL is fine. */
void tsr_dashboard_run_close(tsr_dashboard_run *run);

/* Each does nothing where the run has none, and allocates nothing. */
void tsr_dashboard_run_begin(tsr_trainer *trainer, double now);
void tsr_dashboard_run_step(tsr_trainer *trainer, const tsr_metrics_step *step, double now);
void tsr_dashboard_run_eval(tsr_trainer *trainer, const tsr_metrics_eval *evaluation);
void tsr_dashboard_run_sample(tsr_trainer *trainer, const char *text, size_t length);

#endif
