// SPDX-License-Identifier: Apache-2.0
/* Filters: `x | name`. Letters outside ASCII keep their case. */
#include "jinja/run.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* What a value is as text: most filters of texts take any value. */
static bool text_of(jinja_run *r, const jinja_arguments *a, jinja_value v, jinja_string *ret) {
  if (v.kind == JINJA_STRING) return *ret = v.string, true;
  tsr_text text = {0};
  if (!jinja_print(v, &text)) return run_fail(r, a->location, "values are nested too deeply");
  *ret = jinja_take(r->arena, &text).string;
  return run_made(r, a->location, ret->length);
}

/* ---- case ---- */

typedef enum { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE } letter_case;

static bool change_case(jinja_run *r, const jinja_arguments *a, letter_case to, jinja_value *ret) {
  jinja_string s;
  if (!arguments_are(r, a, 0, NULL) || !text_of(r, a, a->self, &s)) return false;
  char *copy = tsr_arena_strndup(r->arena, s.bytes, (size_t)s.length);
  bool begins = true;
  for (int64_t i = 0; i < s.length; i++) {
    unsigned char c = (unsigned char)copy[i];
    bool upper = to == CASE_UPPER || (begins && to != CASE_LOWER);
    copy[i] = (char)(upper ? toupper(c) : tolower(c));
    begins = to == CASE_TITLE && (isspace(c) || strchr("-([{<", c));
  }
  *ret = jinja_bytes(copy, s.length);
  return run_made(r, a->location, s.length);
}
static bool filter_upper(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return change_case(r, a, CASE_UPPER, ret);
}
static bool filter_lower(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return change_case(r, a, CASE_LOWER, ret);
}
static bool filter_capitalize(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return change_case(r, a, CASE_CAPITAL, ret);
}
static bool filter_title(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return change_case(r, a, CASE_TITLE, ret);
}

/* ---- texts ---- */

static bool filter_trim(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  bool forbidden;
  jinja_string s;
  if (!arguments_are(r, a, 1, NAMES("chars")) || !text_of(r, a, a->self, &s)) return false;
  jinja_arguments of = *a;
  of.self = jinja_bytes(s.bytes, s.length);
  return jinja_find_method(JINJA_STRING, (jinja_string){"strip", 5}, &forbidden)(r, &of, ret);
}

static bool filter_string(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s;
  if (!arguments_are(r, a, 0, NULL) || !text_of(r, a, a->self, &s)) return false;
  return *ret = jinja_bytes(s.bytes, s.length), true;
}

static bool filter_replace(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string s, from, to;
  const jinja_value *most = argument(a, 2, "count");
  if (!arguments_are(r, a, 3, NAMES("old", "new", "count")) || !text_of(r, a, a->self, &s) ||
      !argument_text(r, a, 0, "old", &from) || !argument_text(r, a, 1, "new", &to))
    return false;
  int64_t left = most && most->kind == JINJA_INT && most->integer >= 0 ? most->integer : INT64_MAX;
  tsr_text text = {0};
  bool ok = true;
  for (int64_t at = 0; ok && at <= s.length;) {
    int64_t next = left > 0 ? jinja_find(s, from, at) : -1;
    if (next < 0) next = s.length, left = -1;
    tsr_text_add_bytes(&text, s.bytes + at, (size_t)(next - at));
    if (left-- < 0) break;
    tsr_text_add_bytes(&text, to.bytes, (size_t)to.length);
    at = next + from.length;
    if (!from.length && at < s.length) tsr_text_add_bytes(&text, s.bytes + at, 1), at++;
    else if (!from.length) break;
    ok = run_made(r, a->location, to.length);
  }
  ok = ok && run_made(r, a->location, s.length);
  *ret = jinja_take(r->arena, &text);
  return ok;
}

