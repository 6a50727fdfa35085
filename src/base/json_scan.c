// SPDX-License-Identifier: Apache-2.0
#include "base/json_scan.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* cJSON copies a number into a buffer of this many bytes, with a NUL. */
enum { NUMBER_MAX = 63 };

/* A key of an object that is open; escapes are resolved. */
typedef struct {
  const char *bytes, *at; /* `at`: in the text, the opening quote */
  size_t length, written; /* `written`: in the text, escapes and all */
  uint64_t hash;
} key;

typedef struct {
  bool is_object;
  int keys_begin; /* of an object: its first key in `keys` */
} level;

typedef struct {
  tsr_arena *arena;   /* of the message */
  tsr_arena *scratch; /* freed after the scan */
  const char *text, *at, *end;
  level levels[TSR_JSON_DEPTH_MAX];
  int depth;
  key *keys; /* of all objects that are open, the outermost first */
  int keys_count, keys_capacity;
  tsr_json_fault *fault;
} scanner;

int tsr_json_utf8(const char *text, size_t length) {
  const unsigned char *b = (const unsigned char *)text;
  if (!length) return 0;
  if (b[0] < 0x80) return 1;
  int count = b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : 2;
  if (b[0] < 0xc2 || b[0] > 0xf4 || length < (size_t)count) return 0;
  for (int i = 1; i < count; i++)
    if ((b[i] & 0xc0) != 0x80) return 0;
  bool overlong = (b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xf0 && b[1] < 0x90);
  bool surrogate = b[0] == 0xed && b[1] > 0x9f, beyond = b[0] == 0xf4 && b[1] > 0x8f;
  return overlong || surrogate || beyond ? 0 : count;
}

