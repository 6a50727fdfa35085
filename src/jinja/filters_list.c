// SPDX-License-Identifier: Apache-2.0
/* Filters of lists: sorting, choosing and folding items. Those that are generators in Jinja give an
 * iterator, which has no length and can be gone over once. */
#include "jinja/run.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static bool
list_of(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_kind kind, tsr_jinja_value *ret) {
  tsr_jinja_list items;
  if (!tsr_jinja_iterate(r, a->location, a->self, &items)) return false;
  *ret = tsr_jinja_new_list(r->arena, kind);
  *ret->list = items;
  return true;
}

bool tsr_jinja_filter_list(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return tsr_jinja_check_arguments(r, a, 0, NULL) && list_of(r, a, TSR_JINJA_LIST, ret);
}

bool tsr_jinja_filter_first(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_value all;
  if (!tsr_jinja_check_arguments(r, a, 0, NULL) || !list_of(r, a, TSR_JINJA_LIST, &all))
    return false;
  *ret = all.list->count ? all.list->items[0] : tsr_jinja_missing("the first of no items");
  return true;
}

bool tsr_jinja_filter_last(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_value all;
  if (a->self.kind == TSR_JINJA_ITERATOR)
    return tsr_jinja_fail(
        r, a->location, "an iterator has no last item; 'list' makes a list of it");
  if (!tsr_jinja_check_arguments(r, a, 0, NULL) || !list_of(r, a, TSR_JINJA_LIST, &all))
    return false;
  int count = all.list->count;
  *ret = count ? all.list->items[count - 1] : tsr_jinja_missing("the last of no items");
  return true;
}

bool tsr_jinja_filter_reverse(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_value none = tsr_jinja_none(), all = a->self;
  const tsr_jinja_value parts[] = {none, none, tsr_jinja_int(-1)};
  if (!tsr_jinja_check_arguments(r, a, 0, NULL)) return false;
  bool is_text = all.kind == TSR_JINJA_STRING;
  if ((!is_text && !list_of(r, a, TSR_JINJA_LIST, &all)) ||
      !tsr_jinja_slice(r, a->location, all, parts, ret))
    return false;
  if (!is_text) ret->kind = TSR_JINJA_ITERATOR;
  return true;
}

bool tsr_jinja_filter_items(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_ITERATOR);
  if (a->self.kind == TSR_JINJA_UNDEFINED) return true;
  if (a->self.kind != TSR_JINJA_DICT)
    return tsr_jinja_fail(
        r, a->location, "'items' needs a dict, not %s", tsr_jinja_kind_name(a->self.kind));
  return tsr_jinja_check_arguments(r, a, 0, NULL) &&
         tsr_jinja_dict_items(r, a->location, a->self.dict, ret->list);
}

/* ---- the value that an item is compared by ---- */

/* Strings are compared without regard to case unless `case_sensitive`. */
static bool folded(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value v, bool case_sensitive,
    tsr_jinja_value *ret) {
  if (case_sensitive || v.kind != TSR_JINJA_STRING) return *ret = v, true;
  if (!tsr_jinja_count_bytes(r, location, v.string.length)) return false;
  tsr_text text = {0};
  for (int64_t at = 0, end; at < v.string.length; at = end) {
    uint32_t code = tsr_jinja_code_point(v.string, at, &end);
    tsr_text_add_code_point(&text, (uint32_t)utf8proc_tolower((int32_t)code));
  }
  return *ret = tsr_jinja_take(r->arena, &text), true;
}