static bool filter_indent(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *width = argument(a, 0, "width"), *first = argument(a, 1, "first"),
                    *blank = argument(a, 2, "blank");
  jinja_string s, by;
  if (!arguments_are(r, a, 3, NAMES("width", "first", "blank")) || !text_of(r, a, a->self, &s))
    return false;
  int64_t columns = width && width->kind == JINJA_INT ? width->integer : 4;
  if (columns < 0 || columns > 1000) return run_fail(r, a->location, "the width of 'indent' is not in 0 to 1000");
  char *spaces = tsr_arena_alloc(r->arena, (size_t)columns + 1);
  memset(spaces, ' ', (size_t)columns);
  by = width && width->kind == JINJA_STRING ? width->string : (jinja_string){spaces, columns};
  tsr_text text = {0};
  bool begins = first && jinja_is_true(*first);
  for (int64_t at = 0; at < s.length; at++) {
    bool empty = s.bytes[at] == '\n' && !(blank && jinja_is_true(*blank));
    if (begins && !empty) tsr_text_add_bytes(&text, by.bytes, (size_t)by.length);
    tsr_text_add_bytes(&text, &s.bytes[at], 1);
    begins = s.bytes[at] == '\n';
  }
  bool ok = run_made(r, a->location, (int64_t)text.length);
  *ret = jinja_take(r->arena, &text);
  return ok;
}

static bool filter_join(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *by = argument(a, 0, "d"), *attribute = argument(a, 1, "attribute");
  jinja_list items;
  tsr_text text = {0};
  bool ok = arguments_are(r, a, 2, NAMES("d", "attribute")) &&
            run_iterate(r, a->location, a->self, &items);
  for (int i = 0; ok && i < items.count; i++) {
    jinja_value item = items.items[i];
    if (attribute) ok = run_item(r, a->location, item, *attribute, &item);
    if (ok && i && by) ok = jinja_print(*by, &text);
    ok = ok && jinja_print(item, &text);
  }
  ok = ok && run_made(r, a->location, (int64_t)text.length);
  *ret = jinja_take(r->arena, &text);
  return ok;
}

static bool filter_escape(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  static const char special[] = "&<>'\"";
  static const char *const codes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  jinja_string s;
  tsr_text text = {0};
  if (!arguments_are(r, a, 0, NULL) || !text_of(r, a, a->self, &s)) return false;
  for (int64_t i = 0; i < s.length; i++) {
    const char *found = s.bytes[i] ? strchr(special, s.bytes[i]) : NULL;
    if (found) tsr_text_add(&text, "%s", codes[found - special]);
    else tsr_text_add_bytes(&text, &s.bytes[i], 1);
  }
  *ret = jinja_take(r->arena, &text);
  return run_made(r, a->location, ret->string.length);
}

static bool filter_safe(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return filter_string(r, a, ret);
}

static bool filter_tojson(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *ascii = argument(a, 0, "ensure_ascii"), *indent = argument(a, 1, "indent"),
                    *separators = argument(a, 2, "separators"), *sort = argument(a, 3, "sort_keys");
  jinja_json_style style = {.indent = -1};
  if (!arguments_are(r, a, 4, NAMES("ensure_ascii", "indent", "separators", "sort_keys")))
    return false;
  style.ascii = ascii && jinja_is_true(*ascii);
  style.sort_keys = sort && jinja_is_true(*sort);
  if (indent && indent->kind == JINJA_INT && indent->integer >= 0 && indent->integer <= 64)
    style.indent = (int)indent->integer;
  else if (indent && indent->kind != JINJA_NONE)
    return run_fail(r, a->location, "the indentation of 'tojson' is not in 0 to 64");
  if (separators && separators->kind != JINJA_NONE) {
    const jinja_list *l = separators->kind == JINJA_TUPLE || separators->kind == JINJA_LIST
                              ? separators->list
                              : NULL;
    if (!l || l->count != 2 || l->items[0].kind != JINJA_STRING || l->items[1].kind != JINJA_STRING)
      return run_fail(r, a->location, "the separators of 'tojson' are not two strings");
    jinja_string item = l->items[0].string, key = l->items[1].string;
    style.item_separator = tsr_arena_strndup(r->arena, item.bytes, (size_t)item.length);
    style.key_separator = tsr_arena_strndup(r->arena, key.bytes, (size_t)key.length);
  }
  tsr_text text = {0};
  bool ok = jinja_write_json(r, a->location, a->self, &style, &text) &&
            run_made(r, a->location, (int64_t)text.length);
  *ret = jinja_take(r->arena, &text);
  return ok;
}

/* ---- numbers ---- */

