// SPDX-License-Identifier: Apache-2.0
/* `watch --tui`: a run of another process on this terminal, by the files that it writes. */
#ifndef TSR_CLI_WATCH_DASHBOARD_H
#define TSR_CLI_WATCH_DASHBOARD_H
#include "cli/app.h"

/* Of a folder of runs, the one that was written to last. Until a signal comes; the exit code. */
int watch_dashboard(app *a);

#endif
