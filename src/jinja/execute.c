// SPDX-License-Identifier: Apache-2.0
/* Statements, their scopes, macros and loops. */
#include "jinja/run.h"
#include <string.h>

/* ---- assignment ---- */

/* Unlimited nesting takes a loop, and a loop keeps values in a namespace. */
enum { NESTING_MAX = 1000 };

static bool
assign_name(tsr_jinja_run *r, tsr_location location, tsr_jinja_string name, tsr_jinja_value value) {
  return tsr_jinja_store(
      r, location, &r->scope->names, tsr_jinja_bytes(name.bytes, name.length), value);
}

static bool
assign_attribute(tsr_jinja_run *r, const tsr_jinja_expr *target, tsr_jinja_value value) {
  tsr_jinja_value of;
  if (!tsr_jinja_evaluate(r, target->items[0], &of)) return false;
  if (of.kind != TSR_JINJA_NAMESPACE)
    return tsr_jinja_fail(
        r, target->location, "attributes of %s cannot be set; a namespace has such attributes",
        tsr_jinja_kind_name(of.kind));
  if (*target->name.bytes == '_')
    return tsr_jinja_fail(
        r, target->location, "names in a namespace should not begin with an underscore");
  if (tsr_jinja_depth(value) > NESTING_MAX)
    return tsr_jinja_fail(
        r, target->location, "this value is nested more than %d levels deep", NESTING_MAX);
  return tsr_jinja_store(
      r, target->location, of.dict, tsr_jinja_bytes(target->name.bytes, target->name.length),
      value);
}

static bool assign(tsr_jinja_run *r, const tsr_jinja_expr *target, tsr_jinja_value value) {
  if (target->kind == TSR_JINJA_EXPR_NAME)
    return assign_name(r, target->location, target->name, value);
  if (target->kind == TSR_JINJA_EXPR_ATTRIBUTE) return assign_attribute(r, target, value);
  tsr_jinja_list items = {0};
  if (!tsr_jinja_iterate(r, target->location, value, &items)) return false;
  if (items.count != target->items_count)
    return tsr_jinja_fail(
        r, target->location, "%d values are needed to assign these names, not %d",
        target->items_count, items.count);
  bool ok = true;
  for (int i = 0; ok && i < items.count; i++) ok = assign(r, target->items[i], items.items[i]);
  return ok;
}

/* ---- the text of a body ---- */

/* The text of a body, as a value. */
static bool capture(tsr_jinja_run *r, const tsr_jinja_block *b, tsr_jinja_value *ret) {
  tsr_text text = {0}, *outer = r->out;
  r->out = &text;
  bool ok = tsr_jinja_run_block(r, b);
  r->out = outer;
  *ret = tsr_jinja_take(r->arena, &text);
  return ok;
}

static bool print_value(tsr_jinja_run *r, tsr_location location, tsr_jinja_value v) {
  size_t before = r->out->length;
  if (!tsr_jinja_print(v, r->out)) return tsr_jinja_fail(r, location, TSR_JINJA_TOO_DEEP);
  return tsr_jinja_count_bytes(r, location, (int64_t)(r->out->length - before));
}

/* ---- macros ---- */

