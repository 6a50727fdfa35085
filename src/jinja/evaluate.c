// SPDX-License-Identifier: Apache-2.0
/* Expressions. */
#include "jinja/run.h"
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

jinja_scope *run_new_scope(jinja_run *r, jinja_scope *outer) {
  jinja_scope *s = tsr_arena_alloc(r->arena, sizeof *s);
  s->outer = outer;
  return s;
}

static bool find_name(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value key = jinja_bytes(e->name.bytes, e->name.length);
  for (const jinja_scope *s = r->scope; s; s = s->outer) {
    const jinja_value *v = jinja_get(&s->names, key);
    if (!run_count(r, e->location, 1)) return false;
    if (v) return *ret = *v, true;
  }
  jinja_native *native = jinja_find_global(e->name);
  if (native) {
    jinja_function *f = tsr_arena_alloc(r->arena, sizeof *f);
    f->name = tsr_arena_strndup(r->arena, e->name.bytes, (size_t)e->name.length);
    f->native = native;
    *ret = (jinja_value){.kind = JINJA_FUNCTION, .function = f};
    return true;
  }
  *ret = jinja_missing(tsr_arena_strndup(r->arena, e->name.bytes, (size_t)e->name.length));
  return true;
}

/* ---- attributes ---- */

static jinja_value loop_item(const jinja_loop *l, int64_t index) {
  return index < 0 || index >= l->items->count ? jinja_missing("there is no such item")
                                               : l->items->items[index];
}

static bool loop_attribute(jinja_run *r, const jinja_loop *l, jinja_string name, jinja_value *ret) {
  int64_t n = l->items->count, i = l->index;
  const struct {
    const char *name;
    jinja_value value;
  } known[] = {
      {"index", jinja_int(i + 1)},        {"index0", jinja_int(i)},
      {"revindex", jinja_int(n - i)},     {"revindex0", jinja_int(n - i - 1)},
      {"first", jinja_bool(i == 0)},      {"last", jinja_bool(i == n - 1)},
      {"length", jinja_int(n)},           {"depth", jinja_int(l->depth + 1)},
      {"depth0", jinja_int(l->depth)},    {"previtem", loop_item(l, i - 1)},
      {"nextitem", loop_item(l, i + 1)}};
  (void)r;
  for (size_t k = 0; k < sizeof known / sizeof *known; k++)
    if (jinja_is_text(jinja_bytes(name.bytes, name.length), known[k].name))
      return *ret = known[k].value, true;
  return false;
}

static bool method_of(
    jinja_run *r, tsr_location location, jinja_value of, jinja_string name, jinja_value *ret) {
  bool forbidden = false;
  jinja_native *native = jinja_find_method(of.kind, name, &forbidden);
  if (forbidden)
    return run_fail(
        r, location, "'%.*s' would change %s, which templates may not", (int)name.length,
        name.bytes, jinja_kind_name(of.kind));
  if (!native) return false;
  jinja_function *f = tsr_arena_alloc(r->arena, sizeof *f);
  f->name = tsr_arena_strndup(r->arena, name.bytes, (size_t)name.length);
  f->native = native;
  f->self = of;
  *ret = (jinja_value){.kind = JINJA_FUNCTION, .function = f};
  return true;
}

/* As Jinja's getattr: what Python has as an attribute, then an item of that name. */
static bool attribute_of(
    jinja_run *r, tsr_location location, jinja_value of, jinja_string name, jinja_value *ret) {
  jinja_value key = jinja_bytes(name.bytes, name.length);
  if (of.kind == JINJA_UNDEFINED)
    return run_fail(
        r, location, "'%s' is undefined, and '%.*s' of it is asked for",
        of.undefined ? of.undefined : "this value", (int)name.length, name.bytes);
  if (of.kind == JINJA_LOOP && loop_attribute(r, of.loop, name, ret)) return true;
  if (method_of(r, location, of, name, ret)) return true;
  if (r->failed) return false;
  const jinja_value *item = of.kind == JINJA_DICT || of.kind == JINJA_NAMESPACE
                                ? jinja_get(of.dict, key)
                                : NULL;
  *ret = item ? *item
              : jinja_missing(tsr_arena_strndup(r->arena, name.bytes, (size_t)name.length));
  return true;
}

