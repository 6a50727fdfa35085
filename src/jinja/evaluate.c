// SPDX-License-Identifier: Apache-2.0
/* Expressions. */
#include "jinja/run.h"
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* Names that Jinja gives a value by itself, in a macro's body or everywhere. */
static bool is_left_out(tsr_jinja_value name, bool in_macro) {
  return tsr_jinja_is_text(name, in_macro ? "varargs" : "self") ||
         (in_macro && tsr_jinja_is_text(name, "kwargs"));
}

static bool find_name(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value key = tsr_jinja_bytes(e->name.bytes, e->name.length);
  for (const tsr_jinja_scope *s = r->scope; s; s = s->outer) {
    const tsr_jinja_value *v;
    if (!tsr_jinja_lookup(r, e->location, &s->names, key, &v)) return false;
    if (v) return *ret = *v, true;
    if (s->is_macro ? is_left_out(key, true) : !s->outer && is_left_out(key, false))
      return tsr_jinja_fail(
          r, e->location, "Jinja's variable '%.*s' is not supported", (int)e->name.length,
          e->name.bytes);
  }
  tsr_jinja_native *native = tsr_jinja_find_global(e->name);
  if (native) {
    tsr_jinja_function *f = tsr_arena_alloc(r->arena, sizeof *f);
    f->name = tsr_arena_strndup(r->arena, e->name.bytes, (size_t)e->name.length);
    f->native = native;
    *ret = (tsr_jinja_value){.kind = TSR_JINJA_FUNCTION, .function = f};
    return true;
  }
  *ret = tsr_jinja_missing(tsr_arena_strndup(r->arena, e->name.bytes, (size_t)e->name.length));
  return true;
}

/* ---- attributes ---- */

static tsr_jinja_value loop_item(const tsr_jinja_loop *l, int64_t index) {
  return index < 0 || index >= l->items->count ? tsr_jinja_missing("the neighbour of this item")
                                               : l->items->items[index];
}

static bool loop_attribute(const tsr_jinja_loop *l, tsr_jinja_string name, tsr_jinja_value *ret) {
  int64_t n = l->items->count, i = l->index;
  const struct {
    const char *name;
    tsr_jinja_value value;
  } known[] = {{"index", tsr_jinja_int(i + 1)},     {"index0", tsr_jinja_int(i)},
               {"revindex", tsr_jinja_int(n - i)},  {"revindex0", tsr_jinja_int(n - i - 1)},
               {"first", tsr_jinja_bool(i == 0)},   {"last", tsr_jinja_bool(i == n - 1)},
               {"length", tsr_jinja_int(n)},        {"depth", tsr_jinja_int(l->depth + 1)},
               {"depth0", tsr_jinja_int(l->depth)}, {"previtem", loop_item(l, i - 1)},
               {"nextitem", loop_item(l, i + 1)}};
  for (size_t k = 0; k < sizeof known / sizeof *known; k++)
    if (tsr_jinja_is_text(tsr_jinja_bytes(name.bytes, name.length), known[k].name))
      return *ret = known[k].value, true;
  return false;
}

/* A method as a value; undefined where there is none. */
static bool method_of(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_string name,
    tsr_jinja_value *ret) {
  bool left_out = false;
  tsr_jinja_native *native = tsr_jinja_find_method(of.kind, name, &left_out);
  char *text = tsr_arena_strndup(r->arena, name.bytes, (size_t)name.length);
  *ret = tsr_jinja_missing(text);
  if (left_out)
    return tsr_jinja_fail(
        r, location, "the %s '%s' of %s is not supported",
        of.kind == TSR_JINJA_FUNCTION ? "attribute" : "method", text, tsr_jinja_kind_name(of.kind));
  if (!native) return true;
  tsr_jinja_function *f = tsr_arena_alloc(r->arena, sizeof *f);
  *f = (tsr_jinja_function){.name = text, .native = native, .self = of};
  *ret = (tsr_jinja_value){.kind = TSR_JINJA_FUNCTION, .function = f};
  return true;
}