static bool filter_int(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *absent = argument(a, 0, "default");
  if (!arguments_are(r, a, 2, NAMES("default", "base"))) return false;
  if (argument(a, 1, "base")) return run_fail(r, a->location, "'int' of another base is not supported");
  *ret = absent ? *absent : jinja_int(0);
  if (a->self.kind == JINJA_INT) return *ret = a->self, true;
  if (a->self.kind == JINJA_BOOL) return *ret = jinja_int(a->self.truth), true;
  double x = a->self.kind == JINJA_FLOAT ? a->self.number : NAN;
  if (a->self.kind == JINJA_STRING) {
    char *end, *text = tsr_arena_strndup(r->arena, a->self.string.bytes, (size_t)a->self.string.length);
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    while (isspace((unsigned char)*end)) end++;
    if (*text && !*end && !errno) return *ret = jinja_int(whole), true;
    x = strtod(text, &end);
    if (!*text || *end) return true;
  }
  if (x == x && fabs(x) < 9e18) *ret = jinja_int((int64_t)x);
  return true;
}

static bool filter_float(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *absent = argument(a, 0, "default");
  if (!arguments_are(r, a, 1, NAMES("default"))) return false;
  *ret = absent ? *absent : jinja_float(0);
  if (jinja_is_number(a->self)) return *ret = jinja_float(jinja_as_double(a->self)), true;
  if (a->self.kind != JINJA_STRING) return true;
  char *end, *text = tsr_arena_strndup(r->arena, a->self.string.bytes, (size_t)a->self.string.length);
  double x = strtod(text, &end);
  while (isspace((unsigned char)*end)) end++;
  if (*text && end != text && !*end) *ret = jinja_float(x);
  return true;
}

static bool filter_abs(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  if (!arguments_are(r, a, 0, NULL)) return false;
  if (a->self.kind == JINJA_FLOAT) return *ret = jinja_float(fabs(a->self.number)), true;
  if (a->self.kind != JINJA_INT || a->self.integer == INT64_MIN)
    return run_fail(r, a->location, "'abs' of %s", jinja_kind_name(a->self.kind));
  return *ret = jinja_int(a->self.integer < 0 ? -a->self.integer : a->self.integer), true;
}

/* To `precision` places, halves to even, as Python rounds. */
static bool filter_round(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *precision = argument(a, 0, "precision"), *method = argument(a, 1, "method");
  if (!arguments_are(r, a, 2, NAMES("precision", "method"))) return false;
  int64_t places = precision && precision->kind == JINJA_INT ? precision->integer : 0;
  if (!jinja_is_number(a->self) || places < 0 || places > 15)
    return run_fail(r, a->location, "'round' needs a number, and 0 to 15 places");
  double x = jinja_as_double(a->self), scale = pow(10, (double)places);
  if (!method || jinja_is_text(*method, "common")) {
    tsr_text text = {0};
    tsr_text_add(&text, "%.*f", (int)places, x);
    x = strtod(text.data, NULL);
    tsr_text_free(&text);
  } else if (jinja_is_text(*method, "ceil")) x = ceil(x * scale) / scale;
  else if (jinja_is_text(*method, "floor")) x = floor(x * scale) / scale;
  else return run_fail(r, a->location, "'round' has the methods common, ceil and floor");
  return *ret = jinja_float(x), true;
}

/* ---- choice ---- */

static bool filter_default(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *other = argument(a, 0, "default_value"), *falsy = argument(a, 1, "boolean");
  if (!arguments_are(r, a, 2, NAMES("default_value", "boolean"))) return false;
  bool absent = a->self.kind == JINJA_UNDEFINED || (falsy && jinja_is_true(*falsy) && !jinja_is_true(a->self));
  *ret = !absent ? a->self : other ? *other : jinja_text("");
  return true;
}

static bool filter_length(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  if (!arguments_are(r, a, 0, NULL)) return false;
  switch (a->self.kind) {
  case JINJA_UNDEFINED: return *ret = jinja_int(0), true;
  case JINJA_STRING: return *ret = jinja_int(jinja_length(a->self.string)), true;
  case JINJA_LIST:
  case JINJA_TUPLE: return *ret = jinja_int(a->self.list->count), true;
  case JINJA_DICT: return *ret = jinja_int(a->self.dict->count), true;
  default: return run_fail(r, a->location, "%s has no length", jinja_kind_name(a->self.kind));
  }
}

