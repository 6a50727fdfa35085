// SPDX-License-Identifier: Apache-2.0
/* Methods of dicts, lists and the variable `loop`, and the choice of a method by its object. */
#include "jinja/run.h"

/* ---- dicts ---- */

typedef enum { KEYS, VALUES, PAIRS } dict_part;

static bool add_parts(
    tsr_jinja_run *r, tsr_location location, const tsr_jinja_dict *d, dict_part part,
    tsr_jinja_list *to) {
  for (int i = 0; i < d->count; i++) {
    const tsr_jinja_entry *e = &d->entries[i];
    tsr_jinja_value v = part == KEYS ? e->key : e->value;
    if (part == PAIRS) {
      v = tsr_jinja_new_list(r->arena, TSR_JINJA_TUPLE);
      tsr_jinja_append(r->arena, v.list, e->key);
      tsr_jinja_append(r->arena, v.list, e->value);
    }
    tsr_jinja_append(r->arena, to, v);
  }
  return tsr_jinja_count_steps(r, location, d->count);
}

bool tsr_jinja_dict_items(
    tsr_jinja_run *r, tsr_location location, const tsr_jinja_dict *dict, tsr_jinja_list *to) {
  return add_parts(r, location, dict, PAIRS, to);
}

static bool
parts_of(tsr_jinja_run *r, const tsr_jinja_arguments *a, dict_part part, tsr_jinja_value *ret) {
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_VIEW);
  return tsr_jinja_check_arguments(r, a, 0, NULL) &&
         add_parts(r, a->location, a->self.dict, part, ret->list);
}
static bool dict_keys(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return parts_of(r, a, KEYS, ret);
}
static bool dict_values(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return parts_of(r, a, VALUES, ret);
}
static bool dict_items(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return parts_of(r, a, PAIRS, ret);
}

static bool dict_get(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  if (!tsr_jinja_check_arguments(r, a, 2, NULL)) return false;
  if (!a->count) return tsr_jinja_fail(r, a->location, "'get' needs a key");
  const tsr_jinja_value *v;
  bool ok = tsr_jinja_lookup(r, a->location, a->self.dict, a->items[0], &v);
  *ret = v ? *v : a->count > 1 ? a->items[1] : tsr_jinja_none();
  return ok;
}

static bool dict_copy(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_dict *d = a->self.dict;
  *ret = tsr_jinja_new_dict(r->arena, TSR_JINJA_DICT);
  if (!tsr_jinja_check_arguments(r, a, 0, NULL)) return false;
  bool ok = true;
  for (int i = 0; ok && i < d->count; i++)
    ok = tsr_jinja_store(r, a->location, ret->dict, d->entries[i].key, d->entries[i].value);
  return ok;
}

/* ---- lists ---- */

static bool list_index(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_list *l = a->self.list;
  int at = 0;
  if (!tsr_jinja_check_arguments(r, a, 1, NULL)) return false;
  if (!a->count) return tsr_jinja_fail(r, a->location, "'index' needs a value");
  bool ok = true, found = false;
  for (; ok && !found && at < l->count; at += !found)
    ok = tsr_jinja_same(r, a->location, l->items[at], a->items[0], &found);
  if (!found) return tsr_jinja_fail(r, a->location, "'index' does not find this value in the list");
  return *ret = tsr_jinja_int(at), ok && tsr_jinja_count_steps(r, a->location, at);
}

static bool list_count(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_list *l = a->self.list;
  int64_t count = 0;
  if (!tsr_jinja_check_arguments(r, a, 1, NULL)) return false;
  if (!a->count) return tsr_jinja_fail(r, a->location, "'count' needs a value");
  bool ok = true, same;
  for (int i = 0; ok && i < l->count; i++) {
    ok = tsr_jinja_same(r, a->location, l->items[i], a->items[0], &same);
    count += same;
  }
  return *ret = tsr_jinja_int(count), ok && tsr_jinja_count_steps(r, a->location, l->count);
}

/* ---- loop ---- */

static bool loop_cycle(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  if (!a->count) return tsr_jinja_fail(r, a->location, "'cycle' needs values");
  return *ret = a->items[a->self.loop->index % a->count], true;
}

static bool loop_changed(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_list *last = &a->self.loop->changed->values;
  bool same = a->self.loop->changed->is_set && last->count == a->count, ok = true;
  for (int i = 0; ok && same && i < a->count; i++)
    ok = tsr_jinja_same(r, a->location, last->items[i], a->items[i], &same);
  *last = (tsr_jinja_list){.items = a->items, .count = a->count, .capacity = a->count};
  a->self.loop->changed->is_set = true;
  return *ret = tsr_jinja_bool(!same), ok && tsr_jinja_count_steps(r, a->location, a->count);
}

/* ---- by name ---- */

static const tsr_jinja_named dicts[] = {
    {"copy", dict_copy},
    {"get", dict_get},
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values}};
static const tsr_jinja_named lists[] = {{"count", list_count}, {"index", list_index}};
static const tsr_jinja_named loops[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};

/* Methods of Python and attributes of macros that are left out: an error, where another unknown
 * name is undefined. */
static const char *const other_string_methods[] = {
    "casefold",     "center",  "encode",    "expandtabs",  "format_map", "isascii",
    "isdecimal",    "islower", "isnumeric", "isprintable", "istitle",    "isupper",
    "isidentifier", "ljust",   "maketrans", "rindex",      "rjust",      "swapcase",
    "translate",    "zfill",   NULL};
static const char *const other_dict_methods[] = {"clear",      "fromkeys", "pop", "popitem",
                                                 "setdefault", "update",   NULL};
static const char *const other_list_methods[] = {"append", "clear",  "copy",    "extend", "insert",
                                                 "pop",    "remove", "reverse", "sort",   NULL};

static const char *const macro_attributes[] = {"arguments",     "caller", "catch_kwargs",
                                               "catch_varargs", "name",   NULL};

static bool is_in(const char *const *names, tsr_jinja_string name) {
  for (int i = 0; names[i]; i++)
    if (tsr_jinja_is_text(tsr_jinja_bytes(name.bytes, name.length), names[i])) return true;
  return false;
}

tsr_jinja_native *
tsr_jinja_find_method(tsr_jinja_kind kind, tsr_jinja_string name, bool *ret_left_out) {
  *ret_left_out = false;
  switch (kind) {
  case TSR_JINJA_STRING:
    *ret_left_out = is_in(other_string_methods, name);
    return tsr_jinja_find_string_method(name);
  case TSR_JINJA_DICT:
    *ret_left_out = is_in(other_dict_methods, name);
    return tsr_jinja_find_named(dicts, sizeof dicts / sizeof *dicts, name);
  case TSR_JINJA_LIST:
    *ret_left_out = is_in(other_list_methods, name);
    return tsr_jinja_find_named(lists, sizeof lists / sizeof *lists, name);
  case TSR_JINJA_TUPLE:
    return tsr_jinja_find_named(lists, sizeof lists / sizeof *lists, name);
  case TSR_JINJA_FUNCTION:
    *ret_left_out = is_in(macro_attributes, name);
    return NULL;
  case TSR_JINJA_LOOP:
    return tsr_jinja_find_named(loops, sizeof loops / sizeof *loops, name);
  default:
    return NULL;
  }
}