static bool bind_parameters(
    tsr_jinja_run *r, const tsr_jinja_stmt *s, const tsr_jinja_function *f,
    const tsr_jinja_arguments *a) {
  if (a->count > s->parameters_count)
    return tsr_jinja_fail(
        r, a->location, "'%s' has %d parameters, not %d", f->name, s->parameters_count, a->count);
  for (int i = 0; i < s->parameters_count; i++) {
    const tsr_jinja_parameter *p = &s->parameters[i];
    const char *name = tsr_arena_strndup(r->arena, p->name.bytes, (size_t)p->name.length);
    const tsr_jinja_value *given = tsr_jinja_argument(a, i, name);
    tsr_jinja_value value = tsr_jinja_missing(name);
    if (given) value = *given;
    else if (p->value && !tsr_jinja_evaluate(r, p->value, &value)) return false;
    if (!assign_name(r, a->location, p->name, value)) return false;
  }
  for (int i = 0; i < a->named_count; i++) {
    tsr_jinja_string name = a->named[i].key.string;
    bool known = tsr_jinja_is_text(a->named[i].key, "caller");
    if (known && !assign_name(r, a->location, name, a->named[i].value)) return false;
    for (int k = 0; k < s->parameters_count && !known; k++) {
      tsr_jinja_string other = s->parameters[k].name;
      if (!tsr_jinja_same(
              r, a->location, a->named[i].key, tsr_jinja_bytes(other.bytes, other.length), &known))
        return false;
    }
    if (!known)
      return tsr_jinja_fail(
          r, a->location, "'%s' has no parameter '%.*s'", f->name, (int)name.length, name.bytes);
  }
  return true;
}

static bool call_macro(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_function *f = a->self.function;
  tsr_jinja_scope *outer = r->scope;
  r->scope = tsr_jinja_new_scope(r, f->closure);
  r->scope->is_macro = true;
  bool ok = bind_parameters(r, f->macro, f, a) && capture(r, &f->macro->body, ret);
  r->scope = outer;
  return ok;
}

static tsr_jinja_value new_macro(tsr_jinja_run *r, const tsr_jinja_stmt *s, const char *name) {
  tsr_jinja_function *f = tsr_arena_alloc(r->arena, sizeof *f);
  *f = (tsr_jinja_function){.name = name, .native = call_macro, .macro = s, .closure = r->scope};
  return (tsr_jinja_value){.kind = TSR_JINJA_FUNCTION, .function = f};
}

/* {% call f(…) %}: f has the body as `caller`. */
static bool run_call_block(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_expr call = *s->value,
                 caller = {.kind = TSR_JINJA_EXPR_CONSTANT, .location = s->location};
  tsr_jinja_value result;
  caller.constant = new_macro(r, s, "caller");
  call.named = tsr_arena_array(r->arena, tsr_jinja_named_argument, call.named_count + 1);
  if (call.named_count)
    memcpy(call.named, s->value->named, sizeof *call.named * (size_t)call.named_count);
  call.named[call.named_count++] = (tsr_jinja_named_argument){{"caller", 6}, &caller};
  return tsr_jinja_evaluate(r, &call, &result) && print_value(r, s->location, result);
}

/* ---- loops ---- */

/* The items for which the test of `for … if` holds. */
static bool filter_items(tsr_jinja_run *r, const tsr_jinja_stmt *s, tsr_jinja_list *items) {
  tsr_jinja_list kept = {0};
  tsr_jinja_scope *outer = r->scope;
  bool ok = true;
  for (int i = 0; ok && s->test && i < items->count; i++) {
    tsr_jinja_value holds;
    r->scope = tsr_jinja_new_scope(r, outer);
    ok = assign(r, s->target, items->items[i]) && tsr_jinja_evaluate(r, s->test, &holds);
    if (ok && tsr_jinja_is_true(holds)) tsr_jinja_append(r->arena, &kept, items->items[i]);
  }
  r->scope = outer;
  if (s->test) *items = kept;
  return ok;
}

/* Only text that goes to the output itself has a place there. */
static void record_written(tsr_jinja_run *r, tsr_jinja_value item, size_t begin) {
  tsr_jinja_output *o = r->output;
  if (item.kind != TSR_JINJA_DICT || !item.dict->label || r->out != &o->text ||
      begin == o->text.length)
    return;
  tsr_arena_grow(
      r->arena, (void **)&o->written, sizeof *o->written, o->written_count, &r->written_capacity);
  o->written[o->written_count++] =
      (tsr_jinja_written){item.dict->label, (int64_t)begin, (int64_t)o->text.length};
}

