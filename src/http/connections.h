// SPDX-License-Identifier: Apache-2.0
/* The connections of a server, for what libmicrohttpd does not watch: a client that takes longer to
 * send a request than it may is cut off, however steadily it sends; and where there can be no more
 * connections, that of the client that has taken longest. */
#ifndef TSR_HTTP_CONNECTIONS_H
#define TSR_HTTP_CONNECTIONS_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct tsr_connections tsr_connections;
typedef struct tsr_connection tsr_connection;

/* Starts the thread that watches; false: there can be no more threads. `most`: connections that
 * there may be. */
bool tsr_connections_open(
    tsr_arena *arena, double seconds_to_send, int most, tsr_connections **ret_connections);
/* Ends the thread; connections that there are stay. */
void tsr_connections_close(tsr_connections *connections);

tsr_connection *tsr_connections_add(tsr_connections *connections, int socket);
void tsr_connections_remove(tsr_connections *connections, tsr_connection *connection);
/* A request has come as a whole: until it is answered nothing is expected of the client. */
void tsr_connection_has_sent(tsr_connections *connections, tsr_connection *connection);
/* The next request may come. */
void tsr_connection_may_send(tsr_connections *connections, tsr_connection *connection);
/* Until no request is being served, at most so many seconds. */
void tsr_connections_wait(tsr_connections *connections, double seconds);
/* Whether the client has closed its side. */
bool tsr_connection_is_gone(const tsr_connection *connection);

#endif