static bool fail(scanner *s, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail(scanner *s, const char *at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  *s->fault = (tsr_json_fault){
      .offset = (size_t)(at - s->text), .message = tsr_arena_vprintf(s->arena, format, args)};
  va_end(args);
  return false;
}

/* What stands at `at`, for messages. */
static const char *describe(scanner *s, const char *at) {
  if (at >= s->end) return "the end of the text";
  unsigned char c = (unsigned char)*at;
  int length = tsr_json_utf8(at, (size_t)(s->end - at));
  if (c < 0x20 || c == 0x7f || !length) return tsr_arena_printf(s->arena, "byte 0x%02x", c);
  return tsr_arena_printf(s->arena, "'%.*s'", length, at);
}

static void skip_blanks(scanner *s) {
  const char *at = s->at;
  while (at < s->end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
  s->at = at;
}

/* Four hexadecimal digits, or -1. */
static int read_hex(const scanner *s, const char *at) {
  int code = 0;
  if (s->end - at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    char c = at[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    code = code << 4 | digit;
  }
  return code;
}

/* The escape at `at`, a backslash: its bytes, or 0 after an error; and its character. */
static int scan_escape(scanner *s, const char *at, uint32_t *ret_code) {
  static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
  char name = at + 1 < s->end ? at[1] : 0;
  const char *found = name ? strchr(names, name) : NULL;
  if (found) {
    *ret_code = (unsigned char)codes[found - names];
    return 2;
  }
  if (name != 'u') {
    fail(s, at, "a backslash may not stand before %s", describe(s, at + 1));
    return 0;
  }
  int high = read_hex(s, at + 2), low;
  if (high < 0) return fail(s, at, "\\u needs four hexadecimal digits");
  if (high == 0) return fail(s, at, "\\u0000 is not taken: texts end at a NUL");
  *ret_code = (uint32_t)high;
  if (high < 0xd800 || high > 0xdfff) return 6;
  bool pair = high < 0xdc00 && s->end - at > 7 && at[6] == '\\' && at[7] == 'u';
  low = pair ? read_hex(s, at + 8) : -1;
  if (low < 0xdc00 || low > 0xdfff)
    return fail(s, at, "\\u%.4s is half of a surrogate pair alone", at + 2);
  *ret_code = 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
  return 12;
}

/* A string; s->at is its opening quote. Sets what is between the quotes, and whether it has
 * escapes. */
static bool scan_string(scanner *s, const char **ret_begin, size_t *ret_length, bool *ret_escapes) {
  const char *open = s->at, *at = open + 1;
  *ret_escapes = false;
  for (;;) {
    while (at < s->end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' &&
           *at != '\\')
      at++;
    if (at >= s->end) return fail(s, open, "a string has no closing quote");
    if (*at == '"') break;
    uint32_t code;
    int length;
    if (*at == '\\') {
      *ret_escapes = true;
      length = scan_escape(s, at, &code);
      if (!length) return false;
    } else if (!*at) {
      return fail(s, at, "byte 0x00 in a string is not taken: texts end at a NUL");
    } else if ((unsigned char)*at < 0x20) {
      return fail(
          s, at, "byte 0x%02x in a string should be written \\u%04x", (unsigned)*at, (unsigned)*at);
    } else {
      length = tsr_json_utf8(at, (size_t)(s->end - at));
      if (!length) return fail(s, at, "invalid UTF-8: byte 0x%02x", (unsigned char)*at);
    }
    at += length;
  }
  *ret_begin = open + 1;
  *ret_length = (size_t)(at - open - 1);
  s->at = at + 1;
  return true;
}

/* With a last mixing. */
static uint64_t hash_bytes(const char *bytes, size_t length) {
  uint64_t hash = tsr_hash_fnv1a(bytes, length);
  return hash ^ hash >> 32;
}

static bool scan_key(scanner *s) {
  skip_blanks(s);
  if (s->at >= s->end || *s->at != '"')
    return fail(s, s->at, "expected a key in double quotes, not %s", describe(s, s->at));
  key k = {.at = s->at};
  bool escapes;
  if (!scan_string(s, &k.bytes, &k.length, &escapes)) return false;
  k.written = k.length;
  if (escapes) {
    char *bytes = tsr_arena_alloc(s->scratch, k.length + 1);
    tsr_json_unescape(k.at, bytes, &k.length);
    k.bytes = bytes;
  }
  k.hash = hash_bytes(k.bytes, k.length);
  tsr_arena_grow(s->scratch, (void **)&s->keys, sizeof *s->keys, s->keys_count, &s->keys_capacity);
  s->keys[s->keys_count++] = k;
  skip_blanks(s);
  if (s->at >= s->end || *s->at != ':')
    return fail(s, s->at, "expected ':' after a key, not %s", describe(s, s->at));
  s->at++;
  return true;
}

static bool is_same(const key *a, const key *b) {
  return a->hash == b->hash && a->length == b->length && !memcmp(a->bytes, b->bytes, a->length);
}

static bool fail_twice(scanner *s, const key *first, const key *second) {
  fail(s, second->at, "key '%.*s' stands twice", (int)second->written, second->at + 1);
  s->fault->has_first = true;
  s->fault->first = (size_t)(first->at - s->text);
  return false;
}

/* The keys of the object that is being closed differ from each other. */
static bool check_keys(scanner *s, const key *keys, int count) {
  if (count <= 8) {
    for (int i = 1; i < count; i++)
      for (int j = 0; j < i; j++)
        if (is_same(&keys[j], &keys[i])) return fail_twice(s, &keys[j], &keys[i]);
    return true;
  }
  size_t size = 32;
  while (size < (size_t)count * 2) size *= 2;
  tsr_arena *arena = tsr_arena_new();
  int *slots = tsr_arena_array(arena, int, size); /* 1 + a key's index */
  bool ok = true;
  for (int i = 0; i < count && ok; i++) {
    size_t at = keys[i].hash & (size - 1);
    for (; slots[at] && ok; at = (at + 1) & (size - 1))
      if (is_same(&keys[slots[at] - 1], &keys[i]))
        ok = fail_twice(s, &keys[slots[at] - 1], &keys[i]);
    slots[at] = i + 1;
  }
  tsr_arena_free(arena);
  return ok;
}

static const char *skip_digits(const scanner *s, const char *at) {
  while (at < s->end && *at >= '0' && *at <= '9') at++;
  return at;
}

static bool scan_number(scanner *s) {
  const char *begin = s->at, *at = begin + (*begin == '-'), *digits = at;
  at = skip_digits(s, at);
  if (at == digits) return fail(s, at, "expected a digit after '-', not %s", describe(s, at));
  if (*digits == '0' && at - digits > 1) return fail(s, begin, "a number begins with 0");
  if (at < s->end && *at == '.') {
    digits = ++at;
    at = skip_digits(s, at);
    if (at == digits) return fail(s, at, "expected a digit after '.', not %s", describe(s, at));
  }
  if (at < s->end && (*at == 'e' || *at == 'E')) {
    at++;
    if (at < s->end && (*at == '+' || *at == '-')) at++;
    digits = at;
    at = skip_digits(s, at);
    if (at == digits)
      return fail(s, at, "expected a digit in the exponent, not %s", describe(s, at));
    char copy[NUMBER_MAX + 1] = {0};
    if (at - begin <= NUMBER_MAX && isinf(strtod(memcpy(copy, begin, (size_t)(at - begin)), NULL)))
      return fail(s, begin, "%s is too large", copy);
  }
  if (at - begin > NUMBER_MAX)
    return fail(
        s, begin, "a number of %zu characters; at most %d are read", (size_t)(at - begin),
        NUMBER_MAX);
  s->at = at;
  return true;
}

static bool scan_word(scanner *s) {
  static const char *const words[] = {"true", "false", "null"};
  for (int i = 0; i < 3; i++) {
    size_t length = strlen(words[i]);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, words[i], length) != 0) continue;
    s->at += length;
    return true;
  }
  return fail(s, s->at, "expected a value, not %s", describe(s, s->at));
}

/* What is due next. */
typedef enum { VALUE, FIRST_VALUE, KEY, FIRST_KEY, AFTER_VALUE } due;

static bool open_level(scanner *s, due *next) {
  if (s->depth == TSR_JSON_DEPTH_MAX)
    return fail(s, s->at, "more than %d levels", TSR_JSON_DEPTH_MAX);
  bool is_object = *s->at++ == '{';
  s->levels[s->depth++] = (level){is_object, s->keys_count};
  *next = is_object ? FIRST_KEY : FIRST_VALUE;
  return true;
}

static bool close_level(scanner *s) {
  level l = s->levels[--s->depth];
  s->at++;
  if (!l.is_object) return true;
  int count = s->keys_count - l.keys_begin;
  if (count && !check_keys(s, s->keys + l.keys_begin, count)) return false;
  s->keys_count = l.keys_begin;
  return true;
}

static bool scan_value(scanner *s, due *next) {
  *next = AFTER_VALUE;
  char c = s->at < s->end ? *s->at : 0;
  if (c == '{' || c == '[') return open_level(s, next);
  if (c == '-' || (c >= '0' && c <= '9')) return scan_number(s);
  if (c != '"') return scan_word(s);
  const char *begin;
  size_t length;
  bool escapes;
  return scan_string(s, &begin, &length, &escapes);
}

/* The comma or the bracket after a value within `l`. */
static bool scan_after(scanner *s, level l, due *next) {
  char c = s->at < s->end ? *s->at : 0, close = l.is_object ? '}' : ']';
  if (c == close) return close_level(s);
  if (c != ',')
    return fail(s, s->at, "expected ',' or '%c' after a value, not %s", close, describe(s, s->at));
  s->at++;
  *next = l.is_object ? KEY : VALUE;
  return true;
}

static bool scan_all(scanner *s) {
  if (s->end - s->at >= 3 && !memcmp(s->at, "\xef\xbb\xbf", 3))
    return fail(s, s->at, "JSON begins without a byte order mark");
  due next = VALUE;
  do {
    skip_blanks(s);
    char c = s->at < s->end ? *s->at : 0;
    if ((next == FIRST_KEY && c == '}') || (next == FIRST_VALUE && c == ']')) {
      next = AFTER_VALUE;
      if (!close_level(s)) return false;
    } else if (next == KEY || next == FIRST_KEY) {
      next = VALUE;
      if (!scan_key(s)) return false;
    } else if (next == AFTER_VALUE) {
      if (!scan_after(s, s->levels[s->depth - 1], &next)) return false;
    } else if (!scan_value(s, &next)) {
      return false;
    }
  } while (s->depth || next != AFTER_VALUE);
  skip_blanks(s);
  if (s->at < s->end) return fail(s, s->at, "%s after the end of the JSON", describe(s, s->at));
  return true;
}

bool tsr_json_scan(tsr_arena *arena, const char *text, size_t length, tsr_json_fault *ret_fault) {
  scanner s = {
      .arena = arena,
      .scratch = tsr_arena_new(),
      .text = text,
      .at = text,
      .end = text + length,
      .fault = ret_fault};
  bool ok = scan_all(&s);
  tsr_arena_free(s.scratch);
  return ok;
}

/* ---- strings of a text that is JSON ---- */

static uint32_t hex_at(const char *at) {
  uint32_t code = 0;
  for (int i = 0; i < 4; i++) {
    char c = at[i];
    code = code << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return code;
}

const char *tsr_json_unescape(const char *quote, char *ret_text, size_t *ret_length) {
  static const char names[] = "bfnrt", codes[] = "\b\f\n\r\t";
  const char *at = quote + 1;
  char *to = ret_text;
  while (*at != '"') {
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
  *ret_length = (size_t)(to - ret_text);
  return at + 1;
}
