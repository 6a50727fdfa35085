// SPDX-License-Identifier: Apache-2.0
/* Where a command that serves listens: --host and --port. */
#ifndef TSR_CLI_LISTEN_AT_H
#define TSR_CLI_LISTEN_AT_H
#include "cli/app.h"

/* --host, or this machine alone. */
const char *listen_at_host(const app *a);
/* Takes the port: --port, or `otherwise`. */
bool listen_at_open(app *a, int otherwise, int *ret_socket, int *ret_port);
/* "listening on http://127.0.0.1:8000" */
void listen_at_print(const app *a, int port);

#endif