/* The item at a path "a.b.0" within `item`. */
bool tsr_jinja_at_path(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value item, tsr_jinja_string path,
    tsr_jinja_value *ret) {
  for (int64_t at = 0, end; at <= path.length; at = end + 1) {
    end = at;
    while (end < path.length && path.bytes[end] != '.') end++;
    tsr_jinja_value key = tsr_jinja_bytes(path.bytes + at, end - at);
    char *text = tsr_arena_strndup(r->arena, key.string.bytes, (size_t)key.string.length);
    if (*text && strspn(text, "0123456789") == strlen(text)) key = tsr_jinja_int(atoll(text));
    if (item.kind == TSR_JINJA_UNDEFINED)
      return tsr_jinja_fail(
          r, a->location, "'%s' is undefined and has no item '%s'",
          item.undefined ? item.undefined : "the value", text);
    if (!tsr_jinja_item(r, a->location, item, key, &item)) return false;
  }
  return *ret = item, true;
}

/* An item, or what argument `attribute` names in it, folded. */
static bool key_of(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value item,
    const tsr_jinja_value *attribute, const tsr_jinja_value *case_sensitive, tsr_jinja_value *ret) {
  if (attribute && attribute->kind == TSR_JINJA_INT) {
    if (!tsr_jinja_item(r, a->location, item, *attribute, &item)) return false;
  } else if (attribute && attribute->kind == TSR_JINJA_STRING) {
    if (!tsr_jinja_at_path(r, a, item, attribute->string, &item)) return false;
  } else if (attribute && attribute->kind != TSR_JINJA_NONE) {
    return tsr_jinja_fail(
        r, a->location, "'attribute' should be a string, not %s",
        tsr_jinja_kind_name(attribute->kind));
  }
  return folded(r, a->location, item, case_sensitive && tsr_jinja_is_true(*case_sensitive), ret);
}

/* ---- sorting ---- */

typedef struct {
  tsr_jinja_value key, item;
} sorted;

/* A stable merge sort. False: two keys have no order, or a limit is reached. */
static bool sort_items(
    tsr_jinja_run *r, tsr_location location, sorted *items, sorted *scratch, int count,
    bool reverse) {
  if (count < 2) return true;
  int half = count / 2, a = 0, b = half, order;
  if (!sort_items(r, location, items, scratch, half, reverse) ||
      !sort_items(r, location, items + half, scratch, count - half, reverse) ||
      !tsr_jinja_count_steps(r, location, count))
    return false;
  for (int i = 0; i < count; i++) {
    bool second = a == half;
    if (!second && b < count) {
      if (!tsr_jinja_ranked(r, location, items[a].key, items[b].key, &order)) return false;
      second = reverse ? order < 0 : order > 0;
    }
    scratch[i] = second ? items[b++] : items[a++];
  }
  memcpy(items, scratch, sizeof *items * (size_t)count);
  return true;
}

static bool sort_list(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, sorted *items, int count,
    const tsr_jinja_value *reverse, tsr_jinja_value *ret) {
  sorted *scratch = tsr_arena_array(r->arena, sorted, count + 1);
  bool backwards = reverse && tsr_jinja_is_true(*reverse);
  if (!sort_items(r, a->location, items, scratch, count, backwards))
    return tsr_jinja_fail(
        r, a->location, "'%.*s' cannot compare two of the items", (int)a->name.length,
        a->name.bytes);
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_LIST);
  for (int i = 0; i < count; i++) tsr_jinja_append(r->arena, ret->list, items[i].item);
  return true;
}

bool tsr_jinja_filter_sort(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *reverse = tsr_jinja_argument(a, 0, "reverse"),
                        *exact = tsr_jinja_argument(a, 1, "case_sensitive"),
                        *attribute = tsr_jinja_argument(a, 2, "attribute");
  tsr_jinja_list items;
  if (!tsr_jinja_check_arguments(r, a, 3, NAMES("reverse", "case_sensitive", "attribute")) ||
      !tsr_jinja_iterate(r, a->location, a->self, &items))
    return false;
  sorted *all = tsr_arena_array(r->arena, sorted, items.count + 1);
  for (int i = 0; i < items.count; i++) {
    all[i].item = items.items[i];
    if (!key_of(r, a, items.items[i], attribute, exact, &all[i].key)) return false;
  }
  return sort_list(r, a, all, items.count, reverse, ret);
}

