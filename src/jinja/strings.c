// SPDX-License-Identifier: Apache-2.0
/* Functions of strings that are filters and methods alike. A filter may have any value in front of
 * it, which becomes a string first. */
#include "base/utf8.h"
#include "jinja/run.h"
#include <string.h>
#include <utf8proc.h>

bool tsr_jinja_text_of(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value v, tsr_jinja_value *ret) {
  if (v.kind == TSR_JINJA_STRING) return *ret = v, true;
  tsr_text text = {0};
  if (!tsr_jinja_print(v, &text))
    return tsr_text_free(&text), tsr_jinja_fail(r, a->location, TSR_JINJA_TOO_DEEP);
  *ret = tsr_jinja_take(r->arena, &text);
  return tsr_jinja_count_bytes(r, a->location, ret->string.length);
}

/* ---- code points ---- */

uint32_t tsr_jinja_code_point(tsr_jinja_string s, int64_t at, int64_t *ret_end) {
  uint32_t code = 0;
  *ret_end = at + tsr_utf8_next(s.bytes + at, (size_t)(s.length - at), &code);
  return code;
}

static int64_t code_begin(tsr_jinja_string s, int64_t at) {
  do at--;
  while (at > 0 && ((unsigned char)s.bytes[at] & 0xC0) == 0x80);
  return at;
}

bool tsr_jinja_is_space(uint32_t code) {
  return tsr_utf8_is_space(code) || (code >= 0x1C && code <= 0x1F); /* as Python's str.isspace */
}

