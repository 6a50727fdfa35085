// SPDX-License-Identifier: Apache-2.0
/* JSON (RFC 8259) as values. A number is what Python reads: an integer without a point or an
 * exponent, which templates can tell from a float. */
#include "jinja/render.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  const char *file, *text;
  int64_t length, at;
  int depth;
} reader;

static bool read_value(reader *p, jinja_value *ret);

static bool fail(reader *p, const char *what) {
  int line = 1, col = 1;
  for (int64_t i = 0; i < p->at && i < p->length; i++)
    if (p->text[i] == '\n') line++, col = 1;
    else col++;
  return tsr_diag_error(p->diags, (tsr_location){p->file, line, col, 1}, "%s", what);
}

static void skip_space(reader *p) {
  while (p->at < p->length && strchr(" \t\r\n", p->text[p->at]) && p->text[p->at]) p->at++;
}

static bool pass(reader *p, char c) {
  if (p->at >= p->length || p->text[p->at] != c) return false;
  p->at++;
  return true;
}

/* ---- strings ---- */

static bool read_hex(reader *p, uint32_t *ret) {
  *ret = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    char c = p->at < p->length ? p->text[p->at] : 0;
    if (!isxdigit((unsigned char)c)) return false;
    *ret = *ret << 4 | (uint32_t)(isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
  }
  return true;
}

static void add_code_point(tsr_text *to, uint32_t c) {
  char bytes[4];
  int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3, n = 0;
  static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
  bytes[n++] = (char)(lead[more] | c >> 6 * more);
  while (more--) bytes[n++] = (char)(0x80 | (c >> 6 * more & 0x3F));
  tsr_text_add_bytes(to, bytes, (size_t)n);
}

/* \uXXXX, or two of them that are one code point. A half alone is no text. */
static bool read_numbered(reader *p, tsr_text *to) {
  uint32_t c, low;
  if (!read_hex(p, &c)) return fail(p, "four hexadecimal digits are expected behind \\u");
  if (c >= 0xD800 && c < 0xDC00 && pass(p, '\\') && pass(p, 'u') && read_hex(p, &low) &&
      low >= 0xDC00 && low < 0xE000)
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
  if (c >= 0xD800 && c < 0xE000) return fail(p, "half of a surrogate pair is no character");
  add_code_point(to, c);
  return true;
}

static bool read_escape(reader *p, tsr_text *to) {
  static const char letters[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
  char c = p->at < p->length ? p->text[p->at] : 0;
  const char *found = c ? strchr(letters, c) : NULL;
  if (pass(p, 'u')) return read_numbered(p, to);
  if (!found) return fail(p, "there is no such escape in JSON");
  p->at++;
  tsr_text_add_bytes(to, &codes[found - letters], 1);
  return true;
}

static bool read_string(reader *p, jinja_value *ret) {
  tsr_text text = {0};
  bool ok = true;
  for (p->at++; ok && p->at < p->length && p->text[p->at] != '"';) {
    if (pass(p, '\\')) ok = read_escape(p, &text);
    else if ((unsigned char)p->text[p->at] < 32) ok = fail(p, "a control character in a string");
    else tsr_text_add_bytes(&text, &p->text[p->at++], 1);
  }
  *ret = jinja_take(p->arena, &text);
  return ok && (pass(p, '"') || fail(p, "this string does not end"));
}

/* ---- numbers, words ---- */

static int64_t digits_end(const reader *p, int64_t at) {
  while (at < p->length && isdigit((unsigned char)p->text[at])) at++;
  return at;
}

static bool read_number(reader *p, jinja_value *ret) {
  int64_t begin = p->at, at = begin + (p->text[begin] == '-'), first = at;
  at = digits_end(p, at);
  bool wrong = at == first || (p->text[first] == '0' && at > first + 1), is_float = false;
  if (at < p->length && p->text[at] == '.') {
    int64_t end = digits_end(p, at + 1);
    wrong |= end == at + 1, is_float = true, at = end;
  }
  if (at < p->length && (p->text[at] | 32) == 'e') {
    int64_t sign = at + 1;
    if (sign < p->length && (p->text[sign] == '+' || p->text[sign] == '-')) sign++;
    int64_t end = digits_end(p, sign);
    wrong |= end == sign, is_float = true, at = end;
  }
  if (wrong) return fail(p, "this is no number of JSON");
  const char *text = tsr_arena_strndup(p->arena, p->text + begin, (size_t)(at - begin));
  errno = 0;
  if (is_float) *ret = jinja_float(strtod(text, NULL));
  else *ret = jinja_int(strtoll(text, NULL, 10));
  if (!is_float && errno) return fail(p, "integers of more than 64 bits are not supported");
  p->at = at;
  return true;
}

static bool read_word(reader *p, jinja_value *ret) {
  static const char *const words[] = {"null", "true", "false"};
  for (int i = 0; i < 3; i++) {
    int64_t n = (int64_t)strlen(words[i]);
    if (p->at + n > p->length || memcmp(p->text + p->at, words[i], (size_t)n)) continue;
    p->at += n;
    *ret = i ? jinja_bool(i == 1) : jinja_none();
    return true;
  }
  return fail(p, "a value of JSON is expected here");
}

/* ---- containers ---- */

static bool read_list(reader *p, jinja_value *ret) {
  *ret = jinja_new_list(p->arena, JINJA_LIST);
  p->at++;
  skip_space(p);
  if (pass(p, ']')) return true;
  do {
    jinja_value item;
    if (!read_value(p, &item)) return false;
    jinja_append(p->arena, ret->list, item);
    skip_space(p);
  } while (pass(p, ','));
  return pass(p, ']') || fail(p, "',' or ']' is expected here");
}

static bool read_dict(reader *p, jinja_value *ret) {
  *ret = jinja_new_dict(p->arena, JINJA_DICT);
  p->at++;
  skip_space(p);
  if (pass(p, '}')) return true;
  do {
    jinja_value key, value;
    skip_space(p);
    if (p->at >= p->length || p->text[p->at] != '"') return fail(p, "a key is expected here");
    if (!read_string(p, &key)) return false;
    skip_space(p);
    if (!pass(p, ':')) return fail(p, "':' is expected here");
    if (!read_value(p, &value)) return false;
    jinja_set(p->arena, ret->dict, key, value);
    skip_space(p);
  } while (pass(p, ','));
  return pass(p, '}') || fail(p, "',' or '}' is expected here");
}

static bool read_value(reader *p, jinja_value *ret) {
  skip_space(p);
  if (p->at >= p->length) return fail(p, "a value of JSON is expected here");
  if (p->depth == JINJA_DEPTH_MAX) return fail(p, "values are nested too deeply");
  p->depth++;
  char c = p->text[p->at];
  bool ok = c == '"'   ? read_string(p, ret)
            : c == '[' ? read_list(p, ret)
            : c == '{' ? read_dict(p, ret)
            : c == '-' || isdigit((unsigned char)c) ? read_number(p, ret)
                                                    : read_word(p, ret);
  p->depth--;
  return ok;
}

bool tsr_jinja_read_json(
    tsr_arena *arena, const char *file, const char *text, size_t length, jinja_value *ret_value,
    tsr_diags *diags) {
  reader p = {
      .arena = arena, .diags = diags, .file = file, .text = text, .length = (int64_t)length};
  if (!read_value(&p, ret_value)) return false;
  skip_space(&p);
  return p.at == p.length || fail(&p, "something follows the value");
}