bool tsr_jinja_filter_dictsort(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *exact = tsr_jinja_argument(a, 0, "case_sensitive"),
                        *by = tsr_jinja_argument(a, 1, "by"),
                        *reverse = tsr_jinja_argument(a, 2, "reverse");
  tsr_jinja_value pairs, part = tsr_jinja_int(by && tsr_jinja_is_text(*by, "value"));
  tsr_jinja_arguments plain = {.location = a->location, .name = a->name, .self = a->self};
  if (a->self.kind == TSR_JINJA_UNDEFINED)
    return tsr_jinja_fail(
        r, a->location, "'%s' is undefined", a->self.undefined ? a->self.undefined : "this value");
  if (!tsr_jinja_check_arguments(r, a, 3, NAMES("case_sensitive", "by", "reverse")) ||
      !tsr_jinja_filter_items(r, &plain, &pairs))
    return false;
  int count = pairs.list->count;
  sorted *all = tsr_arena_array(r->arena, sorted, count + 1);
  for (int i = 0; i < count; i++) {
    all[i].item = pairs.list->items[i];
    if (!key_of(r, a, all[i].item, &part, exact, &all[i].key)) return false;
  }
  return sort_list(r, a, all, count, reverse, ret);
}

bool tsr_jinja_filter_unique(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *exact = tsr_jinja_argument(a, 0, "case_sensitive"),
                        *attribute = tsr_jinja_argument(a, 1, "attribute");
  tsr_jinja_list items;
  tsr_jinja_dict keys = {0};
  if (!tsr_jinja_check_arguments(r, a, 2, NAMES("case_sensitive", "attribute")) ||
      !tsr_jinja_iterate(r, a->location, a->self, &items))
    return false;
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_ITERATOR);
  for (int i = 0; i < items.count; i++) {
    tsr_jinja_value key;
    const int before = keys.count;
    if (!key_of(r, a, items.items[i], attribute, exact, &key)) return false;
    if (key.kind == TSR_JINJA_LIST || key.kind == TSR_JINJA_DICT)
      return tsr_jinja_fail(
          r, a->location, "'unique' cannot compare %s", tsr_jinja_kind_name(key.kind));
    if (!tsr_jinja_store(r, a->location, &keys, key, tsr_jinja_none())) return false;
    if (keys.count > before) tsr_jinja_append(r->arena, ret->list, items.items[i]);
  }
  return true;
}

/* ---- choosing ---- */

/* Whether an item passes the test that argument `first` names; without one, whether it is true. */
static bool
passes(tsr_jinja_run *r, const tsr_jinja_arguments *a, int first, tsr_jinja_value v, bool *ret) {
  if (first >= a->count) return *ret = tsr_jinja_is_true(v), true;
  tsr_jinja_value result, name = a->items[first];
  tsr_jinja_native *test = name.kind == TSR_JINJA_STRING ? tsr_jinja_find_test(name.string) : NULL;
  if (!test && name.kind == TSR_JINJA_STRING)
    return tsr_jinja_fail(
        r, a->location, "unknown test '%.*s'", (int)name.string.length, name.string.bytes);
  if (!test)
    return tsr_jinja_fail(
        r, a->location, "the name of a test should be a string, not %s",
        tsr_jinja_kind_name(name.kind));
  tsr_jinja_arguments of = {
      .location = a->location,
      .name = name.string,
      .self = v,
      .items = a->items + first + 1,
      .count = a->count - first - 1};
  if (!test(r, &of, &result)) return false;
  return *ret = tsr_jinja_is_true(result), true;
}