bool tsr_jinja_ends_line(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

/* ---- strip ---- */

/* Whether the code point at `at` is in the set; without a set, whether it is whitespace. */
static bool is_one_of(tsr_jinja_string s, int64_t at, const tsr_jinja_string *set, int64_t *end) {
  uint32_t code = tsr_jinja_code_point(s, at, end);
  if (!set) return tsr_jinja_is_space(code);
  return tsr_jinja_find_text(*set, (tsr_jinja_string){s.bytes + at, *end - at}, 0) >= 0;
}

tsr_jinja_string
tsr_jinja_stripped(tsr_jinja_string s, const tsr_jinja_string *set, bool left, bool right) {
  int64_t begin = 0, end = s.length, next;
  while (left && begin < end && is_one_of(s, begin, set, &next)) begin = next;
  while (right && end > begin && is_one_of(s, code_begin(s, end), set, &next))
    end = code_begin(s, end);
  return (tsr_jinja_string){s.bytes + begin, end - begin};
}

static bool
strip(tsr_jinja_run *r, const tsr_jinja_arguments *a, bool left, bool right, tsr_jinja_value *ret) {
  tsr_jinja_string set;
  const tsr_jinja_value *chars = tsr_jinja_argument(a, 0, "chars");
  if (!tsr_jinja_check_arguments(r, a, 1, (const char *const[]){"chars", NULL})) return false;
  bool all = !chars || chars->kind == TSR_JINJA_NONE;
  if (!all && !tsr_jinja_argument_text(r, a, 0, "chars", &set)) return false;
  if (!tsr_jinja_text_of(r, a, a->self, ret)) return false;
  ret->string = tsr_jinja_stripped(ret->string, all ? NULL : &set, left, right);
  return tsr_jinja_count_steps(r, a->location, ret->string.length / 64);
}
bool tsr_jinja_strip(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return strip(r, a, true, true, ret);
}
bool tsr_jinja_lstrip(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return strip(r, a, true, false, ret);
}
bool tsr_jinja_rstrip(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return strip(r, a, false, true, ret);
}

/* ---- upper and lower case ---- */

/* Code points whose upper, lower or title case is several code points (SpecialCasing.txt), and the
 * sigma, whose lower case depends on what follows it. */
static bool has_special_case(uint32_t c) {
  static const uint32_t ranges[][2] = {
      {0xDF, 0xDF},     {0x130, 0x130},   {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},
      {0x3A3, 0x3A3},   {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A}, {0x1E9E, 0x1E9E},
      {0x1F50, 0x1FFC}, {0xFB00, 0xFB17}, {0x1F80, 0x1FAF}, {0x1C4, 0x1CC},   {0x1F1, 0x1F3}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

static uint32_t map_case(uint32_t c, tsr_jinja_case to) {
  int32_t code = (int32_t)c;
  return (uint32_t)(to == TSR_JINJA_LOWER   ? utf8proc_tolower(code)
                    : to == TSR_JINJA_UPPER ? utf8proc_toupper(code)
                                            : utf8proc_totitle(code));
}

bool tsr_jinja_add_case(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, uint32_t code, tsr_jinja_case to,
    tsr_text *text) {
  if (has_special_case(code))
    return tsr_jinja_fail(
        r, a->location, "'%.*s' of the character U+%04X is not supported", (int)a->name.length,
        a->name.bytes, (unsigned)code);
  return tsr_text_add_code_point(text, map_case(code, to)), true;
}

/* The first code point to `first`, the others to `others`. */
static bool change_case(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_case first, tsr_jinja_case others,
    tsr_jinja_value *ret) {
  tsr_text text = {0};
  if (!tsr_jinja_check_arguments(r, a, 0, NULL) || !tsr_jinja_text_of(r, a, a->self, ret))
    return false;
  bool ok = true, is_markup = ret->is_markup;
  tsr_jinja_string s = ret->string;
  for (int64_t at = 0, end; ok && at < s.length; at = end) {
    uint32_t code = tsr_jinja_code_point(s, at, &end);
    ok = tsr_jinja_add_case(r, a, code, at ? others : first, &text);
  }
  *ret = tsr_jinja_take(r->arena, &text);
  ret->is_markup = is_markup;
  return ok && tsr_jinja_count_bytes(r, a->location, ret->string.length);
}
bool tsr_jinja_upper(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return change_case(r, a, TSR_JINJA_UPPER, TSR_JINJA_UPPER, ret);
}
bool tsr_jinja_lower(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return change_case(r, a, TSR_JINJA_LOWER, TSR_JINJA_LOWER, ret);
}
bool tsr_jinja_capitalize(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return change_case(r, a, TSR_JINJA_TITLE, TSR_JINJA_LOWER, ret);
}

/* ---- replace ---- */

bool tsr_jinja_replace(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_string s, from, to;
  const tsr_jinja_value *most = tsr_jinja_argument(a, 2, "count");
  if (!tsr_jinja_check_arguments(r, a, 3, (const char *const[]){"old", "new", "count", NULL}) ||
      !tsr_jinja_text_of(r, a, a->self, ret) || !tsr_jinja_argument_text(r, a, 0, "old", &from) ||
      !tsr_jinja_argument_text(r, a, 1, "new", &to))
    return false;
  s = ret->string;
  int64_t left =
      most && most->kind == TSR_JINJA_INT && most->integer >= 0 ? most->integer : INT64_MAX;
  tsr_text text = {0};
  int64_t done = 0; /* bytes of s that are in the text */
  bool ok = true;
  for (int64_t at = 0, next; ok && left > 0; left--, at = next) {
    int64_t found = at <= s.length ? tsr_jinja_find_text(s, from, at) : -1;
    if (found < 0) break;
    tsr_text_add_bytes(&text, s.bytes + done, (size_t)(found - done));
    tsr_text_add_bytes(&text, to.bytes, (size_t)to.length);
    done = next = found + from.length;
    /* An empty string stands in front of each code point and at the end. */
    if (!from.length && found < s.length) tsr_jinja_code_point(s, found, &next);
    else if (!from.length) next = s.length + 1;
    ok = tsr_jinja_count_bytes(r, a->location, to.length);
  }
  tsr_text_add_bytes(&text, s.bytes + done, (size_t)(s.length - done));
  *ret = tsr_jinja_take(r->arena, &text);
  return ok && tsr_jinja_count_bytes(r, a->location, s.length);
}

/* ---- join ---- */

bool tsr_jinja_join(
    tsr_jinja_run *r, tsr_location location, const tsr_jinja_list *items, tsr_jinja_value by,
    tsr_jinja_value *ret) {
  tsr_text text = {0};
  bool ok = true;
  for (int i = 0; ok && i < items->count; i++) {
    size_t before = text.length;
    ok = (!i || tsr_jinja_print(by, &text)) && tsr_jinja_print(items->items[i], &text);
    if (!ok) tsr_jinja_fail(r, location, TSR_JINJA_TOO_DEEP);
    ok = ok && tsr_jinja_count_bytes(r, location, (int64_t)(text.length - before));
  }
  *ret = tsr_jinja_take(r->arena, &text);
  return ok;
}

/* ---- escape ---- */

void tsr_jinja_add_escaped(tsr_jinja_value v, tsr_text *text) {
  static const char special[] = "&<>'\"";
  static const char *const codes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (int64_t i = 0; i < v.string.length; i++) {
    char c = v.string.bytes[i];
    const char *found = c && !v.is_markup ? strchr(special, c) : NULL;
    if (found) tsr_text_add(text, "%s", codes[found - special]);
    else tsr_text_add_bytes(text, &c, 1);
  }
}