static bool
fail_undefined(tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, const char *what) {
  return tsr_jinja_fail(
      r, location, "'%s' is undefined%s", of.undefined ? of.undefined : "this value", what);
}

/* As Jinja's getattr: an attribute of Python's object, else an item of that name. */
static bool attribute_of(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_string name,
    tsr_jinja_value *ret) {
  if (of.kind == TSR_JINJA_UNDEFINED)
    return fail_undefined(r, location, of, " and has no attributes");
  if (of.kind == TSR_JINJA_LOOP && loop_attribute(of.loop, name, ret)) return true;
  bool has_items = of.kind == TSR_JINJA_DICT || of.kind == TSR_JINJA_NAMESPACE;
  const tsr_jinja_value *item = NULL;
  tsr_jinja_value key = tsr_jinja_bytes(name.bytes, name.length);
  if (has_items && !tsr_jinja_lookup(r, location, of.dict, key, &item)) return false;
  bool left_out;
  if (item && !tsr_jinja_find_method(of.kind, name, &left_out) && !left_out)
    return *ret = *item, true;
  return method_of(r, location, of, name, ret);
}

/* As Jinja's getitem: an item, else an attribute of that name. */
static bool item_of(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_value index,
    tsr_jinja_value *ret) {
  if (of.kind == TSR_JINJA_UNDEFINED) return fail_undefined(r, location, of, " and has no items");
  if (!tsr_jinja_item(r, location, of, index, ret)) return false;
  if (ret->kind != TSR_JINJA_UNDEFINED || index.kind != TSR_JINJA_STRING) return true;
  if (of.kind == TSR_JINJA_LOOP && loop_attribute(of.loop, index.string, ret)) return true;
  return method_of(r, location, of, index.string, ret);
}

/* ---- calls ---- */

static bool evaluate_arguments(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_arguments *a) {
  a->location = e->location;
  a->name = e->name;
  a->items = tsr_arena_array(r->arena, tsr_jinja_value, e->arguments_count + 1);
  a->named = tsr_arena_array(r->arena, tsr_jinja_entry, e->named_count + 1);
  for (int i = 0; i < e->arguments_count; i++)
    if (!tsr_jinja_evaluate(r, e->arguments[i], &a->items[a->count++])) return false;
  for (int i = 0; i < e->named_count; i++) {
    tsr_jinja_entry *n = &a->named[a->named_count++];
    n->key = tsr_jinja_bytes(e->named[i].name.bytes, e->named[i].name.length);
    if (!tsr_jinja_evaluate(r, e->named[i].value, &n->value)) return false;
  }
  return true;
}

static bool
call(tsr_jinja_run *r, tsr_jinja_value callee, tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  if (callee.kind == TSR_JINJA_LOOP) {
    a->self = callee;
    return callee.loop->again(r, a, ret);
  }
  if (callee.kind == TSR_JINJA_UNDEFINED)
    return fail_undefined(r, a->location, callee, " and cannot be called");
  if (callee.kind != TSR_JINJA_FUNCTION)
    return tsr_jinja_fail(r, a->location, "%s cannot be called", tsr_jinja_kind_name(callee.kind));
  const tsr_jinja_function *f = callee.function;
  a->self = f->macro ? callee : f->self;
  a->name = (tsr_jinja_string){f->name, (int64_t)strlen(f->name)};
  return f->native(r, a, ret);
}

static bool evaluate_call(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value callee;
  tsr_jinja_arguments a = {0};
  return tsr_jinja_evaluate(r, e->items[0], &callee) && evaluate_arguments(r, e, &a) &&
         call(r, callee, &a, ret);
}