/* As Jinja's getitem: an item, then an attribute of that name. */
static bool item_of(jinja_run *r, const expr *e, jinja_value of, jinja_value index, jinja_value *ret) {
  if (of.kind == JINJA_UNDEFINED)
    return run_fail(
        r, e->location, "'%s' is undefined, and an item of it is asked for",
        of.undefined ? of.undefined : "this value");
  if (!run_item(r, e->location, of, index, ret)) return false;
  if (ret->kind != JINJA_UNDEFINED || index.kind != JINJA_STRING) return true;
  if (of.kind == JINJA_LOOP && loop_attribute(r, of.loop, index.string, ret)) return true;
  return method_of(r, e->location, of, index.string, ret) || !r->failed;
}

/* ---- calls ---- */

static bool evaluate_arguments(jinja_run *r, const expr *e, jinja_arguments *a) {
  a->location = e->location;
  a->name = e->name;
  a->items = tsr_arena_array(r->arena, jinja_value, e->arguments_count + 1);
  a->named = tsr_arena_array(r->arena, jinja_entry, e->named_count + 1);
  for (int i = 0; i < e->arguments_count; i++)
    if (!run_evaluate(r, e->arguments[i], &a->items[a->count++])) return false;
  for (int i = 0; i < e->named_count; i++) {
    jinja_entry *n = &a->named[a->named_count++];
    n->key = jinja_bytes(e->named[i].name.bytes, e->named[i].name.length);
    if (!run_evaluate(r, e->named[i].value, &n->value)) return false;
  }
  return true;
}

bool run_call(jinja_run *r, jinja_value callee, const jinja_arguments *a, jinja_value *ret) {
  if (callee.kind == JINJA_LOOP) return run_loop_again(r, callee.loop, a, ret);
  if (callee.kind == JINJA_UNDEFINED)
    return run_fail(
        r, a->location, "'%s' is undefined, and is called",
        callee.undefined ? callee.undefined : "this value");
  if (callee.kind != JINJA_FUNCTION)
    return run_fail(r, a->location, "%s is called", jinja_kind_name(callee.kind));
  if (callee.function->macro) return run_macro(r, callee.function, a, ret);
  jinja_arguments with = *a;
  with.self = callee.function->self;
  with.name = (jinja_string){callee.function->name, (int64_t)strlen(callee.function->name)};
  return callee.function->native(r, &with, ret);
}

static bool evaluate_call(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value callee;
  jinja_arguments a = {0};
  return run_evaluate(r, e->items[0], &callee) && evaluate_arguments(r, e, &a) &&
         run_call(r, callee, &a, ret);
}

bool run_filter(jinja_run *r, const expr *e, const jinja_value *body, jinja_value *ret) {
  jinja_arguments a = {0};
  if (e->kind != EXPR_FILTER) return run_evaluate(r, e, ret);
  jinja_native *native = jinja_find_filter(e->name);
  if (!native)
    return run_fail(
        r, e->location, "there is no filter '%.*s'", (int)e->name.length, e->name.bytes);
  if (!e->items[0]) a.self = *body;
  else if (!run_filter(r, e->items[0], body, &a.self)) return false;
  return evaluate_arguments(r, e, &a) && run_count(r, e->location, 1) && native(r, &a, ret);
}

static bool evaluate_test(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_arguments a = {0};
  jinja_native *native = jinja_find_test(e->name);
  if (!native)
    return run_fail(
        r, e->location, "there is no test '%.*s'", (int)e->name.length, e->name.bytes);
  return run_evaluate(r, e->items[0], &a.self) && evaluate_arguments(r, e, &a) &&
         native(r, &a, ret);
}

/* ---- operators ---- */

static bool evaluate_unary(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value x;
  if (!run_evaluate(r, e->items[0], &x)) return false;
  if (e->name.length == 3) return *ret = jinja_bool(!jinja_is_true(x)), true;
  if (!jinja_is_number(x))
    return run_fail(r, e->location, "%s has no sign", jinja_kind_name(x.kind));
  bool minus = *e->name.bytes == '-';
  if (x.kind == JINJA_FLOAT) *ret = jinja_float(minus ? -x.number : x.number);
  else return run_binary(
      r, e->location, (jinja_string){minus ? "-" : "+", 1}, jinja_int(0), x, ret);
  return true;
}

static bool evaluate_binary(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value a, b;
  if (!run_evaluate(r, e->items[0], &a)) return false;
  if (e->name.length == 2 && !memcmp(e->name.bytes, "or", 2)) {
    if (jinja_is_true(a)) return *ret = a, true;
    return run_evaluate(r, e->items[1], ret);
  }
  if (e->name.length == 3) {
    if (!jinja_is_true(a)) return *ret = a, true;
    return run_evaluate(r, e->items[1], ret);
  }
  return run_evaluate(r, e->items[1], &b) && run_binary(r, e->location, e->name, a, b, ret);
}

