// SPDX-License-Identifier: Apache-2.0
#include "data/conversation_internal.h"
#include <stdarg.h>
#include <stdio.h>

bool tsr_conversation_fail(tsr_conversation_place *at, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (!at->location.line) at->location = tsr_text_file_place(at->file, at->offset, 1, at->diags);
  return tsr_diag_error(at->diags, at->location, "%s", text);
}