bool tsr_jinja_apply_filters(
    tsr_jinja_run *r, const tsr_jinja_expr *e, const tsr_jinja_value *body, tsr_jinja_value *ret) {
  tsr_jinja_arguments a = {0};
  if (e->kind != TSR_JINJA_EXPR_FILTER) return tsr_jinja_evaluate(r, e, ret);
  tsr_jinja_native *native = tsr_jinja_find_filter(e->name);
  if (!native)
    return tsr_jinja_fail(
        r, e->location, "unknown filter '%.*s'", (int)e->name.length, e->name.bytes);
  if (!e->items[0]) a.self = *body;
  else if (!tsr_jinja_apply_filters(r, e->items[0], body, &a.self)) return false;
  return evaluate_arguments(r, e, &a) && tsr_jinja_count_steps(r, e->location, 1) &&
         native(r, &a, ret);
}

static bool evaluate_test(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_arguments a = {0};
  tsr_jinja_native *native = tsr_jinja_find_test(e->name);
  if (!native)
    return tsr_jinja_fail(
        r, e->location, "unknown test '%.*s'", (int)e->name.length, e->name.bytes);
  return tsr_jinja_evaluate(r, e->items[0], &a.self) && evaluate_arguments(r, e, &a) &&
         native(r, &a, ret);
}

/* ---- operators ---- */

static bool evaluate_unary(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value x;
  if (!tsr_jinja_evaluate(r, e->items[0], &x)) return false;
  if (e->name.length == 3) return *ret = tsr_jinja_bool(!tsr_jinja_is_true(x)), true;
  if (!tsr_jinja_is_number(x))
    return tsr_jinja_fail(
        r, e->location, "the operand of '%.*s' is %s", (int)e->name.length, e->name.bytes,
        tsr_jinja_kind_name(x.kind));
  bool minus = *e->name.bytes == '-';
  if (x.kind == TSR_JINJA_FLOAT) *ret = tsr_jinja_float(minus ? -x.number : x.number);
  else
    return tsr_jinja_binary(
        r, e->location, (tsr_jinja_string){minus ? "-" : "+", 1}, tsr_jinja_int(0), x, ret);
  return true;
}

static bool evaluate_binary(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value a, b;
  if (!tsr_jinja_evaluate(r, e->items[0], &a)) return false;
  if (e->name.length == 2 && !memcmp(e->name.bytes, "or", 2)) {
    if (tsr_jinja_is_true(a)) return *ret = a, true;
    return tsr_jinja_evaluate(r, e->items[1], ret);
  }
  if (e->name.length == 3) {
    if (!tsr_jinja_is_true(a)) return *ret = a, true;
    return tsr_jinja_evaluate(r, e->items[1], ret);
  }
  return tsr_jinja_evaluate(r, e->items[1], &b) &&
         tsr_jinja_binary(r, e->location, e->name, a, b, ret);
}

static bool evaluate_comparison(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value a, b;
  bool holds = true;
  if (!tsr_jinja_evaluate(r, e->items[0], &a)) return false;
  for (int i = 1; holds && i < e->items_count; i++, a = b)
    if (!tsr_jinja_evaluate(r, e->items[i], &b) ||
        !tsr_jinja_compare(r, e->location, e->names[i - 1], a, b, &holds))
      return false;
  return *ret = tsr_jinja_bool(holds), true;
}

static bool evaluate_concat(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_text text = {0};
  bool ok = true;
  for (int i = 0; ok && i < e->items_count; i++) {
    tsr_jinja_value v;
    ok = tsr_jinja_evaluate(r, e->items[i], &v);
    if (ok && !tsr_jinja_print(v, &text)) ok = tsr_jinja_fail(r, e->location, TSR_JINJA_TOO_DEEP);
  }
  ok = ok && tsr_jinja_count_bytes(r, e->location, (int64_t)text.length);
  *ret = tsr_jinja_take(r->arena, &text);
  return ok;
}

