// SPDX-License-Identifier: Apache-2.0
#include "jinja/value.h"
#include "base/utf8.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

tsr_jinja_value tsr_jinja_none(void) { return (tsr_jinja_value){.kind = TSR_JINJA_NONE}; }
tsr_jinja_value tsr_jinja_bool(bool truth) {
  return (tsr_jinja_value){.kind = TSR_JINJA_BOOL, .truth = truth};
}
tsr_jinja_value tsr_jinja_int(int64_t integer) {
  return (tsr_jinja_value){.kind = TSR_JINJA_INT, .integer = integer};
}
tsr_jinja_value tsr_jinja_float(double number) {
  return (tsr_jinja_value){.kind = TSR_JINJA_FLOAT, .number = number};
}
tsr_jinja_value tsr_jinja_bytes(const char *bytes, int64_t length) {
  return (tsr_jinja_value){.kind = TSR_JINJA_STRING, .string = {bytes, length}};
}
tsr_jinja_value tsr_jinja_text(const char *text) {
  return tsr_jinja_bytes(text, (int64_t)strlen(text));
}
tsr_jinja_value tsr_jinja_missing(const char *name) {
  return (tsr_jinja_value){.kind = TSR_JINJA_UNDEFINED, .undefined = name};
}
tsr_jinja_value tsr_jinja_new_list(tsr_arena *arena, tsr_jinja_kind kind) {
  return (tsr_jinja_value){.kind = kind, .list = tsr_arena_alloc(arena, sizeof(tsr_jinja_list))};
}
tsr_jinja_value tsr_jinja_new_dict(tsr_arena *arena, tsr_jinja_kind kind) {
  return (tsr_jinja_value){.kind = kind, .dict = tsr_arena_alloc(arena, sizeof(tsr_jinja_dict))};
}

tsr_jinja_value tsr_jinja_take(tsr_arena *arena, tsr_text *text) {
  const char *copy = tsr_arena_strndup(arena, text->data ? text->data : "", text->length);
  tsr_jinja_value v = tsr_jinja_bytes(copy, (int64_t)text->length);
  tsr_text_free(text);
  return v;
}

int tsr_jinja_depth(tsr_jinja_value v) {
  switch (v.kind) {
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
  case TSR_JINJA_VIEW:
  case TSR_JINJA_ITERATOR:
    return v.list->depth;
  case TSR_JINJA_DICT:
    return v.dict->depth;
  default: /* a namespace is compared by identity */
    return 0;
  }
}

static void deepen(int *depth, tsr_jinja_value v) {
  if (tsr_jinja_depth(v) >= *depth) *depth = tsr_jinja_depth(v) + 1;
}

void tsr_jinja_append(tsr_arena *arena, tsr_jinja_list *list, tsr_jinja_value value) {
  tsr_arena_grow(arena, (void **)&list->items, sizeof value, list->count, &list->capacity);
  list->items[list->count++] = value;
  deepen(&list->depth, value);
}

/* ---- what values are ---- */

bool tsr_jinja_is_number(tsr_jinja_value v) {
  return v.kind == TSR_JINJA_BOOL || v.kind == TSR_JINJA_INT || v.kind == TSR_JINJA_FLOAT;
}

double tsr_jinja_as_double(tsr_jinja_value v) {
  if (v.kind == TSR_JINJA_FLOAT) return v.number;
  return v.kind == TSR_JINJA_BOOL ? v.truth : (double)v.integer;
}

bool tsr_jinja_is_true(tsr_jinja_value v) {
  switch (v.kind) {
  case TSR_JINJA_UNDEFINED:
  case TSR_JINJA_NONE:
    return false;
  case TSR_JINJA_BOOL:
    return v.truth;
  case TSR_JINJA_INT:
    return v.integer != 0;
  case TSR_JINJA_FLOAT:
    return v.number != 0;
  case TSR_JINJA_STRING:
    return v.string.length > 0;
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
  case TSR_JINJA_VIEW:
    return v.list->count > 0;
  case TSR_JINJA_DICT:
    return v.dict->count > 0;
  case TSR_JINJA_ITERATOR:
  case TSR_JINJA_NAMESPACE:
  case TSR_JINJA_FUNCTION:
  case TSR_JINJA_LOOP:
    break;
  }
  return true;
}

const char *tsr_jinja_kind_name(tsr_jinja_kind kind) {
  static const char *const names[] = {
      "an undefined value",
      "none",
      "a boolean",
      "an integer",
      "a float",
      "a string",
      "a list",
      "a tuple",
      "a view",
      "an iterator",
      "a dict",
      "a namespace",
      "a function",
      "the variable 'loop'"};
  return names[kind];
}

/* ---- text of values ---- */

