// SPDX-License-Identifier: Apache-2.0
/* Statements, their scopes, macros and loops. */
#include "jinja/run.h"
#include <string.h>

/* ---- assignment ---- */

static void assign_name(jinja_run *r, jinja_string name, jinja_value value) {
  jinja_set(r->arena, &r->scope->names, jinja_bytes(name.bytes, name.length), value);
}

static bool assign_attribute(jinja_run *r, const expr *target, jinja_value value) {
  jinja_value of;
  if (!run_evaluate(r, target->items[0], &of)) return false;
  if (of.kind != JINJA_NAMESPACE)
    return run_fail(
        r, target->location, "an attribute is set of %s, and only a namespace has such",
        jinja_kind_name(of.kind));
  jinja_set(r->arena, of.dict, jinja_bytes(target->name.bytes, target->name.length), value);
  return true;
}

static bool assign(jinja_run *r, const expr *target, jinja_value value) {
  if (target->kind == EXPR_NAME) return assign_name(r, target->name, value), true;
  if (target->kind == EXPR_ATTRIBUTE) return assign_attribute(r, target, value);
  jinja_list items = {0};
  if (!run_iterate(r, target->location, value, &items)) return false;
  if (items.count != target->items_count)
    return run_fail(
        r, target->location, "%d names are assigned, and there are %d values", target->items_count,
        items.count);
  bool ok = true;
  for (int i = 0; ok && i < items.count; i++) ok = assign(r, target->items[i], items.items[i]);
  return ok;
}

/* ---- texts of bodies ---- */

/* What a body writes, as a value. */
static bool capture(jinja_run *r, const block *b, jinja_value *ret) {
  tsr_text text = {0}, *outer = r->out;
  r->out = &text;
  bool ok = run_block(r, b);
  r->out = outer;
  *ret = jinja_take(r->arena, &text);
  return ok;
}

static bool print_value(jinja_run *r, tsr_location location, jinja_value v) {
  size_t before = r->out->length;
  if (!jinja_print(v, r->out)) return run_fail(r, location, "values are nested too deeply");
  return run_made(r, location, (int64_t)(r->out->length - before));
}

/* ---- macros ---- */

static bool bind_parameters(
    jinja_run *r, const stmt *s, const jinja_function *f, const jinja_arguments *a) {
  if (a->count > s->parameters_count)
    return run_fail(
        r, a->location, "'%s' takes %d arguments, not %d", f->name, s->parameters_count, a->count);
  for (int i = 0; i < s->parameters_count; i++) {
    const parameter *p = &s->parameters[i];
    const char *name = tsr_arena_strndup(r->arena, p->name.bytes, (size_t)p->name.length);
    const jinja_value *given = argument(a, i, name);
    jinja_value value = jinja_missing(name);
    if (given) value = *given;
    else if (p->value && !run_evaluate(r, p->value, &value)) return false;
    assign_name(r, p->name, value);
  }
  for (int i = 0; i < a->named_count; i++) {
    jinja_string name = a->named[i].key.string;
    bool known = jinja_is_text(a->named[i].key, "caller");
    if (known) assign_name(r, name, a->named[i].value);
    for (int k = 0; k < s->parameters_count && !known; k++)
      known = jinja_equal(
          a->named[i].key,
          jinja_bytes(s->parameters[k].name.bytes, s->parameters[k].name.length));
    if (!known)
      return run_fail(
          r, a->location, "'%s' has no parameter '%.*s'", f->name, (int)name.length, name.bytes);
  }
  return true;
}

bool run_macro(jinja_run *r, const jinja_function *f, const jinja_arguments *a, jinja_value *ret) {
  jinja_scope *outer = r->scope;
  if (!run_enter(r, a->location)) return run_leave(r), false;
  r->scope = run_new_scope(r, f->closure);
  bool ok = bind_parameters(r, f->macro, f, a) && capture(r, &f->macro->body, ret);
  r->scope = outer;
  run_leave(r);
  return ok;
}

