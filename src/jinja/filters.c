// SPDX-License-Identifier: Apache-2.0
/* The table of filters, and those of texts and numbers. */
#include "jinja/run.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- texts ---- */

static bool filter_string(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return tsr_jinja_check_arguments(r, a, 0, NULL) && tsr_jinja_text_of(r, a, a->self, ret);
}

static bool filter_safe(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  if (!filter_string(r, a, ret)) return false;
  return ret->is_markup = true;
}

static bool filter_escape(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_text text = {0};
  if (!filter_string(r, a, ret)) return false;
  tsr_jinja_add_escaped(*ret, &text);
  *ret = tsr_jinja_take(r->arena, &text);
  ret->is_markup = true;
  return tsr_jinja_count_bytes(r, a->location, ret->string.length);
}

/* A letter behind white space, a dash or an opening bracket is capital. */
static bool filter_title(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_text text = {0};
  bool ok = filter_string(r, a, ret), begins = true, is_markup = ok && ret->is_markup;
  for (int64_t at = 0, end; ok && at < ret->string.length; at = end) {
    uint32_t c = tsr_jinja_code_point(ret->string, at, &end);
    ok = tsr_jinja_add_case(r, a, c, begins ? TSR_JINJA_UPPER : TSR_JINJA_LOWER, &text);
    begins = tsr_jinja_is_space(c) || (c && c < 128 && strchr("-([{<", (int)c));
  }
  *ret = tsr_jinja_take(r->arena, &text);
  ret->is_markup = is_markup;
  return ok && tsr_jinja_count_bytes(r, a->location, ret->string.length);
}

/* Lines end with \n then. The first one is indented if `first`, empty others if `blank`. */
static void
indent_lines(tsr_jinja_run *r, tsr_jinja_value *v, tsr_jinja_string by, bool first, bool blank) {
  tsr_text text = {0};
  tsr_jinja_string s = v->string;
  bool begins = true, indents = first;
  for (int64_t at = 0, end; at < s.length; at = end) {
    uint32_t c = tsr_jinja_code_point(s, at, &end);
    bool ends = tsr_jinja_ends_line(c);
    if (c == '\r' && end < s.length && s.bytes[end] == '\n') end++;
    if (begins && indents && (!ends || blank || (first && !text.length)))
      tsr_text_add_bytes(&text, by.bytes, (size_t)by.length);
    if (ends) tsr_text_add_bytes(&text, "\n", 1);
    else tsr_text_add_bytes(&text, s.bytes + at, (size_t)(end - at));
    begins = ends;
    indents |= ends;
  }
  if (begins && indents && (blank || !s.length))
    tsr_text_add_bytes(&text, by.bytes, (size_t)by.length);
  bool is_markup = v->is_markup;
  *v = tsr_jinja_take(r->arena, &text);
  v->is_markup = is_markup;
}

static bool filter_indent(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  enum { WIDTH_MAX = 1000 };
  const tsr_jinja_value *width = tsr_jinja_argument(a, 0, "width"),
                        *first = tsr_jinja_argument(a, 1, "first"),
                        *blank = tsr_jinja_argument(a, 2, "blank");
  if (!tsr_jinja_check_arguments(r, a, 3, NAMES("width", "first", "blank"))) return false;
  if (a->self.kind != TSR_JINJA_STRING)
    return tsr_jinja_fail(
        r, a->location, "'indent' needs a string, not %s", tsr_jinja_kind_name(a->self.kind));
  *ret = a->self;
  int64_t columns = width && width->kind == TSR_JINJA_INT ? width->integer : 4;
  if (columns < 0 || columns > WIDTH_MAX)
    return tsr_jinja_fail(r, a->location, "the width of 'indent' should be in [0, %d]", WIDTH_MAX);
  char *spaces = tsr_arena_alloc(r->arena, (size_t)columns + 1);
  memset(spaces, ' ', (size_t)columns);
  bool is_text = width && width->kind == TSR_JINJA_STRING;
  indent_lines(
      r, ret, is_text ? width->string : (tsr_jinja_string){spaces, columns},
      first && tsr_jinja_is_true(*first), blank && tsr_jinja_is_true(*blank));
  return tsr_jinja_count_bytes(r, a->location, ret->string.length);
}

