// SPDX-License-Identifier: Apache-2.0
/* Errors, limits, arguments and iteration: what filters, methods and statements are made with. */
#include "jinja/run.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors and limits ---- */

bool tsr_jinja_fail(tsr_jinja_run *r, tsr_location location, const char *format, ...) {
  char text[1024];
  va_list args;
  if (r->failed) return false;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  r->failed = true;
  return tsr_diag_error(r->diags, location, "%s", text);
}

bool tsr_jinja_count_steps(tsr_jinja_run *r, tsr_location location, int64_t steps) {
  r->steps += steps;
  if (r->steps <= r->limits.steps_max) return !r->failed;
  return tsr_jinja_fail(
      r, location, "the template needs more than %lld steps", (long long)r->limits.steps_max);
}

bool tsr_jinja_count_bytes(tsr_jinja_run *r, tsr_location location, int64_t bytes) {
  r->bytes += bytes;
  if (r->bytes <= r->limits.bytes_max) return tsr_jinja_count_steps(r, location, bytes / 256);
  return tsr_jinja_fail(
      r, location, "the template writes more than %lld bytes of text",
      (long long)r->limits.bytes_max);
}

/* What is left of the steps, before and after work that counts its own. */
static int64_t steps_left(const tsr_jinja_run *r) { return r->limits.steps_max - r->steps; }
static bool take_steps(tsr_jinja_run *r, tsr_location location, int64_t left) {
  return tsr_jinja_count_steps(r, location, steps_left(r) - left);
}

bool tsr_jinja_lookup(
    tsr_jinja_run *r, tsr_location location, const tsr_jinja_dict *dict, tsr_jinja_value key,
    const tsr_jinja_value **ret_found) {
  int64_t left = steps_left(r);
  *ret_found = tsr_jinja_get(dict, key, &left);
  return take_steps(r, location, left);
}

bool tsr_jinja_store(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_dict *dict, tsr_jinja_value key,
    tsr_jinja_value value) {
  int64_t left = steps_left(r);
  tsr_jinja_put(r->arena, dict, key, value, &left);
  return take_steps(r, location, left);
}

bool tsr_jinja_same(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value a, tsr_jinja_value b, bool *ret_same) {
  int64_t left = steps_left(r);
  *ret_same = tsr_jinja_equal(a, b, &left);
  return take_steps(r, location, left);
}

bool tsr_jinja_ranked(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value a, tsr_jinja_value b, int *ret_order) {
  int64_t left = steps_left(r);
  bool ok = tsr_jinja_order(a, b, &left, ret_order);
  return take_steps(r, location, left) && ok;
}

enum { DEPTH_MAX = 2000 }; /* nested expressions, bodies and macros */

bool tsr_jinja_enter(tsr_jinja_run *r, tsr_location location) {
  if (++r->depth <= DEPTH_MAX) return true;
  return tsr_jinja_fail(
      r, location, "expressions and calls are nested more than %d levels deep", DEPTH_MAX);
}
void tsr_jinja_leave(tsr_jinja_run *r) { r->depth--; }

tsr_jinja_scope *tsr_jinja_new_scope(tsr_jinja_run *r, tsr_jinja_scope *outer) {
  tsr_jinja_scope *s = tsr_arena_alloc(r->arena, sizeof *s);
  s->outer = outer;
  return s;
}

/* ---- arguments ---- */

const tsr_jinja_value *
tsr_jinja_argument(const tsr_jinja_arguments *a, int index, const char *name) {
  if (index < a->count) return &a->items[index];
  for (int i = 0; name && i < a->named_count; i++)
    if (tsr_jinja_is_text(a->named[i].key, name)) return &a->named[i].value;
  return NULL;
}

bool tsr_jinja_check_arguments(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, int most, const char *const *names) {
  if (a->count > most)
    return tsr_jinja_fail(
        r, a->location, "'%.*s' takes at most %d positional arguments, not %d", (int)a->name.length,
        a->name.bytes, most, a->count);
  for (int i = 0; i < a->named_count; i++) {
    bool known = false;
    for (int k = 0; names && names[k]; k++) known |= tsr_jinja_is_text(a->named[i].key, names[k]);
    if (!known)
      return tsr_jinja_fail(
          r, a->location, "'%.*s' has no argument '%.*s'", (int)a->name.length, a->name.bytes,
          (int)a->named[i].key.string.length, a->named[i].key.string.bytes);
  }
  return true;
}

bool tsr_jinja_argument_text(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, int index, const char *name,
    tsr_jinja_string *ret) {
  const tsr_jinja_value *v = tsr_jinja_argument(a, index, name);
  if (v && v->kind == TSR_JINJA_STRING) return *ret = v->string, true;
  return tsr_jinja_fail(
      r, a->location, "'%.*s' needs a string, not %s", (int)a->name.length, a->name.bytes,
      v ? tsr_jinja_kind_name(v->kind) : "nothing");
}

/* ---- iteration ---- */

static void iterate_text(tsr_jinja_run *r, tsr_jinja_string s, tsr_jinja_list *items) {
  for (int64_t at = 0, next; at < s.length; at = next) {
    next = at + 1;
    while (next < s.length && ((unsigned char)s.bytes[next] & 0xC0) == 0x80) next++;
    tsr_jinja_append(r->arena, items, tsr_jinja_bytes(s.bytes + at, next - at));
  }
}

bool tsr_jinja_iterate(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_list *ret_items) {
  *ret_items = (tsr_jinja_list){0};
  switch (of.kind) {
  case TSR_JINJA_UNDEFINED:
    return true;
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
  case TSR_JINJA_VIEW:
  case TSR_JINJA_ITERATOR:
    *ret_items = *of.list;
    if (of.kind == TSR_JINJA_ITERATOR) *of.list = (tsr_jinja_list){0};
    return tsr_jinja_count_steps(r, location, ret_items->count);
  case TSR_JINJA_DICT:
    for (int i = 0; i < of.dict->count; i++)
      tsr_jinja_append(r->arena, ret_items, of.dict->entries[i].key);
    return tsr_jinja_count_steps(r, location, of.dict->count);
  case TSR_JINJA_STRING:
    if (!tsr_jinja_count_steps(r, location, of.string.length)) return false;
    return iterate_text(r, of.string, ret_items), true;
  default:
    return tsr_jinja_fail(r, location, "cannot iterate over %s", tsr_jinja_kind_name(of.kind));
  }
}

/* ---- tables ---- */

tsr_jinja_native *
tsr_jinja_find_named(const tsr_jinja_named *table, int count, tsr_jinja_string name) {
  for (int i = 0; i < count; i++)
    if (tsr_jinja_is_text(tsr_jinja_bytes(name.bytes, name.length), table[i].name))
      return table[i].native;
  return NULL;
}
