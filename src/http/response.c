// SPDX-License-Identifier: Apache-2.0
#include "http/response.h"
#include <string.h>

struct MHD_Response *tsr_http_response(tsr_text *text, const char *content_type) {
  static char nothing[1] = "";
  bool any = text->data != NULL;
  struct MHD_Response *r = MHD_create_response_from_buffer(
      text->length, any ? text->data : nothing,
      any ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
  if (r) MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  else tsr_text_free(text);
  *text = (tsr_text){0};
  if (!r || strncmp(content_type, "text/html", 9) != 0) return r;
  MHD_add_response_header(
      r, "Content-Security-Policy",
      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
      "connect-src 'self'; frame-ancestors 'none'");
  MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
  return r;
}

enum MHD_Result
tsr_http_send(struct MHD_Connection *connection, int status, struct MHD_Response *r) {
  if (!r) return MHD_NO;
  enum MHD_Result result = MHD_queue_response(connection, (unsigned)status, r);
  MHD_destroy_response(r);
  return result;
}