/* Two strings: between items, and behind keys. */
static bool read_separators(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value v,
    tsr_jinja_json_style *style) {
  bool is_list = v.kind == TSR_JINJA_TUPLE || v.kind == TSR_JINJA_LIST;
  if (!is_list || v.list->count != 2 || v.list->items[0].kind != TSR_JINJA_STRING ||
      v.list->items[1].kind != TSR_JINJA_STRING)
    return tsr_jinja_fail(r, a->location, "the separators of 'tojson' should be two strings");
  tsr_jinja_string item = v.list->items[0].string, key = v.list->items[1].string;
  style->item_separator = tsr_arena_strndup(r->arena, item.bytes, (size_t)item.length);
  style->key_separator = tsr_arena_strndup(r->arena, key.bytes, (size_t)key.length);
  return true;
}

static bool filter_tojson(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  enum { INDENT_MAX = 64 };
  const tsr_jinja_value *ascii = tsr_jinja_argument(a, 0, "ensure_ascii"),
                        *indent = tsr_jinja_argument(a, 1, "indent"),
                        *separators = tsr_jinja_argument(a, 2, "separators"),
                        *sort = tsr_jinja_argument(a, 3, "sort_keys");
  tsr_jinja_json_style style = {.indent = -1};
  if (!tsr_jinja_check_arguments(
          r, a, 4, NAMES("ensure_ascii", "indent", "separators", "sort_keys")))
    return false;
  style.ascii = ascii && tsr_jinja_is_true(*ascii);
  style.sort_keys = sort && tsr_jinja_is_true(*sort);
  bool indents = indent && indent->kind != TSR_JINJA_NONE;
  if (indents &&
      (indent->kind != TSR_JINJA_INT || indent->integer < 0 || indent->integer > INDENT_MAX))
    return tsr_jinja_fail(
        r, a->location, "the indentation of 'tojson' should be in [0, %d]", INDENT_MAX);
  if (indents) style.indent = (int)indent->integer;
  if (separators && separators->kind != TSR_JINJA_NONE &&
      !read_separators(r, a, *separators, &style))
    return false;
  tsr_text text = {0};
  bool ok = tsr_jinja_write_json(r, a->location, a->self, &style, &text);
  *ret = tsr_jinja_take(r->arena, &text);
  return ok && tsr_jinja_count_bytes(r, a->location, ret->string.length);
}

/* ---- numbers ---- */

/* The number that a string has the form of, as Python's int and float read it; undefined: none. */
static tsr_jinja_value number_in(tsr_jinja_run *r, tsr_jinja_string s) {
  s = tsr_jinja_stripped(s, NULL, true, true);
  char *end, *text = tsr_arena_strndup(r->arena, s.bytes, (size_t)s.length);
  if (!*text || strspn(text, "0123456789+-.eE") != (size_t)s.length) return tsr_jinja_missing(text);
  errno = 0;
  long long whole = strtoll(text, &end, 10);
  if (!*end && !errno) return tsr_jinja_int(whole);
  double x = strtod(text, &end);
  return *end ? tsr_jinja_missing(text) : tsr_jinja_float(x);
}

static bool needs_value(tsr_jinja_run *r, const tsr_jinja_arguments *a) {
  return a->self.kind != TSR_JINJA_UNDEFINED ||
         tsr_jinja_fail(
             r, a->location, "'%s' is undefined",
             a->self.undefined ? a->self.undefined : "this value");
}

