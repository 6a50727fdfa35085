// SPDX-License-Identifier: Apache-2.0
#include "http/response.h"
#include "serve/http_internal.h"

static const char json_type[] = "application/json";

static enum MHD_Result send_response(tsr_exchange *e, int status, struct MHD_Response *r) {
  if (r) tsr_metrics_answer(tsr_http_server_of(e)->metrics, status);
  return tsr_http_send(e->connection, status, r);
}

enum MHD_Result
tsr_http_answer(tsr_exchange *e, int status, const char *content_type, tsr_text *text) {
  return send_response(e, status, tsr_http_response(text, content_type));
}

enum MHD_Result tsr_http_answer_json(tsr_exchange *e, tsr_text *text) {
  return tsr_http_answer(e, 200, json_type, text);
}

enum MHD_Result tsr_http_answer_error(tsr_exchange *e, const tsr_api_error *error) {
  tsr_text text = {0};
  tsr_api_error_add(error, &text);
  struct MHD_Response *r = tsr_http_response(&text, json_type);
  if (r && (error->status == 429 || error->status == 503))
    MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  if (r && error->status == 401)
    MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (r && error->allowed) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, error->allowed);
  return send_response(e, error->status, r);
}
