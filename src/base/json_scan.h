// SPDX-License-Identifier: Apache-2.0
/* The check that a text is JSON as RFC 8259 has it, before anything reads it (base/json.h), for
 * those that say in their own words where it is not. */
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

/* The bytes of the UTF-8 character at `text` by RFC 3629 (1..4), or 0 when it is not valid. */
int tsr_json_utf8(const char *text, size_t length);

#endif