static jinja_value new_macro(jinja_run *r, const stmt *s, const char *name) {
  jinja_function *f = tsr_arena_alloc(r->arena, sizeof *f);
  *f = (jinja_function){.name = name, .macro = s, .closure = r->scope};
  return (jinja_value){.kind = JINJA_FUNCTION, .function = f};
}

/* {% call f(…) %}: f has the body as `caller`. */
static bool run_call_block(jinja_run *r, const stmt *s) {
  expr call = *s->value, caller = {.kind = EXPR_CONSTANT, .location = s->location};
  jinja_value result;
  caller.constant = new_macro(r, s, "caller");
  call.named = tsr_arena_array(r->arena, named_argument, call.named_count + 1);
  if (call.named_count)
    memcpy(call.named, s->value->named, sizeof *call.named * (size_t)call.named_count);
  call.named[call.named_count++] = (named_argument){{"caller", 6}, &caller};
  return run_evaluate(r, &call, &result) && print_value(r, s->location, result);
}

/* ---- loops ---- */

/* The items for which the test of `for … if` holds. */
static bool filter_items(jinja_run *r, const stmt *s, jinja_list *items) {
  jinja_list kept = {0};
  jinja_scope *outer = r->scope;
  bool ok = true;
  for (int i = 0; ok && s->test && i < items->count; i++) {
    jinja_value holds;
    r->scope = run_new_scope(r, outer);
    ok = assign(r, s->target, items->items[i]) && run_evaluate(r, s->test, &holds);
    if (ok && jinja_is_true(holds)) jinja_append(r->arena, &kept, items->items[i]);
  }
  r->scope = outer;
  if (s->test) *items = kept;
  return ok;
}

static bool run_items(
    jinja_run *r, const stmt *s, const jinja_list *items, jinja_scope *closure, int depth) {
  jinja_scope *outer = r->scope;
  jinja_loop *loop = tsr_arena_alloc(r->arena, sizeof *loop);
  *loop = (jinja_loop){.items = items, .depth = depth, .body = s, .closure = closure};
  loop->changed = tsr_arena_alloc(r->arena, sizeof *loop->changed);
  bool ok = true;
  for (; ok && loop->index < items->count && r->flow != FLOW_BREAK; loop->index++) {
    r->flow = FLOW_ON;
    r->scope = run_new_scope(r, closure);
    jinja_value is = {.kind = JINJA_LOOP, .loop = loop};
    jinja_set(r->arena, &r->scope->names, jinja_text("loop"), is);
    ok = run_count(r, s->location, 1) && assign(r, s->target, items->items[loop->index]) &&
         run_block(r, &s->body);
  }
  r->flow = FLOW_ON;
  r->scope = outer;
  if (!ok || items->count || !s->otherwise.count) return ok;
  r->scope = run_new_scope(r, closure);
  ok = run_block(r, &s->otherwise);
  r->scope = outer;
  return ok;
}

static bool run_for(jinja_run *r, const stmt *s) {
  jinja_value of;
  jinja_list *items = tsr_arena_alloc(r->arena, sizeof *items);
  return run_evaluate(r, s->value, &of) && run_iterate(r, s->value->location, of, items) &&
         filter_items(r, s, items) && run_items(r, s, items, r->scope, 0);
}

bool run_loop_again(
    jinja_run *r, const jinja_loop *loop, const jinja_arguments *a, jinja_value *ret) {
  jinja_list *items = tsr_arena_alloc(r->arena, sizeof *items);
  if (!loop->body->recursive) return run_fail(r, a->location, "this loop is not recursive");
  if (a->count != 1) return run_fail(r, a->location, "'loop' takes one argument");
  if (!run_iterate(r, a->location, a->items[0], items) || !filter_items(r, loop->body, items))
    return false;
  tsr_text text = {0}, *outer = r->out;
  r->out = &text;
  bool ok = run_enter(r, a->location) &&
            run_items(r, loop->body, items, loop->closure, loop->depth + 1);
  run_leave(r);
  r->out = outer;
  *ret = jinja_take(r->arena, &text);
  return ok;
}

