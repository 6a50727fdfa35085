// SPDX-License-Identifier: Apache-2.0
/* What the command line and the section `sweep` of a configuration ask for. */
#ifndef TSR_CLI_SWEEP_REQUEST_H
#define TSR_CLI_SWEEP_REQUEST_H
#include "cli/app.h"
#include "sweep/journal.h"

typedef struct {
  tsr_sweep sweep;
  tsr_sweep_run *runs;
  int count;
  const tsr_config *config;       /* without the parameters */
  int parameter_of[TSR_SETS_MAX]; /* the parameter that a --set is; -1: it is of every run */
} sweep_request;

/* A --set of several values is a parameter; so is one of a short name, or of a parameter of the
 * section, whose place it takes. */
bool sweep_request_read(app *a, sweep_request *ret_request);

/* The --set of a run, from 0, in the order of the line, those of the section behind them. */
void sweep_request_sets(
    app *a, const sweep_request *request, int run, tsr_set *ret_sets, int *ret_count);

/* What may not change where a sweep continues: parameters, method, metric, and the keys of the
 * configuration that the runs' losses depend on; the hash of their data. */
void sweep_request_definition(
    tsr_arena *arena, const sweep_request *request, const char *data, tsr_sweep_entry **ret_entries,
    int *ret_count);

#endif
