// SPDX-License-Identifier: Apache-2.0
/* A server of HTTP, on libmicrohttpd: a thread for each connection reads a request as a whole and
 * lets the handler answer it. What is answered, and to whom, is the handler's. */
#ifndef TSR_HTTP_DAEMON_H
#define TSR_HTTP_DAEMON_H
#include "base/diag.h"
#include "base/text.h"
#include "http/connections.h"
#include <microhttpd.h>

typedef struct tsr_http_daemon tsr_http_daemon;

/* A request on its way. */
typedef struct {
  void *context; /* the handler's */
  tsr_http_daemon *daemon;
  struct MHD_Connection *connection;
  tsr_connection *client;
  tsr_text body;
  bool is_too_large;      /* the body is longer than max_body, and is not kept */
  const char *target_end; /* of the path and query, while the headers are read */
  bool has_headers;
  const char *
      fault; /* of the path or headers, which is answered with 400; NULL: none. The body is not read
                        then, and the connection is closed behind the answer */
  const char *name; /* the rest of the path, for handlers whose routes have names below them */
} tsr_exchange;

typedef struct {
  void *context;
  /* Escapes of the path are left as they are. */
  enum MHD_Result (*answer)(tsr_exchange *exchange, const char *method, const char *path);
} tsr_http_handler;

typedef struct {
  int socket;       /* tsr_listen_socket_open's; the daemon closes it */
  int64_t max_body; /* bytes of a request */
  int connections;  /* at once; more close idle ones, and 64 more there cannot be */
  double sending_s; /* the longest that a client may take to send a request */
} tsr_http_daemon_settings;

/* Listens from now on. The handler's context outlives the daemon. */
bool tsr_http_daemon_open(
    tsr_arena *arena, const tsr_http_daemon_settings *settings, tsr_http_handler handler,
    tsr_http_daemon **ret_daemon, tsr_diags *diags);
/* No new connections; those that there are go on. */
void tsr_http_daemon_refuse(tsr_http_daemon *daemon);
/* Ends all connections; answers that are made have 2 s to be read. */
void tsr_http_daemon_close(tsr_http_daemon *daemon);

/* While a request waits for its answer, libmicrohttpd's own timeout, of a client that neither reads
 * nor writes, does not run. */
void tsr_exchange_begin_wait(tsr_exchange *exchange);
void tsr_exchange_end_wait(tsr_exchange *exchange);

#endif
