// SPDX-License-Identifier: Apache-2.0
/* The socket that a server listens on. */
#ifndef TSR_HTTP_LISTEN_SOCKET_H
#define TSR_HTTP_LISTEN_SOCKET_H
#include "base/diag.h"

/* Takes the port (0: any) of the host, a name or an address, without listening yet. Errors: a host
 * that is none; failures: a port that another program has, or that this user may not take. */
bool tsr_listen_socket_open(
    const char *host, int port, int *ret_socket, int *ret_port, tsr_diags *diags);

#endif