static bool filter_list(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_list items;
  if (!arguments_are(r, a, 0, NULL) || !run_iterate(r, a->location, a->self, &items)) return false;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int i = 0; i < items.count; i++) jinja_append(r->arena, ret->list, items.items[i]);
  return true;
}

static bool filter_first(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_list items;
  if (!arguments_are(r, a, 0, NULL) || !run_iterate(r, a->location, a->self, &items)) return false;
  return *ret = items.count ? items.items[0] : jinja_missing("the first of nothing"), true;
}
static bool filter_last(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_list items;
  if (!arguments_are(r, a, 0, NULL) || !run_iterate(r, a->location, a->self, &items)) return false;
  return *ret = items.count ? items.items[items.count - 1] : jinja_missing("the last of nothing"), true;
}
static bool filter_reverse(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_value none = jinja_none();
  if (!arguments_are(r, a, 0, NULL)) return false;
  if (a->self.kind == JINJA_STRING)
    return run_slice(r, a->location, a->self, (jinja_value[]){none, none, jinja_int(-1)}, ret);
  jinja_value list;
  return filter_list(r, a, &list) &&
         run_slice(r, a->location, list, (jinja_value[]){none, none, jinja_int(-1)}, ret);
}

/* ---- items, in an order, some of them ---- */

static bool filter_items(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  bool forbidden;
  if (a->self.kind == JINJA_UNDEFINED) return *ret = jinja_new_list(r->arena, JINJA_LIST), true;
  if (a->self.kind != JINJA_DICT)
    return run_fail(r, a->location, "'items' of %s", jinja_kind_name(a->self.kind));
  return jinja_find_method(JINJA_DICT, (jinja_string){"items", 5}, &forbidden)(r, a, ret);
}

/* What a list is sorted by, of each item. */
typedef struct {
  jinja_value key, item;
} sorted;

static jinja_value folded(jinja_run *r, jinja_value v, bool case_sensitive) {
  if (case_sensitive || v.kind != JINJA_STRING) return v;
  char *copy = tsr_arena_strndup(r->arena, v.string.bytes, (size_t)v.string.length);
  for (int64_t i = 0; i < v.string.length; i++) copy[i] = (char)tolower((unsigned char)copy[i]);
  return jinja_bytes(copy, v.string.length);
}

/* Merges; equal ones stay in their order. False: two have no order. */
static bool sort_items(sorted *items, sorted *room, int count, bool reverse) {
  if (count < 2) return true;
  int half = count / 2, a = 0, b = half, order;
  if (!sort_items(items, room, half, reverse) || !sort_items(items + half, room, count - half, reverse))
    return false;
  for (int i = 0; i < count; i++) {
    bool second = a == half;
    if (!second && b < count) {
      if (!jinja_compare(items[a].key, items[b].key, &order)) return false;
      second = reverse ? order < 0 : order > 0;
    }
    room[i] = second ? items[b++] : items[a++];
  }
  memcpy(items, room, sizeof *items * (size_t)count);
  return true;
}

static bool sort_list(jinja_run *r, const jinja_arguments *a, sorted *items, int count, bool reverse, jinja_value *ret) {
  sorted *room = tsr_arena_array(r->arena, sorted, count + 1);
  if (!run_count(r, a->location, count)) return false;
  if (!sort_items(items, room, count, reverse))
    return run_fail(r, a->location, "'%.*s': two of the items have no order", (int)a->name.length, a->name.bytes);
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int i = 0; i < count; i++) jinja_append(r->arena, ret->list, items[i].item);
  return true;
}

/* a.b.0 of an item. */
static bool attribute_path(jinja_run *r, const jinja_arguments *a, jinja_value item, jinja_string path, jinja_value *ret) {
  for (int64_t at = 0; at <= path.length;) {
    int64_t end = at;
    while (end < path.length && path.bytes[end] != '.') end++;
    jinja_value key = jinja_bytes(path.bytes + at, end - at);
    char *text = tsr_arena_strndup(r->arena, key.string.bytes, (size_t)key.string.length);
    if (*text && strspn(text, "0123456789") == strlen(text)) key = jinja_int(atoll(text));
    if (!run_item(r, a->location, item, key, &item)) return false;
    at = end + 1;
  }
  return *ret = item, true;
}

