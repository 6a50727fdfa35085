// SPDX-License-Identifier: Apache-2.0
#include "http/listen_socket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int bound_port(int socket) {
  struct sockaddr_storage at;
  socklen_t length = sizeof at;
  if (getsockname(socket, (struct sockaddr *)&at, &length)) return 0;
  return ntohs(
      at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                               : ((struct sockaddr_in *)&at)->sin_port);
}

bool tsr_listen_socket_open(
    const char *host, int port, int *ret_socket, int *ret_port, tsr_diags *diags) {
  struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
  struct addrinfo *found;
  char service[16];
  int on = 1;
  snprintf(service, sizeof service, "%d", port);
  int code = getaddrinfo(host, service, &wanted, &found);
  if (code)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "--host: '%s' is no host: %s", host, gai_strerror(code));
  int s = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool ok = s >= 0 && !setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
            !bind(s, found->ai_addr, found->ai_addrlen);
  int why = errno;
  freeaddrinfo(found);
  if (ok) {
    *ret_socket = s;
    *ret_port = bound_port(s);
    return true;
  }
  if (s >= 0) close(s);
  return tsr_diag_failure(
      diags, TSR_NOWHERE, "the port %d of '%s' cannot be taken: %s", port, host, strerror(why));
}
