// SPDX-License-Identifier: Apache-2.0
#include "cli/listen_at.h"
#include "http/listen_socket.h"
#include <string.h>

const char *listen_at_host(const app *a) { return a->options.host ? a->options.host : "127.0.0.1"; }

bool listen_at_open(app *a, int otherwise, int *ret_socket, int *ret_port) {
  enum { PORT_MAX = 65535 };
  const tsr_options *o = &a->options;
  int64_t port = o->port_text ? o->port : otherwise;
  if (port > PORT_MAX)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "--port: %lld is above %d", (long long)port, PORT_MAX);
  return tsr_listen_socket_open(listen_at_host(a), (int)port, ret_socket, ret_port, a->diags);
}

void listen_at_print(const app *a, int port) {
  const char *host = listen_at_host(a);
  bool brackets = strchr(host, ':') != NULL;
  printf("listening on http://%s%s%s:%d\n", brackets ? "[" : "", host, brackets ? "]" : "", port);
  fflush(stdout);
}
