// SPDX-License-Identifier: Apache-2.0
#include "serve/api_error.h"
#include "base/json.h"
#include <string.h>

bool tsr_api_fail(
    tsr_api_error *error, tsr_arena *arena, int status, const char *param, const char *code,
    const char *format, ...) {
  va_list args;
  if (error->status) return false;
  va_start(args, format);
  *error = (tsr_api_error){status, param, code, tsr_arena_vprintf(arena, format, args), NULL};
  va_end(args);
  return false;
}

static const char *type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "service_unavailable_error";
  if (status == 504) return "timeout_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

static void add_nullable(tsr_text *text, const char *key, const char *value) {
  tsr_text_add(text, ",\"%s\":", key);
  if (value) tsr_json_add_text(text, value, strlen(value));
  else tsr_text_add(text, "null");
}

void tsr_api_error_add(const tsr_api_error *error, tsr_text *text) {
  tsr_text_add(text, "{\"error\":{\"message\":");
  tsr_json_add_text(text, error->message, strlen(error->message));
  tsr_text_add(text, ",\"type\":\"%s\"", type_of(error->status));
  add_nullable(text, "param", error->param);
  add_nullable(text, "code", error->code);
  tsr_text_add(text, "}}");
}