static bool filter_sort(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *reverse = argument(a, 0, "reverse"), *exact = argument(a, 1, "case_sensitive"),
                    *attribute = argument(a, 2, "attribute");
  jinja_list items;
  if (!arguments_are(r, a, 3, NAMES("reverse", "case_sensitive", "attribute")) ||
      !run_iterate(r, a->location, a->self, &items))
    return false;
  sorted *all = tsr_arena_array(r->arena, sorted, items.count + 1);
  for (int i = 0; i < items.count; i++) {
    jinja_value key = items.items[i];
    if (attribute && attribute->kind == JINJA_STRING &&
        !attribute_path(r, a, key, attribute->string, &key))
      return false;
    all[i] = (sorted){folded(r, key, exact && jinja_is_true(*exact)), items.items[i]};
  }
  return sort_list(r, a, all, items.count, reverse && jinja_is_true(*reverse), ret);
}

static bool filter_dictsort(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *exact = argument(a, 0, "case_sensitive"), *by = argument(a, 1, "by"),
                    *reverse = argument(a, 2, "reverse");
  jinja_value pairs;
  jinja_arguments none = {.location = a->location, .name = a->name, .self = a->self};
  if (!arguments_are(r, a, 3, NAMES("case_sensitive", "by", "reverse")) ||
      !filter_items(r, &none, &pairs))
    return false;
  int part = by && jinja_is_text(*by, "value"), count = pairs.list->count;
  sorted *all = tsr_arena_array(r->arena, sorted, count + 1);
  for (int i = 0; i < count; i++) {
    jinja_value item = pairs.list->items[i];
    all[i] = (sorted){folded(r, item.list->items[part], exact && jinja_is_true(*exact)), item};
  }
  return sort_list(r, a, all, count, reverse && jinja_is_true(*reverse), ret);
}

static bool filter_unique(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_list items;
  if (!arguments_are(r, a, 0, NULL) || !run_iterate(r, a->location, a->self, &items)) return false;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int i = 0; i < items.count; i++) {
    bool known = false;
    jinja_value key = folded(r, items.items[i], false);
    for (int k = 0; k < ret->list->count && !known; k++)
      known = jinja_equal(folded(r, ret->list->items[k], false), key);
    if (!known) jinja_append(r->arena, ret->list, items.items[i]);
    if (!run_count(r, a->location, ret->list->count)) return false;
  }
  return true;
}