/* ---- the rest ---- */

static bool run_if(jinja_run *r, const stmt *s) {
  jinja_value test;
  if (!run_evaluate(r, s->value, &test)) return false;
  return run_block(r, jinja_is_true(test) ? &s->body : &s->otherwise);
}

static bool run_set(jinja_run *r, const stmt *s) {
  jinja_value value, body;
  if (s->value) return run_evaluate(r, s->value, &value) && assign(r, s->target, value);
  jinja_scope *outer = r->scope;
  r->scope = run_new_scope(r, outer);
  bool ok = capture(r, &s->body, &body);
  r->scope = outer;
  value = body;
  if (ok && s->filter) ok = run_filter(r, s->filter, &body, &value);
  return ok && assign(r, s->target, value);
}

static bool run_filter_block(jinja_run *r, const stmt *s) {
  jinja_value body, value;
  jinja_scope *outer = r->scope;
  r->scope = run_new_scope(r, outer);
  bool ok = capture(r, &s->body, &body);
  r->scope = outer;
  return ok && run_filter(r, s->filter, &body, &value) && print_value(r, s->location, value);
}

static bool run_with(jinja_run *r, const stmt *s) {
  jinja_scope *outer = r->scope, *inner = run_new_scope(r, outer);
  bool ok = true;
  for (int i = 0; ok && i < s->parameters_count; i++) {
    jinja_value value;
    jinja_string name = s->parameters[i].name;
    if ((ok = run_evaluate(r, s->parameters[i].value, &value)))
      jinja_set(r->arena, &inner->names, jinja_bytes(name.bytes, name.length), value);
  }
  r->scope = inner;
  ok = ok && run_block(r, &s->body);
  r->scope = outer;
  return ok;
}

/* Only what goes to the output directly has a place there. */
static bool run_generation(jinja_run *r, const stmt *s) {
  tsr_jinja_output *o = r->output;
  if (r->out != &o->text)
    return run_fail(
        r, s->location, "'generation' is within a macro or a body whose text is used as a value");
  int64_t begin = (int64_t)o->text.length;
  jinja_scope *outer = r->scope;
  r->scope = run_new_scope(r, outer);
  bool ok = run_block(r, &s->body);
  r->scope = outer;
  if (!ok) return false;
  tsr_arena_grow(
      r->arena, (void **)&o->spans, sizeof *o->spans, o->spans_count, &r->spans_capacity);
  o->spans[o->spans_count++] = (tsr_jinja_span){begin, (int64_t)o->text.length};
  return true;
}

static bool run_statement(jinja_run *r, const stmt *s) {
  jinja_value v;
  switch (s->kind) {
  case STMT_TEXT:
    tsr_text_add_bytes(r->out, s->text.bytes, (size_t)s->text.length);
    return run_made(r, s->location, s->text.length);
  case STMT_PRINT: return run_evaluate(r, s->value, &v) && print_value(r, s->location, v);
  case STMT_IF: return run_if(r, s);
  case STMT_FOR: return run_for(r, s);
  case STMT_SET: return run_set(r, s);
  case STMT_MACRO:
    assign_name(
        r, s->name,
        new_macro(r, s, tsr_arena_strndup(r->arena, s->name.bytes, (size_t)s->name.length)));
    return true;
  case STMT_CALL: return run_call_block(r, s);
  case STMT_FILTER: return run_filter_block(r, s);
  case STMT_WITH: return run_with(r, s);
  case STMT_BREAK: return r->flow = FLOW_BREAK, true;
  case STMT_CONTINUE: return r->flow = FLOW_CONTINUE, true;
  case STMT_GENERATION: return run_generation(r, s);
  }
  return false;
}

bool run_block(jinja_run *r, const block *b) {
  bool ok = true;
  for (int i = 0; ok && i < b->count && r->flow == FLOW_ON; i++)
    ok = run_count(r, b->items[i]->location, 1) && run_statement(r, b->items[i]);
  return ok;
}
