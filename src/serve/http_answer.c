// SPDX-License-Identifier: Apache-2.0
#include "serve/http_internal.h"
#include <string.h>

static const char json_type[] = "application/json";

static struct MHD_Response *response_of(tsr_text *text, const char *content_type) {
  static char nothing[1] = "";
  bool any = text->data != NULL;
  struct MHD_Response *r = MHD_create_response_from_buffer(
      text->length, any ? text->data : nothing,
      any ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
  if (r) MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  else tsr_text_free(text);
  *text = (tsr_text){0};
  return r;
}

static enum MHD_Result send_response(tsr_exchange *e, int status, struct MHD_Response *r) {
  if (!r) return MHD_NO;
  tsr_metrics_answer(e->server->metrics, status);
  enum MHD_Result result = MHD_queue_response(e->connection, (unsigned)status, r);
  MHD_destroy_response(r);
  return result;
}

enum MHD_Result
tsr_http_answer(tsr_exchange *e, int status, const char *content_type, tsr_text *text) {
  struct MHD_Response *r = response_of(text, content_type);
  if (r && !strncmp(content_type, "text/html", 9)) {
    MHD_add_response_header(
        r, "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "connect-src 'self'; frame-ancestors 'none'");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
  }
  return send_response(e, status, r);
}

enum MHD_Result tsr_http_answer_json(tsr_exchange *e, tsr_text *text) {
  return tsr_http_answer(e, 200, json_type, text);
}

enum MHD_Result tsr_http_answer_error(tsr_exchange *e, const tsr_api_error *error) {
  tsr_text text = {0};
  tsr_api_error_add(error, &text);
  struct MHD_Response *r = response_of(&text, json_type);
  if (r && (error->status == 429 || error->status == 503))
    MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  if (r && error->status == 401)
    MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (r && error->allowed) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, error->allowed);
  return send_response(e, error->status, r);
}
