// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"
#include "base/json_scan.h"
#include <string.h>

/* All that follows reads a text that tsr_json_scan has found right, so nothing ends too early. */

static const char *skip_blanks(const char *at) {
  while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n') at++;
  return at;
}

/* From an opening quote to behind the closing one. */
static const char *skip_string(const char *at) {
  for (at++; *at != '"'; at++)
    if (*at == '\\') at++;
  return at + 1;
}

static const char *skip_value(const char *at) {
  int depth = 0;
  do {
    if (*at == '"') {
      at = skip_string(at);
      continue;
    }
    if (*at == '{' || *at == '[') depth++;
    if (*at == '}' || *at == ']') depth--;
    at++;
  } while (depth || !strchr(",}] \t\r\n", *at));
  return at;
}

/* Keys with escapes are compared with these resolved; a key that is longer cannot be meant. */
static bool is_key(const char *at, const char *end, const char *key, size_t key_length) {
  char text[256];
  if (!memchr(at, '\\', (size_t)(end - at)))
    return (size_t)(end - at) == key_length + 2 && !memcmp(at + 1, key, key_length);
  if ((size_t)(end - at) > sizeof text) return false;
  size_t length;
  tsr_json_unescape(at, text, &length);
  return length == key_length && !memcmp(text, key, key_length);
}

static const char *name_of(char first) {
  if (first == '{') return "an object";
  if (first == '[') return "a list";
  if (first == 'n') return "null";
  return first == 't' || first == 'f' ? "true or false" : "a number";
}

static bool fail(tsr_jsonl_fault *fault, const char *line, const char *at, const char *message) {
  *fault = (tsr_jsonl_fault){(size_t)(at - line), message};
  return false;
}

/* The value of a key in an object; NULL: the key is missing. */
static const char *find_value(const char *object, const char *key) {
  size_t key_length = strlen(key);
  const char *at = skip_blanks(object + 1);
  for (; *at == '"'; at = skip_blanks(at + (*at == ','))) {
    const char *end = skip_string(at);
    const char *value = skip_blanks(skip_blanks(end) + 1);
    if (is_key(at, end, key, key_length)) return value;
    at = skip_blanks(skip_value(value));
  }
  return NULL;
}

size_t tsr_jsonl_find(const char *line, const char *key, int item) {
  const char *object = skip_blanks(line);
  const char *value = *object == '{' ? find_value(object, key) : NULL;
  if (!value) return 0;
  if (item < 0 || *value != '[') return (size_t)(value - line);
  value = skip_blanks(value + 1);
  for (int i = 0; i < item && *value != ']'; i++) {
    value = skip_blanks(skip_value(value));
    value = skip_blanks(value + (*value == ','));
  }
  return (size_t)(value - line);
}

bool tsr_jsonl_text(
    tsr_arena *arena, const char *line, size_t length, const char *key, char *ret_text,
    size_t *ret_length, tsr_jsonl_fault *ret_fault) {
  tsr_json_fault fault;
  if (!tsr_json_scan(arena, line, length, &fault))
    return fail(ret_fault, line, line + fault.offset, fault.message);
  const char *at = skip_blanks(line);
  if (*at != '{')
    return fail(
        ret_fault, line, at,
        tsr_arena_printf(
            arena, "a line should be an object with the key '%s', not %s", key,
            *at == '"' ? "a text" : name_of(*at)));
  const char *value = find_value(at, key);
  if (!value)
    return fail(ret_fault, line, line, tsr_arena_printf(arena, "key '%s' is missing", key));
  if (*value != '"')
    return fail(
        ret_fault, line, value,
        tsr_arena_printf(arena, "key '%s' should be a text, not %s", key, name_of(*value)));
  tsr_json_unescape(value, ret_text, ret_length);
  return true;
}