static tsr_jinja_native call_loop;

static bool run_items(
    tsr_jinja_run *r, const tsr_jinja_stmt *s, const tsr_jinja_list *items,
    tsr_jinja_scope *closure, int depth) {
  tsr_jinja_scope *outer = r->scope;
  tsr_jinja_loop *loop = tsr_arena_alloc(r->arena, sizeof *loop);
  *loop = (tsr_jinja_loop){
      .items = items, .depth = depth, .body = s, .closure = closure, .again = call_loop};
  loop->changed = tsr_arena_alloc(r->arena, sizeof *loop->changed);
  bool ok = true;
  for (; ok && loop->index < items->count && r->flow != TSR_JINJA_FLOW_BREAK; loop->index++) {
    r->flow = TSR_JINJA_FLOW_ON;
    r->scope = tsr_jinja_new_scope(r, closure);
    tsr_jinja_value is = {.kind = TSR_JINJA_LOOP, .loop = loop}, item = items->items[loop->index];
    size_t begin = r->out->length;
    tsr_jinja_set(r->arena, &r->scope->names, tsr_jinja_text("loop"), is);
    ok = tsr_jinja_count_steps(r, s->location, 1) && assign(r, s->target, item) &&
         tsr_jinja_run_block(r, &s->body);
    record_written(r, item, begin);
  }
  r->flow = TSR_JINJA_FLOW_ON;
  r->scope = outer;
  if (!ok || items->count || !s->otherwise.count) return ok;
  r->scope = tsr_jinja_new_scope(r, closure);
  ok = tsr_jinja_run_block(r, &s->otherwise);
  r->scope = outer;
  return ok;
}

static bool run_for(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_value of;
  tsr_jinja_list *items = tsr_arena_alloc(r->arena, sizeof *items);
  return tsr_jinja_evaluate(r, s->value, &of) &&
         tsr_jinja_iterate(r, s->value->location, of, items) && filter_items(r, s, items) &&
         run_items(r, s, items, r->scope, 0);
}

/* loop(items) of a recursive loop. */
static bool call_loop(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_loop *loop = a->self.loop;
  tsr_jinja_list *items = tsr_arena_alloc(r->arena, sizeof *items);
  if (!loop->body->recursive)
    return tsr_jinja_fail(r, a->location, "this loop is not declared 'recursive'");
  if (a->count != 1) return tsr_jinja_fail(r, a->location, "'loop' needs one argument");
  if (!tsr_jinja_iterate(r, a->location, a->items[0], items) || !filter_items(r, loop->body, items))
    return false;
  tsr_text text = {0}, *outer = r->out;
  r->out = &text;
  bool ok = run_items(r, loop->body, items, loop->closure, loop->depth + 1);
  r->out = outer;
  *ret = tsr_jinja_take(r->arena, &text);
  return ok;
}

/* ---- other statements ---- */

static bool run_if(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_value test;
  if (!tsr_jinja_evaluate(r, s->value, &test)) return false;
  return tsr_jinja_run_block(r, tsr_jinja_is_true(test) ? &s->body : &s->otherwise);
}

static bool run_set(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_value value, body;
  if (s->value) return tsr_jinja_evaluate(r, s->value, &value) && assign(r, s->target, value);
  tsr_jinja_scope *outer = r->scope;
  r->scope = tsr_jinja_new_scope(r, outer);
  bool ok = capture(r, &s->body, &body);
  r->scope = outer;
  value = body;
  if (ok && s->filter) ok = tsr_jinja_apply_filters(r, s->filter, &body, &value);
  return ok && assign(r, s->target, value);
}

