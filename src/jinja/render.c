// SPDX-License-Identifier: Apache-2.0
#include "jinja/render.h"
#include "jinja/run.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct tsr_jinja_template {
  block body;
};

bool tsr_jinja_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    tsr_jinja_template **ret_template, tsr_diags *diags) {
  tsr_jinja_template *t = tsr_arena_alloc(arena, sizeof *t);
  tsr_diags_source(diags, file, text, length);
  if (!jinja_parse(arena, file, text, length, &t->body, diags)) return false;
  return *ret_template = t, true;
}

/* ---- errors and limits ---- */

bool run_fail(jinja_run *r, tsr_location location, const char *format, ...) {
  char text[1024];
  va_list args;
  if (r->failed) return false;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  r->failed = true;
  return tsr_diag_error(r->diags, location, "%s", text);
}

bool run_count(jinja_run *r, tsr_location location, int64_t steps) {
  r->steps += steps;
  if (r->steps <= r->limits.steps_max) return !r->failed;
  return run_fail(
      r, location, "the template takes more than %lld steps", (long long)r->limits.steps_max);
}

bool run_made(jinja_run *r, tsr_location location, int64_t bytes) {
  r->made += bytes;
  if (r->made <= r->limits.output_max) return run_count(r, location, bytes / 256);
  return run_fail(
      r, location, "the template makes more than %lld bytes of text",
      (long long)r->limits.output_max);
}

enum { DEPTH_MAX = 1000 }; /* of expressions and macros within one another */
bool run_enter(jinja_run *r, tsr_location location) {
  if (++r->depth <= DEPTH_MAX) return true;
  return run_fail(r, location, "more than %d levels of calls and expressions", DEPTH_MAX);
}
void run_leave(jinja_run *r) { r->depth--; }

/* ---- arguments ---- */

const jinja_value *argument(const jinja_arguments *a, int index, const char *name) {
  if (index < a->count) return &a->items[index];
  for (int i = 0; name && i < a->named_count; i++)
    if (jinja_is_text(a->named[i].key, name)) return &a->named[i].value;
  return NULL;
}

bool arguments_are(jinja_run *r, const jinja_arguments *a, int most, const char *const *names) {
  if (a->count > most)
    return run_fail(
        r, a->location, "'%.*s' takes %d arguments at most, not %d", (int)a->name.length,
        a->name.bytes, most, a->count);
  for (int i = 0; i < a->named_count; i++) {
    bool known = false;
    for (int k = 0; names && names[k]; k++) known |= jinja_is_text(a->named[i].key, names[k]);
    if (!known)
      return run_fail(
          r, a->location, "'%.*s' has no argument '%.*s'", (int)a->name.length, a->name.bytes,
          (int)a->named[i].key.string.length, a->named[i].key.string.bytes);
  }
  return true;
}

bool argument_text(
    jinja_run *r, const jinja_arguments *a, int index, const char *name, jinja_string *ret) {
  const jinja_value *v = argument(a, index, name);
  if (v && v->kind == JINJA_STRING) return *ret = v->string, true;
  return run_fail(
      r, a->location, "'%.*s' needs a string, not %s", (int)a->name.length, a->name.bytes,
      v ? jinja_kind_name(v->kind) : "nothing");
}

/* ---- iteration ---- */

static bool iterate_text(jinja_run *r, jinja_string s, jinja_list *items) {
  for (int64_t at = 0; at < s.length;) {
    int64_t next = at + 1;
    while (next < s.length && ((unsigned char)s.bytes[next] & 0xC0) == 0x80) next++;
    jinja_append(r->arena, items, jinja_bytes(s.bytes + at, next - at));
    at = next;
  }
  return true;
}

bool run_iterate(jinja_run *r, tsr_location location, jinja_value of, jinja_list *ret_items) {
  *ret_items = (jinja_list){0};
  switch (of.kind) {
  case JINJA_UNDEFINED: return true;
  case JINJA_LIST:
  case JINJA_TUPLE: return *ret_items = *of.list, run_count(r, location, of.list->count);
  case JINJA_DICT:
    for (int i = 0; i < of.dict->count; i++)
      jinja_append(r->arena, ret_items, of.dict->entries[i].key);
    return run_count(r, location, of.dict->count);
  case JINJA_STRING:
    return run_count(r, location, of.string.length) && iterate_text(r, of.string, ret_items);
  default: return run_fail(r, location, "%s has no items to go over", jinja_kind_name(of.kind));
  }
}

/* ---- the whole ---- */

bool tsr_jinja_render(
    tsr_arena *arena, const tsr_jinja_template *of, const jinja_dict *variables,
    const tsr_jinja_limits *limits, tsr_jinja_output *ret_output, tsr_diags *diags) {
  jinja_run r = {.arena = arena, .diags = diags, .output = ret_output};
  *ret_output = (tsr_jinja_output){0};
  if (limits) r.limits = *limits;
  if (!r.limits.steps_max) r.limits.steps_max = 10000000;
  if (!r.limits.output_max) r.limits.output_max = 64 << 20;
  r.out = &ret_output->text;
  jinja_scope *given = run_new_scope(&r, NULL);
  given->names = *variables;
  r.scope = run_new_scope(&r, given);
  if (run_block(&r, &of->body) && !r.failed) return true;
  tsr_text_free(&ret_output->text);
  return false;
}
