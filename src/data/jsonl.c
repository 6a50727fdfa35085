// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"
#include "base/json_scan.h"
#include "base/utf8.h"
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

static uint32_t hex_at(const char *at) {
  uint32_t code = 0;
  for (int i = 0; i < 4; i++) {
    char c = at[i];
    code = code << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return code;
}

/* The string whose opening quote is at `at`. */
static size_t resolve(const char *at, char *to) {
  static const char names[] = "bfnrt", codes[] = "\b\f\n\r\t";
  char *begin = to;
  for (at++; *at != '"';) {
    if (*at != '\\') {
      *to++ = *at++;
      continue;
    }
    const char *name = strchr(names, at[1]);
    if (at[1] != 'u') {
      *to++ = name ? codes[name - names] : at[1];
      at += 2;
      continue;
    }
    uint32_t code = hex_at(at + 2);
    bool pair = code >= 0xd800 && code < 0xdc00;
    if (pair) code = 0x10000 + ((code - 0xd800) << 10) + (hex_at(at + 8) - 0xdc00);
    at += pair ? 12 : 6;
    to += tsr_utf8_put(code, to);
  }
  return (size_t)(to - begin);
}

/* Keys with escapes are compared with these resolved; a key that is longer cannot be meant. */
static bool is_key(const char *at, const char *end, const char *key, size_t key_length) {
  char text[256];
  if (!memchr(at, '\\', (size_t)(end - at)))
    return (size_t)(end - at) == key_length + 2 && !memcmp(at + 1, key, key_length);
  if ((size_t)(end - at) > sizeof text) return false;
  return resolve(at, text) == key_length && !memcmp(text, key, key_length);
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
  size_t key_length = strlen(key);
  for (at = skip_blanks(at + 1); *at == '"'; at = skip_blanks(at + (*at == ','))) {
    const char *end = skip_string(at);
    const char *value = skip_blanks(skip_blanks(end) + 1);
    if (is_key(at, end, key, key_length)) {
      if (*value != '"')
        return fail(
            ret_fault, line, value,
            tsr_arena_printf(arena, "key '%s' should be a text, not %s", key, name_of(*value)));
      *ret_length = resolve(value, ret_text);
      return true;
    }
    at = skip_blanks(skip_value(value));
  }
  return fail(ret_fault, line, line, tsr_arena_printf(arena, "key '%s' is missing", key));
}
