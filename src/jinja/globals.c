// SPDX-License-Identifier: Apache-2.0
/* Functions that every template has. */
#include "jinja/run.h"
#include <string.h>
#include <time.h>

static bool global_range(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  int64_t parts[3] = {0, 0, 1};
  if (!tsr_jinja_check_arguments(r, a, 3, NULL)) return false;
  if (!a->count) return tsr_jinja_fail(r, a->location, "'range' needs an end");
  for (int i = 0; i < a->count; i++) {
    if (a->items[i].kind != TSR_JINJA_INT)
      return tsr_jinja_fail(
          r, a->location, "'range' needs integers, not %s", tsr_jinja_kind_name(a->items[i].kind));
    parts[a->count == 1 ? 1 : i] = a->items[i].integer;
  }
  if (!parts[2]) return tsr_jinja_fail(r, a->location, "the step of 'range' is 0");
  enum { RANGE_MAX = 100000 }; /* MAX_RANGE of Jinja's sandbox */
  *ret = tsr_jinja_new_list(r->arena, TSR_JINJA_VIEW);
  ret->list->is_range = true;
  for (int64_t i = parts[0]; parts[2] > 0 ? i < parts[1] : i > parts[1];) {
    if (ret->list->count == RANGE_MAX || !tsr_jinja_count_steps(r, a->location, 1))
      return tsr_jinja_fail(r, a->location, "a range should have at most %d numbers", RANGE_MAX);
    tsr_jinja_append(r->arena, ret->list, tsr_jinja_int(i));
    if (__builtin_add_overflow(i, parts[2], &i)) break;
  }
  return true;
}

static bool named_values(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_kind kind, tsr_jinja_value *ret) {
  *ret = tsr_jinja_new_dict(r->arena, kind);
  if (a->count > 1 || (a->count == 1 && a->items[0].kind != TSR_JINJA_DICT))
    return tsr_jinja_fail(
        r, a->location, "'%.*s' needs at most one dict, and named values", (int)a->name.length,
        a->name.bytes);
  bool ok = true;
  for (int i = 0; ok && a->count && i < a->items[0].dict->count; i++) {
    const tsr_jinja_entry *e = &a->items[0].dict->entries[i];
    ok = tsr_jinja_store(r, a->location, ret->dict, e->key, e->value);
  }
  for (int i = 0; ok && i < a->named_count; i++)
    ok = tsr_jinja_store(r, a->location, ret->dict, a->named[i].key, a->named[i].value);
  return ok;
}
static bool global_namespace(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return named_values(r, a, TSR_JINJA_NAMESPACE, ret);
}
static bool global_dict(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return named_values(r, a, TSR_JINJA_DICT, ret);
}

static bool
global_raise_exception(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *message = tsr_jinja_argument(a, 0, "message");
  tsr_text text = {0};
  (void)ret;
  if (message) tsr_jinja_print(*message, &text);
  tsr_jinja_fail(
      r, a->location, "the template raises an exception: %s", text.data ? text.data : "");
  tsr_text_free(&text);
  return false;
}

static bool
global_strftime_now(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  tsr_jinja_string format;
  char text[512];
  struct tm parts;
  if (!tsr_jinja_check_arguments(r, a, 1, (const char *const[]){"format", NULL}) ||
      !tsr_jinja_argument_text(r, a, 0, "format", &format))
    return false;
  if (r->limits.now == TSR_JINJA_NO_TIME)
    return tsr_jinja_fail(
        r, a->location, "the template reads the current date, which data.date sets");
  time_t now = r->limits.now ? (time_t)r->limits.now : time(NULL);
  if (!(r->limits.now ? gmtime_r(&now, &parts) : localtime_r(&now, &parts)))
    return tsr_jinja_fail(r, a->location, "the time is out of range");
  size_t length = strftime(
      text, sizeof text, tsr_arena_strndup(r->arena, format.bytes, (size_t)format.length), &parts);
  *ret = tsr_jinja_bytes(tsr_arena_strndup(r->arena, text, length), (int64_t)length);
  return true;
}

tsr_jinja_native *tsr_jinja_find_global(tsr_jinja_string name) {
  static const tsr_jinja_named globals[] = {
      {"range", global_range},
      {"namespace", global_namespace},
      {"dict", global_dict},
      {"raise_exception", global_raise_exception},
      {"strftime_now", global_strftime_now}};
  return tsr_jinja_find_named(globals, sizeof globals / sizeof *globals, name);
}
