// SPDX-License-Identifier: Apache-2.0
#include "jinja/value.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

jinja_value jinja_none(void) { return (jinja_value){.kind = JINJA_NONE}; }
jinja_value jinja_bool(bool truth) { return (jinja_value){.kind = JINJA_BOOL, .truth = truth}; }
jinja_value jinja_int(int64_t integer) {
  return (jinja_value){.kind = JINJA_INT, .integer = integer};
}
jinja_value jinja_float(double number) {
  return (jinja_value){.kind = JINJA_FLOAT, .number = number};
}
jinja_value jinja_bytes(const char *bytes, int64_t length) {
  return (jinja_value){.kind = JINJA_STRING, .string = {bytes, length}};
}
jinja_value jinja_text(const char *text) { return jinja_bytes(text, (int64_t)strlen(text)); }
jinja_value jinja_missing(const char *name) {
  return (jinja_value){.kind = JINJA_UNDEFINED, .undefined = name};
}
jinja_value jinja_new_list(tsr_arena *arena, jinja_kind kind) {
  return (jinja_value){.kind = kind, .list = tsr_arena_alloc(arena, sizeof(jinja_list))};
}
jinja_value jinja_new_dict(tsr_arena *arena, jinja_kind kind) {
  return (jinja_value){.kind = kind, .dict = tsr_arena_alloc(arena, sizeof(jinja_dict))};
}

jinja_value jinja_take(tsr_arena *arena, tsr_text *text) {
  const char *copy = tsr_arena_strndup(arena, text->data ? text->data : "", text->length);
  jinja_value v = jinja_bytes(copy, (int64_t)text->length);
  tsr_text_free(text);
  return v;
}

void jinja_append(tsr_arena *arena, jinja_list *list, jinja_value value) {
  tsr_arena_grow(arena, (void **)&list->items, sizeof value, list->count, &list->capacity);
  list->items[list->count++] = value;
}

const jinja_value *jinja_get(const jinja_dict *dict, jinja_value key) {
  for (int i = 0; i < dict->count; i++)
    if (jinja_equal(dict->entries[i].key, key)) return &dict->entries[i].value;
  return NULL;
}

const jinja_value *jinja_get_text(const jinja_dict *dict, const char *key) {
  return jinja_get(dict, jinja_text(key));
}

void jinja_set(tsr_arena *arena, jinja_dict *dict, jinja_value key, jinja_value value) {
  jinja_value *there = (jinja_value *)jinja_get(dict, key);
  if (there) {
    *there = value;
    return;
  }
  tsr_arena_grow(
      arena, (void **)&dict->entries, sizeof *dict->entries, dict->count, &dict->capacity);
  dict->entries[dict->count++] = (jinja_entry){key, value};
}

/* ---- what values are ---- */

bool jinja_is_number(jinja_value v) {
  return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT;
}

double jinja_as_double(jinja_value v) {
  if (v.kind == JINJA_FLOAT) return v.number;
  return v.kind == JINJA_BOOL ? v.truth : (double)v.integer;
}

bool jinja_is_true(jinja_value v) {
  switch (v.kind) {
  case JINJA_UNDEFINED:
  case JINJA_NONE: return false;
  case JINJA_BOOL: return v.truth;
  case JINJA_INT: return v.integer != 0;
  case JINJA_FLOAT: return v.number != 0;
  case JINJA_STRING: return v.string.length > 0;
  case JINJA_LIST:
  case JINJA_TUPLE: return v.list->count > 0;
  case JINJA_DICT: return v.dict->count > 0;
  case JINJA_NAMESPACE:
  case JINJA_FUNCTION:
  case JINJA_LOOP: break;
  }
  return true;
}

const char *jinja_kind_name(jinja_kind kind) {
  static const char *const names[] = {
      "undefined", "none",  "a boolean", "an integer",  "a float",    "a string",
      "a list",    "a tuple", "a dict",  "a namespace", "a function", "the variable 'loop'"};
  return names[kind];
}

/* Equal where Python's numbers are: exactly, not as doubles. */
static int compare_numbers(jinja_value a, jinja_value b) {
  if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT) {
    int64_t x = a.kind == JINJA_BOOL ? a.truth : a.integer,
            y = b.kind == JINJA_BOOL ? b.truth : b.integer;
    return (x > y) - (x < y);
  }
  double x = jinja_as_double(a), y = jinja_as_double(b);
  return (x > y) - (x < y);
}

static bool equal_lists(const jinja_list *a, const jinja_list *b) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++) same = jinja_equal(a->items[i], b->items[i]);
  return same;
}

static bool equal_dicts(const jinja_dict *a, const jinja_dict *b) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++) {
    const jinja_value *other = jinja_get(b, a->entries[i].key);
    same = other && jinja_equal(a->entries[i].value, *other);
  }
  return same;
}

bool jinja_equal(jinja_value a, jinja_value b) {
  if (jinja_is_number(a) && jinja_is_number(b)) {
    bool nan = jinja_as_double(a) != jinja_as_double(a) || jinja_as_double(b) != jinja_as_double(b);
    return !nan && compare_numbers(a, b) == 0;
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case JINJA_STRING:
    return a.string.length == b.string.length &&
           (!a.string.length || !memcmp(a.string.bytes, b.string.bytes, (size_t)a.string.length));
  case JINJA_LIST:
  case JINJA_TUPLE: return equal_lists(a.list, b.list);
  case JINJA_DICT: return equal_dicts(a.dict, b.dict);
  case JINJA_NAMESPACE: return a.dict == b.dict;
  case JINJA_FUNCTION: return a.function == b.function;
  case JINJA_LOOP: return a.loop == b.loop;
  default: return true;
  }
}

