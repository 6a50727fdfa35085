// SPDX-License-Identifier: Apache-2.0
/* Expressions of graph files: parsed once from a YAML scalar, evaluated as often as blocks repeat.
 *
 * numbers, sizes, + - * / // % ( ), comparisons, and/or/not, `a if c else b`, min max ceil floor
 * sqrt log round_up(x, m) len(list) contains(list, x) index(list, x) where(list, x) list(i, n, e)
 * list[i], [a, b]. `a / b` of whole numbers that leaves a rest is
 * fine as long as the end result may be broken; where a whole number is needed, the error names
 * both numbers. docs/graph_files.md is the user's page. */
#ifndef TSR_MODEL_EXPR_H
#define TSR_MODEL_EXPR_H
#include "base/diag.h"
#include "config/yaml.h"

typedef enum {
  TSR_EXPR_NUMBER,
  TSR_EXPR_NAME,
  TSR_EXPR_LIST,
  TSR_EXPR_CALL,
  TSR_EXPR_INDEX, /* args: list, index */
  TSR_EXPR_UNARY,
  TSR_EXPR_BINARY,
  TSR_EXPR_IF /* args: then, condition, else */
} tsr_expr_kind;

typedef struct tsr_expr tsr_expr;
struct tsr_expr {
  tsr_expr_kind kind;
  tsr_location location; /* of its first byte, as long as its text where that is exact */
  const char *text;      /* as written */
  double number;
  const char *name; /* of NAME and CALL; the operator of UNARY and BINARY */
  tsr_location name_place;
  int count;
  tsr_expr **args;
  const char **keys; /* CALL: `key=` before an argument, or NULL */
  tsr_location *key_places;
  bool *words; /* CALL: whether an argument is a word (dp of axis=dp), and no expression */
};

/* Parts are nested at most 60 deep, and at most 1000 terms stand side by side. `calls` allows
 * `key=value` arguments (what a graph's statements are). Errors at their column. */
bool tsr_expr_parse(
    tsr_arena *arena, const tsr_yaml *node, bool calls, tsr_expr **ret_expr, tsr_diags *diags);
bool tsr_is_name(const char *text); /* letters, digits, _ and dots between them */
/* The place of `length` bytes at `offset` of a scalar's text, exact where the scalar stands in one
 * line. */
tsr_location tsr_scalar_place(const tsr_yaml *node, size_t offset, size_t length);

typedef enum { TSR_EVAL_NUMBER, TSR_EVAL_WORD, TSR_EVAL_LIST, TSR_EVAL_TERM } tsr_eval_kind;
typedef struct {
  tsr_eval_kind kind;
  double number;
  const char *word; /* WORD; TERM: its name, as in normal(0.02) */
  int count;        /* LIST, and the arguments of TERM */
  const double *list;
  const char *const *words; /* of a LIST of words, which has no `list`; else NULL */
} tsr_eval;

typedef struct {
  const char *name;
  tsr_eval value;
  bool bad;            /* already reported: expressions with it fail silently */
  const char *unknown; /* else why it has no value, for expressions with it; NULL: it has one */
  bool given;          /* by the user's model file, at `place` */
  bool is_read;        /* an expression has it */
  tsr_location location;
} tsr_name;

typedef struct {
  const char *name;
  int args_min, args_max;
} tsr_term;

/* What expressions may name. Loop variables are pushed and popped at the end. */
typedef struct {
  tsr_arena *arena;
  tsr_name *names;
  int count, capacity;
  const char **words; /* choices that some size may have, and axis names */
  int words_count, words_capacity;
  const tsr_term *terms; /* allowed where an initialisation or a placement is read, else NULL */
  int terms_count;
  int lists, items; /* calls of list() that are evaluated inside each other, and their items */
  struct {          /* the first division of the running evaluation that left a rest */
    const tsr_expr *expr;
    double left, right;
  } rest;
} tsr_scope;

void tsr_scope_push(tsr_scope *scope, const tsr_name *name);
void tsr_scope_push_number(tsr_scope *scope, const char *name, double number);
void tsr_scope_word(tsr_scope *scope, const char *word);
bool tsr_scope_has_word(const tsr_scope *scope, const char *word);
tsr_name *tsr_scope_find(const tsr_scope *scope, const char *name);

/* Whether an argument of a call without a name is an input: a name or a call. Anything else, and
 * True and False, is an attribute that goes by its position: transpose(x, 1, 2). */
bool tsr_expr_is_operand(const tsr_expr *e);
bool tsr_expr_eval(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret_value, tsr_diags *diags);
bool tsr_expr_number(const tsr_expr *e, tsr_scope *scope, double *ret_number, tsr_diags *diags);
/* A whole number of at least `min`; `what` names it in errors. */
bool tsr_expr_whole(
    const tsr_expr *e, tsr_scope *scope, const char *what, int64_t min, int64_t *ret_whole,
    tsr_diags *diags);
bool tsr_expr_true(const tsr_expr *e, tsr_scope *scope, bool *ret_true, tsr_diags *diags);
bool tsr_eval_equal(const tsr_eval *a, const tsr_eval *b);
/* For lists that hold whole numbers, at most `max` of them. */
bool tsr_expr_shape(
    const tsr_expr *e, tsr_scope *scope, const char *what, int64_t min, int max, int64_t *ret_shape,
    int *ret_ndim, tsr_diags *diags);
/* What a list of expressions calls its items: the words of each that is no plain number, else
 * NULL. */
void tsr_expr_dims(const tsr_expr *e, int max, const char **ret_dims);
/* "6", "0.5", "enabled", "[1, 2]". */
const char *tsr_eval_text(tsr_arena *arena, const tsr_eval *value);
/* Replaces {name} by its value; unknown names are errors at `place`. */
bool tsr_scope_fill(
    tsr_scope *scope, const char *text, tsr_location location, const char **ret_text,
    tsr_diags *diags);

#endif