static bool filter_int(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *absent = tsr_jinja_argument(a, 0, "default");
  if (!tsr_jinja_check_arguments(r, a, 1, NAMES("default")) || !needs_value(r, a)) return false;
  tsr_jinja_value v = a->self;
  if (v.kind == TSR_JINJA_STRING) v = number_in(r, v.string);
  *ret = absent ? *absent : tsr_jinja_int(0);
  if (v.kind == TSR_JINJA_INT) *ret = v;
  if (v.kind == TSR_JINJA_BOOL) *ret = tsr_jinja_int(v.truth);
  if (v.kind != TSR_JINJA_FLOAT) return true;
  if (!(fabs(v.number) < 9e18))
    return tsr_jinja_fail(r, a->location, "the number is too large for an integer of 64 bits");
  return *ret = tsr_jinja_int((int64_t)v.number), true;
}

static bool filter_float(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *absent = tsr_jinja_argument(a, 0, "default");
  if (!tsr_jinja_check_arguments(r, a, 1, NAMES("default")) || !needs_value(r, a)) return false;
  tsr_jinja_value v = a->self.kind == TSR_JINJA_STRING ? number_in(r, a->self.string) : a->self;
  if (tsr_jinja_is_number(v)) *ret = tsr_jinja_float(tsr_jinja_as_double(v));
  else *ret = absent ? *absent : tsr_jinja_float(0);
  return true;
}

static bool filter_abs(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  if (!tsr_jinja_check_arguments(r, a, 0, NULL)) return false;
  if (a->self.kind == TSR_JINJA_FLOAT) return *ret = tsr_jinja_float(fabs(a->self.number)), true;
  if (a->self.kind == TSR_JINJA_BOOL) return *ret = tsr_jinja_int(a->self.truth), true;
  if (a->self.kind != TSR_JINJA_INT || a->self.integer == INT64_MIN)
    return tsr_jinja_fail(
        r, a->location, "'abs' needs a number, not %s", tsr_jinja_kind_name(a->self.kind));
  return *ret = tsr_jinja_int(a->self.integer < 0 ? -a->self.integer : a->self.integer), true;
}

/* Halves are rounded to even, as Python does. */
static bool filter_round(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *precision = tsr_jinja_argument(a, 0, "precision"),
                        *method = tsr_jinja_argument(a, 1, "method");
  if (!tsr_jinja_check_arguments(r, a, 2, NAMES("precision", "method"))) return false;
  int64_t places = precision && precision->kind == TSR_JINJA_INT ? precision->integer : 0;
  if (!tsr_jinja_is_number(a->self) || places < 0 || places > 15)
    return tsr_jinja_fail(r, a->location, "'round' needs a number and a precision in [0, 15]");
  double x = tsr_jinja_as_double(a->self), scale = pow(10, (double)places);
  bool common = !method || tsr_jinja_is_text(*method, "common");
  if (common && a->self.kind != TSR_JINJA_FLOAT) {
    return tsr_jinja_binary(
        r, a->location, (tsr_jinja_string){"+", 1}, a->self, tsr_jinja_int(0), ret);
  } else if (common) {
    tsr_text text = {0};
    tsr_text_add(&text, "%.*f", (int)places, x);
    x = strtod(text.data, NULL);
    tsr_text_free(&text);
  } else if (tsr_jinja_is_text(*method, "ceil")) {
    x = ceil(x * scale) / scale;
  } else if (tsr_jinja_is_text(*method, "floor")) {
    x = floor(x * scale) / scale;
  } else {
    return tsr_jinja_fail(
        r, a->location, "the method of 'round' should be 'common', 'ceil' or 'floor'");
  }
  return *ret = tsr_jinja_float(x), true;
}

/* ---- any value ---- */

static bool filter_default(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *other = tsr_jinja_argument(a, 0, "default_value"),
                        *falsy = tsr_jinja_argument(a, 1, "boolean");
  if (!tsr_jinja_check_arguments(r, a, 2, NAMES("default_value", "boolean"))) return false;
  bool absent = a->self.kind == TSR_JINJA_UNDEFINED ||
                (falsy && tsr_jinja_is_true(*falsy) && !tsr_jinja_is_true(a->self));
  *ret = !absent ? a->self : other ? *other : tsr_jinja_text("");
  return true;
}