static bool select_items(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, bool by_attribute, bool wanted,
    tsr_jinja_value *ret) {
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_ITERATOR);
  if (!tsr_jinja_is_true(a->self)) return true;
  tsr_jinja_list items;
  tsr_jinja_string path;
  if (!tsr_jinja_check_arguments(r, a, INT_MAX, NULL) ||
      (by_attribute && !tsr_jinja_argument_text(r, a, 0, NULL, &path)) ||
      !tsr_jinja_iterate(r, a->location, a->self, &items))
    return false;
  for (int i = 0; i < items.count; i++) {
    tsr_jinja_value v = items.items[i];
    bool holds = false;
    if ((by_attribute && !tsr_jinja_at_path(r, a, v, path, &v)) ||
        !passes(r, a, by_attribute, v, &holds))
      return false;
    if (holds == wanted) tsr_jinja_append(r->arena, ret->list, items.items[i]);
  }
  return true;
}
bool tsr_jinja_filter_select(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return select_items(r, a, false, true, ret);
}
bool tsr_jinja_filter_reject(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return select_items(r, a, false, false, ret);
}
bool tsr_jinja_filter_selectattr(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return select_items(r, a, true, true, ret);
}
bool tsr_jinja_filter_rejectattr(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return select_items(r, a, true, false, ret);
}

/* ---- one value of many ---- */

static bool
extreme(tsr_jinja_run *r, const tsr_jinja_arguments *a, int sign, tsr_jinja_value *ret) {
  const tsr_jinja_value *exact = tsr_jinja_argument(a, 0, "case_sensitive"),
                        *attribute = tsr_jinja_argument(a, 1, "attribute");
  tsr_jinja_list items;
  tsr_jinja_value best, key;
  if (!tsr_jinja_check_arguments(r, a, 2, NAMES("case_sensitive", "attribute")) ||
      !tsr_jinja_iterate(r, a->location, a->self, &items))
    return false;
  *ret = tsr_jinja_missing("the extreme of no items");
  for (int i = 0; i < items.count; i++) {
    int order = sign;
    if (!key_of(r, a, items.items[i], attribute, exact, &key)) return false;
    if (i && !tsr_jinja_ranked(r, a->location, key, best, &order))
      return tsr_jinja_fail(
          r, a->location, "'%.*s' cannot compare two of the items", (int)a->name.length,
          a->name.bytes);
    if (order * sign > 0) *ret = items.items[i], best = key;
  }
  return true;
}
bool tsr_jinja_filter_min(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return extreme(r, a, -1, ret);
}
bool tsr_jinja_filter_max(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return extreme(r, a, 1, ret);
}

bool tsr_jinja_filter_sum(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *attribute = tsr_jinja_argument(a, 0, "attribute"),
                        *start = tsr_jinja_argument(a, 1, "start");
  const tsr_jinja_value exact = tsr_jinja_bool(true);
  tsr_jinja_list items;
  tsr_jinja_value v;
  if (!tsr_jinja_check_arguments(r, a, 2, NAMES("attribute", "start")) ||
      !tsr_jinja_iterate(r, a->location, a->self, &items))
    return false;
  *ret = start ? *start : tsr_jinja_int(0);
  for (int i = 0; i < items.count; i++)
    if (!key_of(r, a, items.items[i], attribute, &exact, &v) ||
        !tsr_jinja_binary(r, a->location, (tsr_jinja_string){"+", 1}, *ret, v, ret))
      return false;
  return true;
}

bool tsr_jinja_filter_join(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *by = tsr_jinja_argument(a, 0, "d"),
                        *attribute = tsr_jinja_argument(a, 1, "attribute");
  const tsr_jinja_value exact = tsr_jinja_bool(true);
  tsr_jinja_list items, parts = {0};
  if (!tsr_jinja_check_arguments(r, a, 2, NAMES("d", "attribute")) ||
      !tsr_jinja_iterate(r, a->location, a->self, &items))
    return false;
  for (int i = 0; i < items.count; i++) {
    tsr_jinja_value part;
    if (!key_of(r, a, items.items[i], attribute, &exact, &part)) return false;
    tsr_jinja_append(r->arena, &parts, part);
  }
  return tsr_jinja_join(r, a->location, &parts, by ? *by : tsr_jinja_text(""), ret);
}