void tsr_jinja_print_float(double number, tsr_text *text) {
  char digits[40];
  if (isnan(number) || isinf(number)) {
    tsr_text_add(text, "%s", isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    return;
  }
  int precision = 1;
  do snprintf(digits, sizeof digits, "%.*e", precision - 1, number);
  while (strtod(digits, NULL) != number && ++precision < 18);
  char *mark = strchr(digits, 'e');
  int exponent = atoi(mark + 1);
  if (exponent >= -4 && exponent < 16) {
    int places = precision - 1 - exponent;
    tsr_text_add(text, "%.*f", places > 1 ? places : 1, number);
    return;
  }
  *mark = 0;
  tsr_text_add(text, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

/* Characters that Python writes as escapes: controls, format characters, unusual blanks, unassigned
 * code points. */
static bool is_printable(uint32_t c) {
  int category = utf8proc_category((int32_t)c);
  return c == ' ' || !(category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                       category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CN ||
                       category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP ||
                       category == UTF8PROC_CATEGORY_ZS);
}

static void repr_string(tsr_jinja_string s, tsr_text *text) {
  static const char special[] = "\n\r\t\\", letters[] = "nrt\\";
  bool single = s.length && memchr(s.bytes, '\'', (size_t)s.length),
       both = single && memchr(s.bytes, '"', (size_t)s.length);
  char quote = single && !both ? '"' : '\'';
  tsr_text_add_bytes(text, &quote, 1);
  for (int64_t at = 0; at < s.length;) {
    uint32_t c = 0;
    int bytes = tsr_utf8_next(s.bytes + at, (size_t)(s.length - at), &c);
    const char *found = c && c < 128 ? strchr(special, (int)c) : NULL;
    if (found) tsr_text_add(text, "\\%c", letters[found - special]);
    else if (c == (unsigned char)quote) tsr_text_add(text, "\\%c", quote);
    else if (is_printable(c)) tsr_text_add_bytes(text, s.bytes + at, (size_t)bytes);
    else tsr_text_add(text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    at += bytes;
  }
  tsr_text_add_bytes(text, &quote, 1);
}

static bool repr_list(tsr_jinja_value v, int depth, tsr_text *text) {
  bool ok = true, tuple = v.kind == TSR_JINJA_TUPLE;
  tsr_text_add(text, tuple ? "(" : "[");
  for (int i = 0; ok && i < v.list->count; i++) {
    if (i) tsr_text_add(text, ", ");
    ok = tsr_jinja_repr(v.list->items[i], depth + 1, text);
  }
  tsr_text_add(text, tuple ? v.list->count == 1 ? ",)" : ")" : "]");
  return ok;
}

static bool repr_dict(const tsr_jinja_dict *d, int depth, tsr_text *text) {
  bool ok = true;
  tsr_text_add(text, "{");
  for (int i = 0; ok && i < d->count; i++) {
    if (i) tsr_text_add(text, ", ");
    ok = tsr_jinja_repr(d->entries[i].key, depth + 1, text);
    tsr_text_add(text, ": ");
    ok = ok && tsr_jinja_repr(d->entries[i].value, depth + 1, text);
  }
  tsr_text_add(text, "}");
  return ok;
}

bool tsr_jinja_repr(tsr_jinja_value v, int depth, tsr_text *text) {
  if (depth > TSR_JINJA_DEPTH_MAX) return false;
  switch (v.kind) {
  case TSR_JINJA_UNDEFINED:
    tsr_text_add(text, "Undefined");
    break;
  case TSR_JINJA_NONE:
    tsr_text_add(text, "None");
    break;
  case TSR_JINJA_BOOL:
    tsr_text_add(text, v.truth ? "True" : "False");
    break;
  case TSR_JINJA_INT:
    tsr_text_add(text, "%" PRId64, v.integer);
    break;
  case TSR_JINJA_FLOAT:
    tsr_jinja_print_float(v.number, text);
    break;
  case TSR_JINJA_STRING:
    if (v.is_markup) tsr_text_add(text, "Markup(");
    repr_string(v.string, text);
    if (v.is_markup) tsr_text_add(text, ")");
    break;
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
    return repr_list(v, depth, text);
  case TSR_JINJA_DICT:
    return repr_dict(v.dict, depth, text);
  case TSR_JINJA_NAMESPACE:
  case TSR_JINJA_VIEW:
  case TSR_JINJA_ITERATOR:
  case TSR_JINJA_FUNCTION:
  case TSR_JINJA_LOOP:
    return false;
  }
  return true;
}

bool tsr_jinja_print(tsr_jinja_value v, tsr_text *text) {
  if (v.kind == TSR_JINJA_UNDEFINED) return true;
  if (v.kind != TSR_JINJA_STRING) return tsr_jinja_repr(v, 0, text);
  tsr_text_add_bytes(text, v.string.bytes, (size_t)v.string.length);
  return true;
}

/* ---- strings ---- */

static bool begins_code_point(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

int64_t tsr_jinja_length(tsr_jinja_string s) {
  int64_t count = 0;
  for (int64_t i = 0; i < s.length; i++) count += begins_code_point(s.bytes[i]);
  return count;
}

int64_t tsr_jinja_offset(tsr_jinja_string s, int64_t index) {
  int64_t i = 0, count = 0;
  while (i < s.length && (!begins_code_point(s.bytes[i]) || count++ < index)) i++;
  return i;
}

bool tsr_jinja_is_text(tsr_jinja_value v, const char *text) {
  return v.kind == TSR_JINJA_STRING && (size_t)v.string.length == strlen(text) &&
         !memcmp(v.string.bytes, text, strlen(text));
}

bool tsr_jinja_starts(tsr_jinja_string s, tsr_jinja_string prefix) {
  return s.length >= prefix.length &&
         (!prefix.length || !memcmp(s.bytes, prefix.bytes, (size_t)prefix.length));
}

int64_t tsr_jinja_find_text(tsr_jinja_string s, tsr_jinja_string part, int64_t from) {
  if (from + part.length > s.length) return -1;
  if (!part.length) return from;
  const char *found =
      memmem(s.bytes + from, (size_t)(s.length - from), part.bytes, (size_t)part.length);
  return found ? found - s.bytes : -1;
}
