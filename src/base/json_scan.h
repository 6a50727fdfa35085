// SPDX-License-Identifier: Apache-2.0
/* The check that a text is JSON (RFC 8259), before anything reads it, for readers that report
 * errors or store values in their own way (base/json.h is the usual one). */
#ifndef TSR_BASE_JSON_SCAN_H
#define TSR_BASE_JSON_SCAN_H
#include "base/arena.h"
#include <stdbool.h>
#include <stddef.h>

/* Where the first mistake is, in bytes from the text's begin, and what it is; of a key that stands
 * twice also where the first one is. */
typedef struct {
  size_t offset;
  const char *message;
  bool has_first;
  size_t first;
} tsr_json_fault;

/* By the rules of tsr_json_parse. The message is made in the arena. */
bool tsr_json_scan(tsr_arena *arena, const char *text, size_t length, tsr_json_fault *ret_fault);

/* Of a text that tsr_json_scan accepts: resolves the escapes of the string whose opening quote is
 * at `quote`, and returns what follows its closing quote. `ret_text` has room for the string as it
 * is written. */
const char *tsr_json_unescape(const char *quote, char *ret_text, size_t *ret_length);

/* The bytes of the UTF-8 character at `text` by RFC 3629 (1..4), or 0 when it is not valid. */
int tsr_json_utf8(const char *text, size_t length);

#endif