static bool filter_length(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  if (!tsr_jinja_check_arguments(r, a, 0, NULL)) return false;
  switch (a->self.kind) {
  case TSR_JINJA_UNDEFINED:
    return *ret = tsr_jinja_int(0), true;
  case TSR_JINJA_STRING:
    return *ret = tsr_jinja_int(tsr_jinja_length(a->self.string)), true;
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
  case TSR_JINJA_VIEW:
    return *ret = tsr_jinja_int(a->self.list->count), true;
  case TSR_JINJA_DICT:
    return *ret = tsr_jinja_int(a->self.dict->count), true;
  default:
    return tsr_jinja_fail(r, a->location, "%s has no length", tsr_jinja_kind_name(a->self.kind));
  }
}

/* map(attribute='a'), or map('filter', …). */
static bool filter_map(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *attribute = tsr_jinja_argument(a, a->count, "attribute"),
                        *absent = tsr_jinja_argument(a, a->count, "default");
  tsr_jinja_list items;
  tsr_jinja_string name = {"", 0};
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_ITERATOR);
  if (!tsr_jinja_is_true(a->self)) return true;
  bool by_attribute = !a->count && attribute && attribute->kind == TSR_JINJA_STRING;
  if (!by_attribute && !tsr_jinja_argument_text(r, a, 0, NULL, &name)) return false;
  tsr_jinja_native *filter = by_attribute ? NULL : tsr_jinja_find_filter(name);
  if (!by_attribute && !filter)
    return tsr_jinja_fail(r, a->location, "unknown filter '%.*s'", (int)name.length, name.bytes);
  if (!tsr_jinja_iterate(r, a->location, a->self, &items)) return false;
  for (int i = 0; i < items.count; i++) {
    tsr_jinja_value v = items.items[i];
    tsr_jinja_arguments of = {a->location, name,          v, a->items + 1, a->count - 1,
                              a->named,    a->named_count};
    if (filter ? !filter(r, &of, &v) : !tsr_jinja_at_path(r, a, v, attribute->string, &v))
      return false;
    if (!filter && v.kind == TSR_JINJA_UNDEFINED && absent) v = *absent;
    tsr_jinja_append(r->arena, ret->list, v);
  }
  return true;
}

/* clang-format off */
static const tsr_jinja_named filters[] = {
    {"abs", filter_abs},
    {"capitalize", tsr_jinja_capitalize},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", tsr_jinja_filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"first", tsr_jinja_filter_first},
    {"float", filter_float},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", tsr_jinja_filter_items},
    {"join", tsr_jinja_filter_join},
    {"last", tsr_jinja_filter_last},
    {"length", filter_length},
    {"list", tsr_jinja_filter_list},
    {"lower", tsr_jinja_lower},
    {"map", filter_map},
    {"max", tsr_jinja_filter_max},
    {"min", tsr_jinja_filter_min},
    {"reject", tsr_jinja_filter_reject},
    {"rejectattr", tsr_jinja_filter_rejectattr},
    {"replace", tsr_jinja_replace},
    {"reverse", tsr_jinja_filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", tsr_jinja_filter_select},
    {"selectattr", tsr_jinja_filter_selectattr},
    {"sort", tsr_jinja_filter_sort},
    {"string", filter_string},
    {"sum", tsr_jinja_filter_sum},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", tsr_jinja_strip},
    {"unique", tsr_jinja_filter_unique},
    {"upper", tsr_jinja_upper}};
/* clang-format on */

tsr_jinja_native *tsr_jinja_find_filter(tsr_jinja_string name) {
  return tsr_jinja_find_named(filters, sizeof filters / sizeof *filters, name);
}
