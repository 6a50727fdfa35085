// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.h"
#include "serve/chat_page.h"
#include "serve/http_internal.h"
#include <string.h>

/* ---- the paths ---- */

static enum MHD_Result chat_page(tsr_exchange *e) {
  tsr_text text = {0};
  tsr_text_add_bytes(&text, tsr_chat_page, tsr_chat_page_bytes);
  return tsr_http_answer(e, 200, "text/html; charset=utf-8", &text);
}

static enum MHD_Result health(tsr_exchange *e) {
  tsr_text text = {0};
  tsr_text_add(&text, "{\"status\":\"ok\"}");
  return tsr_http_answer_json(e, &text);
}

static enum MHD_Result metrics(tsr_exchange *e) {
  tsr_text text = {0};
  tsr_metrics_add(tsr_http_server_of(e)->metrics, &text);
  return tsr_http_answer(e, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}

static enum MHD_Result models(tsr_exchange *e) {
  tsr_text text = {0};
  tsr_response_add_models(tsr_http_server_of(e)->model, &text);
  return tsr_http_answer_json(e, &text);
}

static bool is_name(const char *escaped, const char *name) {
  tsr_text text = {0};
  tsr_text_add_bytes(&text, escaped, strlen(escaped));
  size_t length = MHD_http_unescape(text.data);
  bool same = length == strlen(name) && !memcmp(text.data, name, length);
  tsr_text_free(&text);
  return same;
}

static enum MHD_Result model(tsr_exchange *e) {
  const tsr_served_model *served = tsr_http_server_of(e)->model;
  if (is_name(e->name, served->name)) {
    tsr_text text = {0};
    tsr_response_add_model(served, &text);
    return tsr_http_answer_json(e, &text);
  }
  tsr_arena *arena = tsr_arena_new();
  tsr_api_error error = {0};
  tsr_api_fail(
      &error, arena, 404, "model", "model_not_found",
      "The model '%s' does not exist; this server has '%s'", e->name, served->name);
  enum MHD_Result result = tsr_http_answer_error(e, &error);
  tsr_arena_free(arena);
  return result;
}

static enum MHD_Result completions(tsr_exchange *e) { return tsr_http_generate(e, false); }
static enum MHD_Result chat_completions(tsr_exchange *e) { return tsr_http_generate(e, true); }

typedef bool reader(
    tsr_arena *arena, const tsr_served_model *model, const char *body, size_t length,
    tsr_prompt *ret_tokens, tsr_api_error *ret_error);
typedef void writer(const tsr_served_model *model, const tsr_prompt *tokens, tsr_text *text);

static enum MHD_Result convert(tsr_exchange *e, reader *read_tokens, writer *write_tokens) {
  tsr_arena *arena = tsr_arena_new();
  tsr_api_error error = {0};
  tsr_prompt tokens;
  tsr_text text = {0};
  const tsr_served_model *model = tsr_http_server_of(e)->model;
  bool ok =
      read_tokens(arena, model, e->body.data ? e->body.data : "", e->body.length, &tokens, &error);
  if (ok) write_tokens(model, &tokens, &text);
  enum MHD_Result result = ok ? tsr_http_answer_json(e, &text) : tsr_http_answer_error(e, &error);
  tsr_arena_free(arena);
  return result;
}

static enum MHD_Result tokenize(tsr_exchange *e) {
  return convert(e, tsr_request_read_tokenize, tsr_response_add_tokens);
}
static enum MHD_Result detokenize(tsr_exchange *e) {
  return convert(e, tsr_request_read_detokenize, tsr_response_add_text);
}

typedef struct {
  const char *method, *path; /* one that ends with "/" has names below it */
  bool is_open;              /* to clients without the token */
  enum MHD_Result (*answer)(tsr_exchange *e);
} route;

static const route routes[] = {
    {"GET", "/", true, chat_page},
    {"GET", "/health", true, health},
    {"GET", "/metrics", false, metrics},
    {"GET", "/v1/models", false, models},
    {"GET", "/v1/models/", false, model},
    {"POST", "/v1/completions", false, completions},
    {"POST", "/v1/chat/completions", false, chat_completions},
    {"POST", "/tokenize", false, tokenize},
    {"POST", "/detokenize", false, detokenize}};
enum { ROUTES = sizeof routes / sizeof *routes };

/* ---- a request ---- */

/* In a time that does not depend on where the texts differ. */
static bool is_token(const char *given, const char *token) {
  size_t length = strlen(token);
  unsigned char different = strlen(given) != length;
  for (size_t i = 0; i < length; i++)
    different |= (unsigned char)(token[i] ^ given[i % (strlen(given) + 1)]);
  return !different;
}

static bool check_token(const tsr_exchange *e, tsr_api_error *error) {
  static const char bearer[] = "Bearer ";
  const char *token = tsr_http_server_of(e)->settings.token;
  const char *given =
      MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
  if (!token) return true;
  if (given && !strncasecmp(given, bearer, sizeof bearer - 1) &&
      is_token(given + sizeof bearer - 1, token))
    return true;
  *error = (tsr_api_error){
      401, NULL, "invalid_api_key", "This server wants its token as 'Authorization: Bearer …'"};
  return false;
}

/* What a page of another origin may send without being asked is not JSON by its header. */
static bool check_type(const tsr_exchange *e, tsr_api_error *error) {
  const char *type =
      MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
  if (!type || !strncasecmp(type, "application/json", 16)) return true;
  *error = (tsr_api_error){
      415, NULL, NULL, "The body should be JSON, with the header 'Content-Type: application/json'"};
  return false;
}

static bool is_path_of(const route *r, const char *path) {
  size_t length = strlen(r->path);
  bool has_names = length > 1 && r->path[length - 1] == '/';
  if (!has_names) return !strcmp(r->path, path);
  return !strncmp(r->path, path, length) && path[length];
}

/* NULL: the error, whose message may live in the arena. */
static const route *find_route(
    const tsr_exchange *e, tsr_arena *arena, const char *method, const char *path,
    tsr_api_error *error) {
  const char *other = NULL, *as = strcmp(method, "HEAD") ? method : "GET";
  for (int i = 0; i < ROUTES; i++) {
    if (!is_path_of(&routes[i], path)) continue;
    if (strcmp(routes[i].method, as) != 0) {
      other = routes[i].method;
      continue;
    }
    if (!routes[i].is_open && !check_token(e, error)) return NULL;
    if (!strcmp(as, "POST") && !check_type(e, error)) return NULL;
    return &routes[i];
  }
  if (other)
    tsr_api_fail(
        error, arena, 405, NULL, "method_not_supported",
        "Not allowed to %s on %s, which is asked with %s", method, path, other);
  else tsr_api_fail(error, arena, 404, NULL, NULL, "Invalid URL (%s %s)", method, path);
  error->allowed = other;
  return NULL;
}

static enum MHD_Result answer_request(tsr_exchange *e, const char *method, const char *path) {
  if (e->fault) return tsr_http_answer_error(e, &(tsr_api_error){400, NULL, NULL, e->fault});
  tsr_arena *arena = tsr_arena_new();
  tsr_api_error error = {0};
  const route *found = find_route(e, arena, method, path, &error);
  if (found && e->is_too_large)
    tsr_api_fail(
        &error, arena, 413, NULL, "body_too_large", "The body has more than %lld bytes",
        (long long)tsr_http_server_of(e)->settings.daemon.max_body);
  if (found) e->name = path + strlen(found->path);
  enum MHD_Result result = error.status ? tsr_http_answer_error(e, &error) : found->answer(e);
  tsr_arena_free(arena);
  return result;
}

/* ---- the server ---- */

bool tsr_http_server_open(
    tsr_arena *arena, const tsr_http_settings *settings, const tsr_served_model *model,
    tsr_scheduler *scheduler, tsr_metrics *counts, tsr_http_server **ret_server, tsr_diags *diags) {
  tsr_http_server *s = tsr_arena_alloc(arena, sizeof *s);
  *s = (tsr_http_server){*settings, model, scheduler, counts, NULL};
  *ret_server = s;
  const tsr_http_handler handler = {s, answer_request};
  return tsr_http_daemon_open(arena, &settings->daemon, handler, &s->daemon, diags);
}

void tsr_http_server_refuse(tsr_http_server *s) { tsr_http_daemon_refuse(s->daemon); }

void tsr_http_server_close(tsr_http_server *s) { tsr_http_daemon_close(s->daemon); }
