// SPDX-License-Identifier: Apache-2.0
/* What a request is answered with where it cannot be served: {"error": {"message", "type", "param",
 * "code"}}, as clients of OpenAI's API read it. */
#ifndef TSR_SERVE_API_ERROR_H
#define TSR_SERVE_API_ERROR_H
#include "base/arena.h"
#include "base/text.h"

typedef struct {
  int status;               /* of HTTP; 0: there is no error */
  const char *param, *code; /* NULL: null. param: the key of the request that is wrong */
  const char *message;
  const char *allowed; /* of 405: the method with which the path is asked */
} tsr_api_error;

/* Sets the error unless there is one; returns false. The message lives in the arena. */
bool tsr_api_fail(
    tsr_api_error *error, tsr_arena *arena, int status, const char *param, const char *code,
    const char *format, ...) __attribute__((format(printf, 6, 7)));
void tsr_api_error_add(const tsr_api_error *error, tsr_text *text);

#endif
