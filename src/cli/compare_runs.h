// SPDX-License-Identifier: Apache-2.0
/* `compare` of two recipes or runs. */
#ifndef TSR_CLI_COMPARE_RUNS_H
#define TSR_CLI_COMPARE_RUNS_H
#include "cli/app.h"

/* Finds the first step that differs, by bisection over the chains of two run.lock or by running
 * recipes, and in it the first tensor. Appends the report to `text`; `ret_equal`: nothing that both
 * have differs. */
bool compare_runs(app *a, const char *first, const char *second, tsr_text *text, bool *ret_equal);

#endif
