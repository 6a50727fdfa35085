// SPDX-License-Identifier: Apache-2.0
/* Processes that a launcher started beside this one. Private to main and this folder. */
#ifndef TSR_CLI_LAUNCHER_CHECK_H
#define TSR_CLI_LAUNCHER_CHECK_H
#include "cli/app.h"

/* Whether a process with this command line joins the job: it runs a command that the processes of a
 * job run together, or would if its line had no mistake (`valid` is false). */
bool launcher_joins(const tsr_options *options, bool valid);

/* Of a process that does not join: whether no process on this host, that the same launcher started,
 * joins and would wait for this process. Else an error. With `waits` it looks for half a second,
 * where a launcher started several, for those that have not begun yet. */
bool launcher_check_siblings(app *a, bool waits);

/* Of a command that the processes of a job run together: whether those on this host that the same
 * launcher started have the TESSERA_TRANSPORT of this one, if it has one. Else an error, and the
 * variable is removed from the environment: this process can join those that wait for it. */
bool launcher_check_transport(app *a);

#endif