static bool evaluate_comparison(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value a, b;
  bool holds = true;
  if (!run_evaluate(r, e->items[0], &a)) return false;
  for (int i = 1; holds && i < e->items_count; i++, a = b)
    if (!run_evaluate(r, e->items[i], &b) ||
        !run_compare(r, e->location, e->names[i - 1], a, b, &holds))
      return false;
  return *ret = jinja_bool(holds), true;
}

static bool evaluate_concat(jinja_run *r, const expr *e, jinja_value *ret) {
  tsr_text text = {0};
  bool ok = true;
  for (int i = 0; ok && i < e->items_count; i++) {
    jinja_value v;
    ok = run_evaluate(r, e->items[i], &v);
    if (ok && !jinja_print(v, &text)) ok = run_fail(r, e->location, "values are nested too deeply");
  }
  ok = ok && run_made(r, e->location, (int64_t)text.length);
  *ret = jinja_take(r->arena, &text);
  return ok;
}

static bool evaluate_if(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value test;
  if (!run_evaluate(r, e->items[0], &test)) return false;
  if (jinja_is_true(test)) return run_evaluate(r, e->items[1], ret);
  if (e->items[2]) return run_evaluate(r, e->items[2], ret);
  return *ret = jinja_missing("the inline if without else"), true;
}

static bool evaluate_items(jinja_run *r, const expr *e, jinja_value *ret) {
  *ret = jinja_new_list(r->arena, e->kind == EXPR_LIST ? JINJA_LIST : JINJA_TUPLE);
  for (int i = 0; i < e->items_count; i++) {
    jinja_value v;
    if (!run_evaluate(r, e->items[i], &v)) return false;
    jinja_append(r->arena, ret->list, v);
  }
  return true;
}

static bool evaluate_dict(jinja_run *r, const expr *e, jinja_value *ret) {
  *ret = jinja_new_dict(r->arena, JINJA_DICT);
  for (int i = 0; i + 1 < e->items_count; i += 2) {
    jinja_value key, value;
    if (!run_evaluate(r, e->items[i], &key) || !run_evaluate(r, e->items[i + 1], &value))
      return false;
    jinja_set(r->arena, ret->dict, key, value);
  }
  return true;
}

static bool evaluate_slice(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value of, parts[3];
  if (!run_evaluate(r, e->items[0], &of)) return false;
  for (int i = 0; i < 3; i++) {
    parts[i] = jinja_none();
    if (e->items[i + 1] && !run_evaluate(r, e->items[i + 1], &parts[i])) return false;
  }
  return run_slice(r, e->location, of, parts, ret);
}

static bool evaluate_node(jinja_run *r, const expr *e, jinja_value *ret) {
  jinja_value of, index;
  switch (e->kind) {
  case EXPR_CONSTANT: return *ret = e->constant, true;
  case EXPR_NAME: return find_name(r, e, ret);
  case EXPR_LIST:
  case EXPR_TUPLE: return evaluate_items(r, e, ret);
  case EXPR_DICT: return evaluate_dict(r, e, ret);
  case EXPR_UNARY: return evaluate_unary(r, e, ret);
  case EXPR_BINARY: return evaluate_binary(r, e, ret);
  case EXPR_COMPARE: return evaluate_comparison(r, e, ret);
  case EXPR_CONCAT: return evaluate_concat(r, e, ret);
  case EXPR_IF: return evaluate_if(r, e, ret);
  case EXPR_SLICE: return evaluate_slice(r, e, ret);
  case EXPR_CALL: return evaluate_call(r, e, ret);
  case EXPR_FILTER: return run_filter(r, e, NULL, ret);
  case EXPR_TEST: return evaluate_test(r, e, ret);
  case EXPR_ATTRIBUTE:
    return run_evaluate(r, e->items[0], &of) && attribute_of(r, e->location, of, e->name, ret);
  case EXPR_ITEM:
    return run_evaluate(r, e->items[0], &of) && run_evaluate(r, e->items[1], &index) &&
           item_of(r, e, of, index, ret);
  }
  return false;
}

bool run_evaluate(jinja_run *r, const expr *e, jinja_value *ret) {
  bool ok = run_count(r, e->location, 1) && run_enter(r, e->location) && evaluate_node(r, e, ret);
  run_leave(r);
  return ok;
}
