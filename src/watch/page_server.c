// SPDX-License-Identifier: Apache-2.0
#include "watch/page_server.h"
#include "http/daemon.h"
#include "http/host.h"
#include "http/response.h"
#include <string.h>

typedef struct {
  tsr_http_daemon *daemon;
  tsr_feed *feed;
  bool checks_host;
} page_server;

/* The page is another one as soon as a step is made. */
static enum MHD_Result answer(tsr_exchange *e, int status, const char *type, tsr_text *text) {
  struct MHD_Response *r = tsr_http_response(text, type);
  if (r) MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  if (r && status == 405) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  return tsr_http_send(e->connection, status, r);
}

static enum MHD_Result refuse(tsr_exchange *e, int status, const char *why) {
  tsr_text text = {0};
  tsr_text_add(&text, "%s\n", why);
  return answer(e, status, "text/plain; charset=utf-8", &text);
}

static enum MHD_Result answer_page(tsr_exchange *e, const page_server *s) {
  tsr_text page = {0};
  tsr_feed_page(s->feed, &page);
  return answer(e, 200, "text/html; charset=utf-8", &page);
}

/* "1f-20" */
static bool is_since(const char *text) {
  size_t session = strspn(text, "0123456789abcdef");
  if (!session || text[session] != '-') return false;
  size_t digits = strspn(text + session + 1, "0123456789");
  return digits > 0 && digits <= 18 && !text[session + 1 + digits];
}

static enum MHD_Result answer_data(tsr_exchange *e, const page_server *s) {
  const char *since = MHD_lookup_connection_value(e->connection, MHD_GET_ARGUMENT_KIND, "since");
  tsr_text json = {0};
  if (since && !is_since(since)) return refuse(e, 400, "'since' is SESSION-REVISION of the data");
  tsr_feed_data(s->feed, since, &json);
  return answer(e, 200, "application/json", &json);
}

static enum MHD_Result answer_request(tsr_exchange *e, const char *method, const char *path) {
  const page_server *s = e->context;
  const char *host =
      MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
  if (e->fault) return refuse(e, 400, e->fault);
  if (s->checks_host && !tsr_host_header_is_loopback(host))
    return refuse(e, 403, "the request does not name this machine as its host");
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
    return refuse(e, 405, "only GET and HEAD are allowed");
  if (!strcmp(path, "/")) return answer_page(e, s);
  if (!strcmp(path, "/data")) return answer_data(e, s);
  return refuse(e, 404, "there is '/' and '/data'");
}

bool tsr_page_server_open(
    tsr_arena *arena, int socket, bool checks_host, tsr_feed *feed, tsr_diags *diags) {
  enum { CONNECTIONS = 64 };
  const double sending = 30;
  page_server *s = tsr_arena_alloc(arena, sizeof *s);
  *s = (page_server){.feed = feed, .checks_host = checks_host};
  const tsr_http_daemon_settings settings = {socket, 0, CONNECTIONS, sending};
  const tsr_http_handler handler = {s, answer_request};
  return tsr_http_daemon_open(arena, &settings, handler, &s->daemon, diags);
}
