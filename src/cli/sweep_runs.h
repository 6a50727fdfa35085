// SPDX-License-Identifier: Apache-2.0
/* Trains the runs of a sweep, several at a time, each in a process and a folder of its own. */
#ifndef TSR_CLI_SWEEP_RUNS_H
#define TSR_CLI_SWEEP_RUNS_H
#include "cli/sweep_prefixes.h"
#include "cli/sweep_request.h"

typedef struct {
  app *a;
  const sweep_request *request;
  const char *folder;
  const int64_t *steps; /* the last one of each run */
  tsr_sweep_result *results;
  tsr_sweep_journal *journal;
  sweep_prefixes prefixes;
  int jobs;
} sweep_runs;

/* Trains the runs that wait up to the journal's rung, and enters what they give in the journal. A
 * run that fails does not end the others. False where a signal has ended the sweep, whose number is
 * in app.stop then, or with a failure: the processes have ended, their checkpoints stay. Signals
 * are blocked from then on. */
bool sweep_runs_train(sweep_runs *s);

/* From now on signals end neither this process nor a wait, but sweep_runs_train. */
void sweep_runs_block_signals(void);

#endif
