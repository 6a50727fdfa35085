// SPDX-License-Identifier: Apache-2.0
/* The paths of the server (http/daemon.h): a connection's thread submits its request to the
 * scheduler, waits and answers. docs/serving.md lists the paths. */
#ifndef TSR_SERVE_HTTP_SERVER_H
#define TSR_SERVE_HTTP_SERVER_H
#include "http/daemon.h"
#include "serve/scheduler.h"

typedef struct {
  tsr_http_daemon_settings daemon;
  const char *token; /* what clients must send as a bearer token; NULL: nothing */
  double timeout_s;  /* of a request, from its end to its answer's */
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