static bool evaluate_if(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value test;
  if (!tsr_jinja_evaluate(r, e->items[0], &test)) return false;
  if (tsr_jinja_is_true(test)) return tsr_jinja_evaluate(r, e->items[1], ret);
  if (e->items[2]) return tsr_jinja_evaluate(r, e->items[2], ret);
  return *ret = tsr_jinja_missing("the value of an 'if' without 'else'"), true;
}

static bool evaluate_items(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  *ret = tsr_jinja_new_list(
      r->arena, e->kind == TSR_JINJA_EXPR_LIST ? TSR_JINJA_LIST : TSR_JINJA_TUPLE);
  for (int i = 0; i < e->items_count; i++) {
    tsr_jinja_value v;
    if (!tsr_jinja_evaluate(r, e->items[i], &v)) return false;
    tsr_jinja_append(r->arena, ret->list, v);
  }
  return true;
}

static bool evaluate_dict(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  *ret = tsr_jinja_new_dict(r->arena, TSR_JINJA_DICT);
  for (int i = 0; i + 1 < e->items_count; i += 2) {
    tsr_jinja_value key, value;
    if (!tsr_jinja_evaluate(r, e->items[i], &key) ||
        !tsr_jinja_evaluate(r, e->items[i + 1], &value) ||
        !tsr_jinja_store(r, e->location, ret->dict, key, value))
      return false;
  }
  return true;
}

static bool evaluate_slice(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value of, parts[3];
  if (!tsr_jinja_evaluate(r, e->items[0], &of)) return false;
  for (int i = 0; i < 3; i++) {
    parts[i] = tsr_jinja_none();
    if (e->items[i + 1] && !tsr_jinja_evaluate(r, e->items[i + 1], &parts[i])) return false;
  }
  return tsr_jinja_slice(r, e->location, of, parts, ret);
}

static bool evaluate_node(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  tsr_jinja_value of, index;
  switch (e->kind) {
  case TSR_JINJA_EXPR_CONSTANT:
    return *ret = e->constant, true;
  case TSR_JINJA_EXPR_NAME:
    return find_name(r, e, ret);
  case TSR_JINJA_EXPR_LIST:
  case TSR_JINJA_EXPR_TUPLE:
    return evaluate_items(r, e, ret);
  case TSR_JINJA_EXPR_DICT:
    return evaluate_dict(r, e, ret);
  case TSR_JINJA_EXPR_UNARY:
    return evaluate_unary(r, e, ret);
  case TSR_JINJA_EXPR_BINARY:
    return evaluate_binary(r, e, ret);
  case TSR_JINJA_EXPR_COMPARE:
    return evaluate_comparison(r, e, ret);
  case TSR_JINJA_EXPR_CONCAT:
    return evaluate_concat(r, e, ret);
  case TSR_JINJA_EXPR_IF:
    return evaluate_if(r, e, ret);
  case TSR_JINJA_EXPR_SLICE:
    return evaluate_slice(r, e, ret);
  case TSR_JINJA_EXPR_CALL:
    return evaluate_call(r, e, ret);
  case TSR_JINJA_EXPR_FILTER:
    return tsr_jinja_apply_filters(r, e, NULL, ret);
  case TSR_JINJA_EXPR_TEST:
    return evaluate_test(r, e, ret);
  case TSR_JINJA_EXPR_ATTRIBUTE:
    return tsr_jinja_evaluate(r, e->items[0], &of) &&
           attribute_of(r, e->location, of, e->name, ret);
  case TSR_JINJA_EXPR_ITEM:
    return tsr_jinja_evaluate(r, e->items[0], &of) && tsr_jinja_evaluate(r, e->items[1], &index) &&
           item_of(r, e->location, of, index, ret);
  }
  return false;
}

bool tsr_jinja_evaluate(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret) {
  bool ok = tsr_jinja_count_steps(r, e->location, 1) && tsr_jinja_enter(r, e->location) &&
            evaluate_node(r, e, ret);
  tsr_jinja_leave(r);
  return ok;
}