static bool run_filter_block(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_value body, value;
  tsr_jinja_scope *outer = r->scope;
  r->scope = tsr_jinja_new_scope(r, outer);
  bool ok = capture(r, &s->body, &body);
  r->scope = outer;
  if (!ok || !tsr_jinja_apply_filters(r, s->filter, &body, &value)) return false;
  if (value.kind != TSR_JINJA_STRING)
    return tsr_jinja_fail(
        r, s->location, "the filters of a filter block should give a string, not %s",
        tsr_jinja_kind_name(value.kind));
  return print_value(r, s->location, value);
}

static bool run_with(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_scope *outer = r->scope, *inner = tsr_jinja_new_scope(r, outer);
  bool ok = true;
  for (int i = 0; ok && i < s->parameters_count; i++) {
    tsr_jinja_value value;
    tsr_jinja_string name = s->parameters[i].name;
    ok = tsr_jinja_evaluate(r, s->parameters[i].value, &value) &&
         tsr_jinja_store(
             r, s->location, &inner->names, tsr_jinja_bytes(name.bytes, name.length), value);
  }
  r->scope = inner;
  ok = ok && tsr_jinja_run_block(r, &s->body);
  r->scope = outer;
  return ok;
}

/* Text of a macro or of a captured body has no position in the output yet. */
static bool run_generation(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_output *o = r->output;
  if (r->out != &o->text)
    return tsr_jinja_fail(
        r, s->location,
        "'generation' is not supported in a macro or in a body whose text is a value");
  int64_t begin = (int64_t)o->text.length;
  tsr_jinja_scope *outer = r->scope;
  r->scope = tsr_jinja_new_scope(r, outer);
  bool ok = tsr_jinja_run_block(r, &s->body);
  r->scope = outer;
  if (!ok) return false;
  tsr_arena_grow(
      r->arena, (void **)&o->spans, sizeof *o->spans, o->spans_count, &r->spans_capacity);
  o->spans[o->spans_count++] = (tsr_jinja_span){begin, (int64_t)o->text.length};
  return true;
}

static bool run_statement(tsr_jinja_run *r, const tsr_jinja_stmt *s) {
  tsr_jinja_value v;
  switch (s->kind) {
  case TSR_JINJA_STMT_TEXT:
    tsr_text_add_bytes(r->out, s->text.bytes, (size_t)s->text.length);
    return tsr_jinja_count_bytes(r, s->location, s->text.length);
  case TSR_JINJA_STMT_PRINT:
    return tsr_jinja_evaluate(r, s->value, &v) && print_value(r, s->value->location, v);
  case TSR_JINJA_STMT_IF:
    return run_if(r, s);
  case TSR_JINJA_STMT_FOR:
    return run_for(r, s);
  case TSR_JINJA_STMT_SET:
    return run_set(r, s);
  case TSR_JINJA_STMT_MACRO:
    v = new_macro(r, s, tsr_arena_strndup(r->arena, s->name.bytes, (size_t)s->name.length));
    return assign_name(r, s->location, s->name, v);
  case TSR_JINJA_STMT_CALL:
    return run_call_block(r, s);
  case TSR_JINJA_STMT_FILTER:
    return run_filter_block(r, s);
  case TSR_JINJA_STMT_WITH:
    return run_with(r, s);
  case TSR_JINJA_STMT_BREAK:
    return r->flow = TSR_JINJA_FLOW_BREAK, true;
  case TSR_JINJA_STMT_CONTINUE:
    return r->flow = TSR_JINJA_FLOW_CONTINUE, true;
  case TSR_JINJA_STMT_GENERATION:
    return run_generation(r, s);
  }
  return false;
}

bool tsr_jinja_run_block(tsr_jinja_run *r, const tsr_jinja_block *b) {
  bool ok = !b->count || tsr_jinja_enter(r, b->items[0]->location);
  for (int i = 0; ok && i < b->count && r->flow == TSR_JINJA_FLOW_ON; i++)
    ok = tsr_jinja_count_steps(r, b->items[i]->location, 1) && run_statement(r, b->items[i]);
  if (b->count) tsr_jinja_leave(r);
  return ok;
}
