// SPDX-License-Identifier: Apache-2.0
/* Functions that every template has. */
#include "jinja/run.h"
#include <string.h>
#include <time.h>

static bool global_range(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  int64_t parts[3] = {0, 0, 1};
  if (!arguments_are(r, a, 3, NULL)) return false;
  if (!a->count) return run_fail(r, a->location, "'range' needs an end");
  for (int i = 0; i < a->count; i++) {
    if (a->items[i].kind != JINJA_INT)
      return run_fail(
          r, a->location, "'range' needs integers, not %s", jinja_kind_name(a->items[i].kind));
    parts[a->count == 1 ? 1 : i] = a->items[i].integer;
  }
  if (!parts[2]) return run_fail(r, a->location, "the step of 'range' is 0");
  enum { RANGE_MAX = 100000 }; /* Jinja's sandbox has the same limit */
  *ret = jinja_new_list(r->arena, JINJA_LIST);
  for (int64_t i = parts[0]; parts[2] > 0 ? i < parts[1] : i > parts[1];) {
    if (ret->list->count == RANGE_MAX || !run_count(r, a->location, 1))
      return run_fail(r, a->location, "a range of more than %d numbers", RANGE_MAX);
    jinja_append(r->arena, ret->list, jinja_int(i));
    if (__builtin_add_overflow(i, parts[2], &i)) break;
  }
  return true;
}

static bool named_values(
    jinja_run *r, const jinja_arguments *a, jinja_kind kind, jinja_value *ret) {
  *ret = jinja_new_dict(r->arena, kind);
  if (a->count > 1 || (a->count == 1 && a->items[0].kind != JINJA_DICT))
    return run_fail(
        r, a->location, "'%.*s' takes one dict, and values with names", (int)a->name.length,
        a->name.bytes);
  for (int i = 0; a->count && i < a->items[0].dict->count; i++)
    jinja_set(
        r->arena, ret->dict, a->items[0].dict->entries[i].key, a->items[0].dict->entries[i].value);
  for (int i = 0; i < a->named_count; i++)
    jinja_set(r->arena, ret->dict, a->named[i].key, a->named[i].value);
  return true;
}
static bool global_namespace(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return named_values(r, a, JINJA_NAMESPACE, ret);
}
static bool global_dict(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return named_values(r, a, JINJA_DICT, ret);
}

static bool global_raise_exception(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *message = argument(a, 0, "message");
  tsr_text text = {0};
  (void)ret;
  if (message) jinja_print(*message, &text);
  run_fail(r, a->location, "the template refuses: %s", text.data ? text.data : "");
  tsr_text_free(&text);
  return false;
}

static bool global_strftime_now(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  jinja_string format;
  char text[512];
  struct tm parts;
  if (!arguments_are(r, a, 1, (const char *const[]){"format", NULL}) ||
      !argument_text(r, a, 0, "format", &format))
    return false;
  time_t now = r->limits.now ? (time_t)r->limits.now : time(NULL);
  if (!gmtime_r(&now, &parts)) return run_fail(r, a->location, "the time is out of range");
  size_t length =
      strftime(text, sizeof text, tsr_arena_strndup(r->arena, format.bytes, (size_t)format.length), &parts);
  *ret = jinja_bytes(tsr_arena_strndup(r->arena, text, length), (int64_t)length);
  return true;
}

jinja_native *jinja_find_global(jinja_string name) {
  static const jinja_named globals[] = {
      {"range", global_range},
      {"namespace", global_namespace},
      {"dict", global_dict},
      {"raise_exception", global_raise_exception},
      {"strftime_now", global_strftime_now}};
  return jinja_find_in(globals, sizeof globals / sizeof *globals, name);
}
