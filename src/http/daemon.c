// SPDX-License-Identifier: Apache-2.0
#include "http/daemon.h"
#include "base/memory.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tsr_http_daemon {
  tsr_http_daemon_settings settings;
  tsr_http_handler handler;
  tsr_connections *connections;
  struct MHD_Daemon *daemon;
  bool has_socket; /* it is not closed yet */
};

/* ---- the headers of a request ---- */

typedef struct {
  int lengths, codings; /* headers that say where the body ends */
  int hosts;
  bool is_wrong;
} headers;

static enum MHD_Result
take_header(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
  headers *h = context;
  size_t length = strlen(name);
  (void)kind;
  if (!length || strchr(" \t", name[length - 1])) h->is_wrong = true; /* "Content-Length : 5" */
  if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) h->lengths++;
  if (!strcasecmp(name, MHD_HTTP_HEADER_HOST)) h->hosts++;
  if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) != 0) return MHD_YES;
  h->codings++;
  if (!value || strcasecmp(value, "chunked") != 0) h->is_wrong = true;
  return MHD_YES;
}

/* NULL where a proxy before the server cannot understand the headers in another way than the
 * server does: where the body ends (RFC 9112, 6.3), behind which there would be a request that it
 * has not seen, and whose request it is (3.2). */
static const char *find_fault(struct MHD_Connection *connection) {
  headers h = {0};
  MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header, &h);
  if (h.is_wrong || h.lengths + h.codings > 1)
    return "The headers do not say in one way where the body ends";
  return h.hosts > 1 ? "There is more than one header 'Host'" : NULL;
}

/* Before the headers are read. libmicrohttpd gives the target as text, which NUL ends; where it
 * ends itself, the version follows (find_cut). */
static void *begin(void *context, const char *target, struct MHD_Connection *connection) {
  tsr_exchange *e = tsr_memory_new(sizeof *e);
  e->daemon = context;
  e->context = e->daemon->handler.context;
  e->connection = connection;
  e->client =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  e->target_end = target + strlen(target);
  return e;
}

/* NULL where the target has no NUL: its end is the byte before the version. A version that is no
 * part of the request line says nothing. */
static const char *find_cut(const tsr_exchange *e, const char *version) {
  enum { LINE_MAX_BYTES = 1 << 16 };
  uintptr_t end = (uintptr_t)e->target_end, next = (uintptr_t)version;
  bool is_behind = next > end && next - end < LINE_MAX_BYTES;
  return is_behind && next - end > 1 ? "The path has a NUL byte" : NULL;
}

static void take_body(tsr_exchange *e, const char *bytes, size_t length) {
  size_t most = (size_t)e->daemon->settings.max_body;
  if (length > most || e->body.length > most - length) e->is_too_large = true;
  if (e->is_too_large) tsr_text_free(&e->body);
  else tsr_text_add_bytes(&e->body, bytes, length);
}

static enum MHD_Result handle(
    void *context, struct MHD_Connection *connection, const char *path, const char *method,
    const char *version, const char *upload, size_t *upload_bytes, void **ret_exchange) {
  tsr_http_daemon *d = context;
  tsr_exchange *e = *ret_exchange;
  if (!e->has_headers) {
    e->has_headers = true;
    e->fault = find_cut(e, version);
    if (!e->fault) e->fault = find_fault(connection);
    return e->fault ? d->handler.answer(e, method, path) : MHD_YES;
  }
  if (*upload_bytes) {
    take_body(e, upload, *upload_bytes);
    *upload_bytes = 0;
    return MHD_YES;
  }
  tsr_connection_has_sent(d->connections, e->client);
  return d->handler.answer(e, method, path);
}

static void complete(
    void *context, struct MHD_Connection *connection, void **exchange,
    enum MHD_RequestTerminationCode how) {
  tsr_exchange *e = *exchange;
  (void)context, (void)connection, (void)how;
  if (!e) return;
  tsr_connection_may_send(e->daemon->connections, e->client);
  tsr_text_free(&e->body);
  free(e);
  *exchange = NULL;
}

static void notice(
    void *context, struct MHD_Connection *connection, void **client,
    enum MHD_ConnectionNotificationCode what) {
  tsr_http_daemon *d = context;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    int socket = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    *client = tsr_connections_add(d->connections, socket);
  } else if (*client) {
    tsr_connections_remove(d->connections, *client);
    *client = NULL;
  }
}

void tsr_exchange_begin_wait(tsr_exchange *e) {
  MHD_set_connection_option(e->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
}

void tsr_exchange_end_wait(tsr_exchange *e) {
  MHD_set_connection_option(
      e->connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)(e->daemon->settings.sending_s + 1));
}

/* ---- the server ---- */

/* No route has characters that would be escaped, so a path with escapes is none of them. A name
 * below a route is the handler's to unescape: it may have a "/". */
static size_t leave_escapes(void *context, struct MHD_Connection *connection, char *text) {
  (void)context, (void)connection;
  return strlen(text);
}

bool tsr_http_daemon_open(
    tsr_arena *arena, const tsr_http_daemon_settings *settings, tsr_http_handler handler,
    tsr_http_daemon **ret_daemon, tsr_diags *diags) {
  enum { BACKLOG = 128, CLOSING = 64 }; /* CLOSING: connections that were cut, with their threads */
  tsr_http_daemon *d = tsr_arena_alloc(arena, sizeof *d);
  *d = (tsr_http_daemon){*settings, handler, .has_socket = true};
  *ret_daemon = d;
  if (listen(settings->socket, BACKLOG))
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "the server cannot listen on its port: %s", strerror(errno));
  if (tsr_connections_open(arena, settings->sending_s, settings->connections, &d->connections))
    d->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ITC,
        0, NULL, NULL, handle, d, MHD_OPTION_LISTEN_SOCKET, settings->socket,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(settings->connections + CLOSING),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(settings->sending_s + 1),
        MHD_OPTION_URI_LOG_CALLBACK, begin, d, MHD_OPTION_UNESCAPE_CALLBACK, leave_escapes, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, complete, NULL, MHD_OPTION_NOTIFY_CONNECTION, notice, d,
        MHD_OPTION_END);
  if (d->daemon) return true;
  return tsr_diag_failure(diags, TSR_NOWHERE, "the server of HTTP cannot be started");
}

void tsr_http_daemon_refuse(tsr_http_daemon *d) {
  if (!d->has_socket) return;
  MHD_quiesce_daemon(d->daemon);
  close(d->settings.socket);
  d->has_socket = false;
}

void tsr_http_daemon_close(tsr_http_daemon *d) {
  const double to_send = 2; /* answers that are made, to clients that read */
  if (d->daemon) tsr_http_daemon_refuse(d);
  if (d->daemon) tsr_connections_wait(d->connections, to_send);
  if (d->daemon) MHD_stop_daemon(d->daemon);
  if (d->has_socket) close(d->settings.socket);
  if (d->connections) tsr_connections_close(d->connections);
}
