// SPDX-License-Identifier: Apache-2.0
/* Lines of JSON: the text that each holds under one key, and where a value is. */
#ifndef TSR_DATA_JSONL_H
#define TSR_DATA_JSONL_H
#include "base/arena.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct {
  size_t offset; /* in the line */
  const char *message;
} tsr_jsonl_fault;

/* The text of `key` in a line that is one object, with its escapes resolved; `ret_text` has room
 * for `length` bytes. The whole line is checked by the rules of base/json.h. Faults, with a message
 * in the arena: no JSON, no object, no such key, another value than a text. Many threads may call
 * it. */
bool tsr_jsonl_text(
    tsr_arena *arena, const char *line, size_t length, const char *key, char *ret_text,
    size_t *ret_length, tsr_jsonl_fault *ret_fault);

/* Where the value of `key` begins in a line that is one object and that tsr_json_scan accepts;
 * `item` >= 0: where this item of the list that it is begins. The line's own begin (0) where there
 * is none. */
size_t tsr_jsonl_find(const char *line, const char *key, int item);

#endif
