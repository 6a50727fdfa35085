// SPDX-License-Identifier: Apache-2.0
/* What the files of the interpreter share. */
#ifndef TSR_JINJA_RUN_H
#define TSR_JINJA_RUN_H
#include "jinja/render.h"
#include "jinja/tree.h"

/* The names of a template, of a loop's body, of a macro; the outer ones are read, not written. */
typedef struct tsr_jinja_scope {
  struct tsr_jinja_scope *outer;
  bool is_macro; /* of a macro's body */
  tsr_jinja_dict names;
} tsr_jinja_scope;

typedef enum { TSR_JINJA_FLOW_ON, TSR_JINJA_FLOW_BREAK, TSR_JINJA_FLOW_CONTINUE } tsr_jinja_flow;

/* One rendering. */
typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_jinja_limits limits;
  tsr_jinja_output *output;
  tsr_text *out; /* the text that is being written: the output's, a macro's, a set block's … */
  tsr_jinja_scope *scope;
  tsr_jinja_flow flow;
  int64_t steps, bytes; /* of all texts so far */
  int depth;
  int spans_capacity, written_capacity;
  bool failed;
} tsr_jinja_run;

/* ---- run.c ---- */

/* Adds the first error of a rendering; returns false. */
bool tsr_jinja_fail(tsr_jinja_run *r, tsr_location location, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define TSR_JINJA_TOO_DEEP "this value has no text, or is nested too deeply"
/* Count towards the limits. False: a limit is reached, or the rendering has failed. */
bool tsr_jinja_count_steps(tsr_jinja_run *r, tsr_location location, int64_t steps);
bool tsr_jinja_count_bytes(tsr_jinja_run *r, tsr_location location, int64_t bytes);
/* tsr_jinja_get, tsr_jinja_put, tsr_jinja_equal and tsr_jinja_order, whose steps count. False: as
 * above; tsr_jinja_ranked also where two values have no order. */
bool tsr_jinja_lookup(
    tsr_jinja_run *r, tsr_location location, const tsr_jinja_dict *dict, tsr_jinja_value key,
    const tsr_jinja_value **ret_found);
bool tsr_jinja_store(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_dict *dict, tsr_jinja_value key,
    tsr_jinja_value value);
bool tsr_jinja_same(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value a, tsr_jinja_value b, bool *ret_same);
bool tsr_jinja_ranked(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value a, tsr_jinja_value b, int *ret_order);
/* Enters a level of nesting, which tsr_jinja_leave ends. False: an error, there are too many. */
bool tsr_jinja_enter(tsr_jinja_run *r, tsr_location location);
void tsr_jinja_leave(tsr_jinja_run *r);
tsr_jinja_scope *tsr_jinja_new_scope(tsr_jinja_run *r, tsr_jinja_scope *outer);
/* Items of a sequence, keys of a dict, code points of a string. Consumes an iterator. */
bool tsr_jinja_iterate(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_list *ret_items);

/* The arguments of a function, a method, a filter or a test. */
typedef struct {
  tsr_location location;
  tsr_jinja_string name;
  tsr_jinja_value self; /* of a method its object; of a filter and a test its operand */
  tsr_jinja_value *items;
  int count;
  tsr_jinja_entry *named;
  int named_count;
} tsr_jinja_arguments;

/* Positional argument `index`, or the argument of that name. NULL: it was not given. */
const tsr_jinja_value *
tsr_jinja_argument(const tsr_jinja_arguments *a, int index, const char *name);
/* Whether there are at most `most` positional arguments, and no other names than these (a list that
 * ends with NULL). */
bool tsr_jinja_check_arguments(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, int most, const char *const *names);
/* An argument that must be a string. */
bool tsr_jinja_argument_text(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, int index, const char *name,
    tsr_jinja_string *ret);

/* ---- functions ---- */

typedef bool tsr_jinja_native(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret);

struct tsr_jinja_function {
  const char *name;
  tsr_jinja_native *native;
  tsr_jinja_value self;        /* of a method its object; of a macro the macro */
  const tsr_jinja_stmt *macro; /* of a macro */
  tsr_jinja_scope *closure;
};

struct tsr_jinja_loop {
  const tsr_jinja_list *items;
  int64_t index; /* from 0 */
  int depth;     /* of recursion, from 0 */
  const tsr_jinja_stmt *body;
  tsr_jinja_scope *closure;
  tsr_jinja_native *again; /* loop(items) */
  struct {
    tsr_jinja_list values;
    bool is_set;
  } * changed; /* the arguments of the last loop.changed */
};

/* A table from names to native functions. */
typedef struct {
  const char *name;
  tsr_jinja_native *native;
} tsr_jinja_named;
tsr_jinja_native *
tsr_jinja_find_named(const tsr_jinja_named *table, int count, tsr_jinja_string name);

/* NULL: there is none. */
tsr_jinja_native *tsr_jinja_find_filter(tsr_jinja_string name);
tsr_jinja_native *tsr_jinja_find_test(tsr_jinja_string name);
tsr_jinja_native *tsr_jinja_find_global(tsr_jinja_string name);
tsr_jinja_native *tsr_jinja_find_string_method(tsr_jinja_string name);
/* A method of the kind's values; `ret_left_out`: Python has it, and this interpreter has not. */
tsr_jinja_native *
tsr_jinja_find_method(tsr_jinja_kind kind, tsr_jinja_string name, bool *ret_left_out);

/* ---- evaluate.c, execute.c ---- */

bool tsr_jinja_evaluate(tsr_jinja_run *r, const tsr_jinja_expr *e, tsr_jinja_value *ret);
/* A chain of filters; the innermost one filters `body` if it has no operand. */
bool tsr_jinja_apply_filters(
    tsr_jinja_run *r, const tsr_jinja_expr *e, const tsr_jinja_value *body, tsr_jinja_value *ret);
bool tsr_jinja_run_block(tsr_jinja_run *r, const tsr_jinja_block *b);

/* ---- operators.c ---- */

bool tsr_jinja_binary(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_string op, tsr_jinja_value a,
    tsr_jinja_value b, tsr_jinja_value *ret);
bool tsr_jinja_compare(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_string op, tsr_jinja_value a,
    tsr_jinja_value b, bool *ret);
/* Undefined where there is no such item. */
bool tsr_jinja_item(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_value index,
    tsr_jinja_value *ret);
/* of[parts[0]:parts[1]:parts[2]]; none stands for a part that was not given. */
bool tsr_jinja_slice(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, const tsr_jinja_value parts[3],
    tsr_jinja_value *ret);

/* ---- strings.c ---- */

typedef enum { TSR_JINJA_LOWER, TSR_JINJA_UPPER, TSR_JINJA_TITLE } tsr_jinja_case;

/* A string as it is, another value as its text. */
bool tsr_jinja_text_of(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value v, tsr_jinja_value *ret);
/* The code point at byte `at`, and the offset of the next one. */
uint32_t tsr_jinja_code_point(tsr_jinja_string s, int64_t at, int64_t *ret_end);
bool tsr_jinja_is_space(uint32_t code);
bool tsr_jinja_ends_line(uint32_t code); /* for str.splitlines */
/* Without the characters of a set (NULL: white space) at its ends. */
tsr_jinja_string
tsr_jinja_stripped(tsr_jinja_string s, const tsr_jinja_string *set, bool left, bool right);
/* Appends a code point in that case. */
bool tsr_jinja_add_case(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, uint32_t code, tsr_jinja_case to,
    tsr_text *text);
/* Appends a string as HTML text; one that is marked is that already. */
void tsr_jinja_add_escaped(tsr_jinja_value v, tsr_text *text);
bool tsr_jinja_join(
    tsr_jinja_run *r, tsr_location location, const tsr_jinja_list *items, tsr_jinja_value by,
    tsr_jinja_value *ret);
/* Filters and methods of one meaning. */
tsr_jinja_native tsr_jinja_strip, tsr_jinja_lstrip, tsr_jinja_rstrip, tsr_jinja_upper,
    tsr_jinja_lower, tsr_jinja_capitalize, tsr_jinja_replace;

/* ---- filters_list.c, methods.c ---- */

tsr_jinja_native tsr_jinja_filter_dictsort, tsr_jinja_filter_first, tsr_jinja_filter_items,
    tsr_jinja_filter_join, tsr_jinja_filter_last, tsr_jinja_filter_list, tsr_jinja_filter_max,
    tsr_jinja_filter_min, tsr_jinja_filter_reject, tsr_jinja_filter_rejectattr,
    tsr_jinja_filter_reverse, tsr_jinja_filter_select, tsr_jinja_filter_selectattr,
    tsr_jinja_filter_sort, tsr_jinja_filter_sum, tsr_jinja_filter_unique;
/* The item at a path "a.b.0" within `item`. */
bool tsr_jinja_at_path(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value item, tsr_jinja_string path,
    tsr_jinja_value *ret);
/* Appends (key, value) of each entry. */
bool tsr_jinja_dict_items(
    tsr_jinja_run *r, tsr_location location, const tsr_jinja_dict *dict, tsr_jinja_list *to);

/* ---- to_json.c ---- */

typedef struct {
  int indent;                                 /* below 0: one line */
  const char *item_separator, *key_separator; /* NULL: json.dumps's */
  bool sort_keys, ascii;
} tsr_jinja_json_style;
bool tsr_jinja_write_json(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value v, const tsr_jinja_json_style *style,
    tsr_text *text);

#endif