static int compare_strings(jinja_string a, jinja_string b) {
  size_t shorter = (size_t)(a.length < b.length ? a.length : b.length);
  int order = shorter ? memcmp(a.bytes, b.bytes, shorter) : 0; /* UTF-8 has code points' order */
  return order ? order : (a.length > b.length) - (a.length < b.length);
}

bool jinja_compare(jinja_value a, jinja_value b, int *ret_order) {
  if (jinja_is_number(a) && jinja_is_number(b)) return *ret_order = compare_numbers(a, b), true;
  if (a.kind != b.kind) return false;
  if (a.kind == JINJA_STRING) return *ret_order = compare_strings(a.string, b.string), true;
  if (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE) return false;
  for (int i = 0; i < a.list->count && i < b.list->count; i++)
    if (!jinja_equal(a.list->items[i], b.list->items[i]))
      return jinja_compare(a.list->items[i], b.list->items[i], ret_order);
  *ret_order = (a.list->count > b.list->count) - (a.list->count < b.list->count);
  return true;
}

/* ---- text of values ---- */

void jinja_print_float(double number, tsr_text *text) {
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

static void repr_string(jinja_string s, tsr_text *text) {
  bool single = s.length && memchr(s.bytes, '\'', (size_t)s.length),
       both = single && memchr(s.bytes, '"', (size_t)s.length);
  char quote = single && !both ? '"' : '\'';
  tsr_text_add(text, "%c", quote);
  for (int64_t i = 0; i < s.length; i++) {
    unsigned char c = (unsigned char)s.bytes[i];
    if (c == '\\' || c == (unsigned char)quote) tsr_text_add(text, "\\%c", c);
    else if (c == '\n') tsr_text_add(text, "\\n");
    else if (c == '\r') tsr_text_add(text, "\\r");
    else if (c == '\t') tsr_text_add(text, "\\t");
    else if (c < 32 || c == 127) tsr_text_add(text, "\\x%02x", c);
    else tsr_text_add_bytes(text, &s.bytes[i], 1);
  }
  tsr_text_add(text, "%c", quote);
}

static bool repr_list(jinja_value v, int depth, tsr_text *text) {
  bool ok = true, tuple = v.kind == JINJA_TUPLE;
  tsr_text_add(text, tuple ? "(" : "[");
  for (int i = 0; ok && i < v.list->count; i++) {
    if (i) tsr_text_add(text, ", ");
    ok = jinja_repr(v.list->items[i], depth + 1, text);
  }
  tsr_text_add(text, tuple ? v.list->count == 1 ? ",)" : ")" : "]");
  return ok;
}

static bool repr_dict(const jinja_dict *d, int depth, tsr_text *text) {
  bool ok = true;
  tsr_text_add(text, "{");
  for (int i = 0; ok && i < d->count; i++) {
    if (i) tsr_text_add(text, ", ");
    ok = jinja_repr(d->entries[i].key, depth + 1, text);
    tsr_text_add(text, ": ");
    ok = ok && jinja_repr(d->entries[i].value, depth + 1, text);
  }
  tsr_text_add(text, "}");
  return ok;
}

bool jinja_repr(jinja_value v, int depth, tsr_text *text) {
  if (depth > JINJA_DEPTH_MAX) return false;
  switch (v.kind) {
  case JINJA_UNDEFINED: tsr_text_add(text, "Undefined"); break;
  case JINJA_NONE: tsr_text_add(text, "None"); break;
  case JINJA_BOOL: tsr_text_add(text, v.truth ? "True" : "False"); break;
  case JINJA_INT: tsr_text_add(text, "%" PRId64, v.integer); break;
  case JINJA_FLOAT: jinja_print_float(v.number, text); break;
  case JINJA_STRING: repr_string(v.string, text); break;
  case JINJA_LIST:
  case JINJA_TUPLE: return repr_list(v, depth, text);
  case JINJA_DICT: return repr_dict(v.dict, depth, text);
  case JINJA_NAMESPACE:
    tsr_text_add(text, "<Namespace ");
    if (!repr_dict(v.dict, depth, text)) return false;
    tsr_text_add(text, ">");
    break;
  case JINJA_FUNCTION: tsr_text_add(text, "<function>"); break;
  case JINJA_LOOP: tsr_text_add(text, "<LoopContext>"); break;
  }
  return true;
}

bool jinja_print(jinja_value v, tsr_text *text) {
  if (v.kind == JINJA_UNDEFINED) return true;
  if (v.kind != JINJA_STRING) return jinja_repr(v, 0, text);
  tsr_text_add_bytes(text, v.string.bytes, (size_t)v.string.length);
  return true;
}

/* ---- strings ---- */

static bool begins_code_point(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

int64_t jinja_length(jinja_string s) {
  int64_t count = 0;
  for (int64_t i = 0; i < s.length; i++) count += begins_code_point(s.bytes[i]);
  return count;
}

int64_t jinja_offset(jinja_string s, int64_t index) {
  int64_t i = 0, count = 0;
  while (i < s.length && (!begins_code_point(s.bytes[i]) || count++ < index)) i++;
  return i;
}

bool jinja_is_text(jinja_value v, const char *text) {
  return v.kind == JINJA_STRING && (size_t)v.string.length == strlen(text) &&
         !memcmp(v.string.bytes, text, strlen(text));
}

bool jinja_starts(jinja_string s, jinja_string prefix) {
  return s.length >= prefix.length &&
         (!prefix.length || !memcmp(s.bytes, prefix.bytes, (size_t)prefix.length));
}

int64_t jinja_find(jinja_string s, jinja_string part, int64_t from) {
  for (int64_t i = from; i + part.length <= s.length; i++)
    if (jinja_starts((jinja_string){s.bytes + i, s.length - i}, part)) return i;
  return -1;
}
