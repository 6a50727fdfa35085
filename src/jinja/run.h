// SPDX-License-Identifier: Apache-2.0
/* Shared by the parts of the interpreter. */
#ifndef TSR_JINJA_RUN_H
#define TSR_JINJA_RUN_H
#include "jinja/render.h"
#include "jinja/tree.h"

/* Names of a template, a loop's body, a macro's; the outer ones are read, not written. */
typedef struct jinja_scope {
  struct jinja_scope *outer;
  jinja_dict names;
} jinja_scope;

typedef enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } jinja_flow;

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_jinja_limits limits;
  tsr_jinja_output *output;
  tsr_text *out; /* what is being written: the output's text, or that of a macro, a set block … */
  jinja_scope *scope;
  jinja_flow flow;
  int64_t steps, made; /* bytes of texts */
  int depth;
  int spans_capacity;
  bool failed;
} jinja_run;

/* The first error alone; false, for callers to return. */
bool run_fail(jinja_run *r, tsr_location location, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Counts work; false: an error, the limit is reached. */
bool run_count(jinja_run *r, tsr_location location, int64_t steps);
bool run_made(jinja_run *r, tsr_location location, int64_t bytes);
bool run_enter(jinja_run *r, tsr_location location);
void run_leave(jinja_run *r);

/* What a function, a method, a filter or a test is called with. */
typedef struct {
  tsr_location location;
  jinja_string name;
  jinja_value self; /* of a method its object, of a filter and a test what stands before it */
  jinja_value *items;
  int count;
  jinja_entry *named;
  int named_count;
} jinja_arguments;

typedef bool jinja_native(jinja_run *r, const jinja_arguments *a, jinja_value *ret);

/* One of: native code, with its object; a macro or the body of a call. */
struct jinja_function {
  const char *name;
  jinja_native *native;
  jinja_value self;
  const stmt *macro;
  jinja_scope *closure;
};

struct jinja_loop {
  const jinja_list *items;
  int64_t index; /* from 0 */
  int depth;     /* of recursion, from 0 */
  const stmt *body;
  jinja_scope *closure;
  jinja_list *changed; /* what `loop.changed` was given last */
};

/* Argument `index`, or that of the name; NULL: not given. */
const jinja_value *argument(const jinja_arguments *a, int index, const char *name);
/* Whether there are no more than `most` without names, and no names but these (NULL at the end). */
bool arguments_are(
    jinja_run *r, const jinja_arguments *a, int most, const char *const *names);
bool argument_text(
    jinja_run *r, const jinja_arguments *a, int index, const char *name, jinja_string *ret);

/* ---- evaluate.c ---- */
bool run_evaluate(jinja_run *r, const expr *e, jinja_value *ret);
/* A filter or its chain; the innermost one filters `body` where it has no operand. */
bool run_filter(jinja_run *r, const expr *e, const jinja_value *body, jinja_value *ret);
bool run_call(jinja_run *r, jinja_value callee, const jinja_arguments *a, jinja_value *ret);
jinja_scope *run_new_scope(jinja_run *r, jinja_scope *outer);
/* Names and values of a list, of a dict's keys, of a string's code points; false: an error. */
bool run_iterate(
    jinja_run *r, tsr_location location, jinja_value of, jinja_list *ret_items);

/* ---- execute.c ---- */
bool run_block(jinja_run *r, const block *b);
/* A macro's text. */
bool run_macro(
    jinja_run *r, const jinja_function *f, const jinja_arguments *a, jinja_value *ret);
/* `loop(items)` of a recursive loop. */
bool run_loop_again(
    jinja_run *r, const jinja_loop *loop, const jinja_arguments *a, jinja_value *ret);

/* ---- operators.c ---- */
bool run_binary(
    jinja_run *r, tsr_location location, jinja_string op, jinja_value a, jinja_value b,
    jinja_value *ret);
bool run_compare(
    jinja_run *r, tsr_location location, jinja_string op, jinja_value a, jinja_value b,
    bool *ret);
bool run_item(
    jinja_run *r, tsr_location location, jinja_value of, jinja_value index, jinja_value *ret);
/* Of parts each may be none. */
bool run_slice(
    jinja_run *r, tsr_location location, jinja_value of, const jinja_value parts[3],
    jinja_value *ret);

/* ---- tables by name; NULL: there is none ---- */
jinja_native *jinja_find_filter(jinja_string name);
jinja_native *jinja_find_test(jinja_string name);
jinja_native *jinja_find_global(jinja_string name);
/* A method of a kind's values; `ret_forbidden`: it is Python's, but would change its object. */
jinja_native *jinja_find_method(jinja_kind kind, jinja_string name, bool *ret_forbidden);
typedef struct {
  const char *name;
  jinja_native *native;
} jinja_named;
jinja_native *jinja_find_in(const jinja_named *table, int count, jinja_string name);

/* ---- to_json.c ---- */
typedef struct {
  int indent; /* below 0: one line */
  const char *item_separator, *key_separator;
  bool sort_keys, ascii;
} jinja_json_style;
bool jinja_write_json(
    jinja_run *r, tsr_location location, jinja_value v, const jinja_json_style *style,
    tsr_text *text);

#endif
