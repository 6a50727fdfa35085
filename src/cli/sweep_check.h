// SPDX-License-Identifier: Apache-2.0
/* Whether every run of a sweep can be trained, before the first one is started. */
#ifndef TSR_CLI_SWEEP_CHECK_H
#define TSR_CLI_SWEEP_CHECK_H
#include "cli/sweep_request.h"
#include "sweep/prefix.h"

typedef struct {
  tsr_prefix_run *shared; /* of each run, what it may share with others */
  int64_t *steps;         /* of each run, its last one */
  const char *data;       /* the hash of what the runs' data have in them */
} sweep_checked;

/* What `check` says of each run, in the order of their numbers, and besides: its data exist, its
 * metric is computed, and it has the rungs of the halving. Prints the errors of the first run that
 * has any, under its number and values; the warnings of run 1. Returns the exit code. */
int sweep_check(app *a, const sweep_request *request, sweep_checked *ret_checked);

#endif