/* Whether an item passes the test named by argument `first`; without one, whether it is true. */
static bool passes(jinja_run *r, const jinja_arguments *a, int first, jinja_value v, bool *ret) {
  if (first >= a->count) return *ret = jinja_is_true(v), true;
  jinja_value result;
  jinja_native *test = a->items[first].kind == JINJA_STRING ? jinja_find_test(a->items[first].string) : NULL;
  const char *operators[][2] = {{"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {"<=", "le"}, {">", "gt"}, {">=", "ge"}};
  for (int i = 0; i < 6; i++)
    if (jinja_is_text(a->items[first], operators[i][0])) test = jinja_find_test((jinja_string){operators[i][1], 2});
  if (!test) return run_fail(r, a->location, "'%.*s' names no test", (int)a->name.length, a->name.bytes);
  jinja_arguments of = {
      .location = a->location, .name = a->items[first].string, .self = v,
      .items = a->items + first + 1, .count = a->count - first - 1};
  if (!test(r, &of, &result)) return false;
  return *ret = jinja_is_true(result), true;
}

static bool select_items(jinja_run *r, const jinja_arguments *a, bool by_attribute, bool wanted, jinja_value *ret) {
  jinja_list items;
  if (a->named_count || (by_attribute && (!a->count || a->items[0].kind != JINJA_STRING)))
    return run_fail(r, a->location, "'%.*s' needs the name of an attribute", (int)a->name.length, a->name.bytes);
  if (!run_iterate(r, a->location, a->self, &items)) return false;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int i = 0; i < items.count; i++) {
    jinja_value v = items.items[i];
    bool holds;
    if ((by_attribute && !attribute_path(r, a, v, a->items[0].string, &v)) ||
        !passes(r, a, by_attribute, v, &holds))
      return false;
    if (holds == wanted) jinja_append(r->arena, ret->list, items.items[i]);
  }
  return true;
}
static bool filter_select(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return select_items(r, a, false, true, ret);
}
static bool filter_reject(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return select_items(r, a, false, false, ret);
}
static bool filter_selectattr(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return select_items(r, a, true, true, ret);
}
static bool filter_rejectattr(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return select_items(r, a, true, false, ret);
}

/* map(attribute='a'), or map('filter', …). */
static bool filter_map(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *attribute = argument(a, a->count, "attribute"), *absent = argument(a, a->count, "default");
  jinja_list items;
  jinja_native *filter = a->count && a->items[0].kind == JINJA_STRING ? jinja_find_filter(a->items[0].string) : NULL;
  if (!filter && (!attribute || attribute->kind != JINJA_STRING))
    return run_fail(r, a->location, "'map' needs a filter's name or an attribute");
  if (!run_iterate(r, a->location, a->self, &items)) return false;
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int i = 0; i < items.count; i++) {
    jinja_value v = items.items[i];
    jinja_arguments of = {
        .location = a->location, .name = filter ? a->items[0].string : a->name, .self = v,
        .items = a->items + 1, .count = a->count - 1, .named = a->named, .named_count = a->named_count};
    if (filter ? !filter(r, &of, &v) : !attribute_path(r, a, v, attribute->string, &v)) return false;
    if (!filter && v.kind == JINJA_UNDEFINED && absent) v = *absent;
    jinja_append(r->arena, ret->list, v);
  }
  return true;
}

static bool extreme(jinja_run *r, const jinja_arguments *a, int sign, jinja_value *ret) {
  jinja_list items;
  if (!arguments_are(r, a, 0, NULL) || !run_iterate(r, a->location, a->self, &items)) return false;
  *ret = items.count ? items.items[0] : jinja_missing("the extreme of nothing");
  for (int i = 1; i < items.count; i++) {
    int order;
    if (!jinja_compare(folded(r, items.items[i], false), folded(r, *ret, false), &order))
      return run_fail(r, a->location, "two of the items have no order");
    if (order * sign > 0) *ret = items.items[i];
  }
  return true;
}
static bool filter_min(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return extreme(r, a, -1, ret);
}
static bool filter_max(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return extreme(r, a, 1, ret);
}
static bool filter_sum(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_list items;
  if (!arguments_are(r, a, 0, NULL) || !run_iterate(r, a->location, a->self, &items)) return false;
  *ret = jinja_int(0);
  for (int i = 0; i < items.count; i++)
    if (!run_binary(r, a->location, (jinja_string){"+", 1}, *ret, items.items[i], ret)) return false;
  return true;
}

jinja_native *jinja_find_filter(jinja_string name) {
  static const jinja_named filters[] = {
      {"abs", filter_abs},           {"capitalize", filter_capitalize},
      {"count", filter_length},      {"d", filter_default},
      {"default", filter_default},   {"dictsort", filter_dictsort},
      {"e", filter_escape},          {"escape", filter_escape},
      {"first", filter_first},       {"float", filter_float},
      {"indent", filter_indent},     {"int", filter_int},
      {"items", filter_items},       {"join", filter_join},
      {"last", filter_last},         {"length", filter_length},
      {"list", filter_list},         {"lower", filter_lower},
      {"map", filter_map},           {"max", filter_max},
      {"min", filter_min},           {"reject", filter_reject},
      {"rejectattr", filter_rejectattr}, {"replace", filter_replace},
      {"reverse", filter_reverse},   {"round", filter_round},
      {"safe", filter_safe},         {"select", filter_select},
      {"selectattr", filter_selectattr}, {"sort", filter_sort},
      {"string", filter_string},     {"sum", filter_sum},
      {"title", filter_title},       {"tojson", filter_tojson},
      {"trim", filter_trim},         {"unique", filter_unique},
      {"upper", filter_upper}};
  return jinja_find_in(filters, sizeof filters / sizeof *filters, name);
}
