// SPDX-License-Identifier: Apache-2.0
/* The server of HTTP, on libmicrohttpd: a thread for each connection reads its request, submits it
 * to the scheduler, waits and answers. docs/serving.md lists the paths. */
#ifndef TSR_SERVE_HTTP_SERVER_H
#define TSR_SERVE_HTTP_SERVER_H
#include "serve/scheduler.h"

typedef struct {
  int socket;        /* tsr_listen_socket_open's; the server closes it */
  const char *token; /* what clients must send as a bearer token; NULL: nothing */
  int64_t max_body;  /* bytes of a request */
  int connections;   /* at once; more close idle ones, and 64 more there cannot be */
  double timeout_s;  /* of a request, from its end to its answer's */
  double sending_s;  /* the longest that a client may take to send one */
} tsr_http_settings;

typedef struct tsr_http_server tsr_http_server;

/* Listens from now on. The model, scheduler and metrics outlive it. */
bool tsr_http_server_open(
    tsr_arena *arena, const tsr_http_settings *settings, const tsr_served_model *model,
    tsr_scheduler *scheduler, tsr_metrics *metrics, tsr_http_server **ret_server, tsr_diags *diags);
/* No new connections; those that there are go on. */
void tsr_http_server_refuse(tsr_http_server *server);
/* Ends all connections. The scheduler has ended its jobs. */
void tsr_http_server_close(tsr_http_server *server);

#endif
