// SPDX-License-Identifier: Apache-2.0
/* The syntax tree of a template. All of it is in the arena of the template. */
#ifndef TSR_JINJA_TREE_H
#define TSR_JINJA_TREE_H
#include "base/diag.h"
#include "jinja/value.h"

typedef enum {
  TSR_JINJA_EXPR_CONSTANT,
  TSR_JINJA_EXPR_NAME,
  TSR_JINJA_EXPR_LIST,
  TSR_JINJA_EXPR_TUPLE,
  TSR_JINJA_EXPR_DICT,    /* items: key, value, key, value, … */
  TSR_JINJA_EXPR_UNARY,   /* name: "-", "+", "not" */
  TSR_JINJA_EXPR_BINARY,  /* name: an operator of arithmetic, "and", "or" */
  TSR_JINJA_EXPR_COMPARE, /* items[0] names[0] items[1] names[1] … */
  TSR_JINJA_EXPR_CONCAT,  /* items ~ items … */
  TSR_JINJA_EXPR_IF,      /* items: test, value, and the other value or NULL */
  TSR_JINJA_EXPR_ATTRIBUTE,
  TSR_JINJA_EXPR_ITEM,  /* items[0] [items[1]] */
  TSR_JINJA_EXPR_SLICE, /* items[0] [items[1] : items[2] : items[3]], each or NULL */
  TSR_JINJA_EXPR_CALL,  /* items[0] is called */
  TSR_JINJA_EXPR_FILTER,
  TSR_JINJA_EXPR_TEST /* items[0] is name(…) */
} tsr_jinja_expr_kind;

typedef struct tsr_jinja_expr tsr_jinja_expr;

/* name=value */
typedef struct {
  tsr_jinja_string name;
  tsr_jinja_expr *value;
} tsr_jinja_named_argument;

struct tsr_jinja_expr {
  tsr_jinja_expr_kind kind;
  tsr_location location;
  tsr_jinja_value constant;
  tsr_jinja_string name; /* of NAME, ATTRIBUTE, FILTER, TEST, and operators */
  tsr_jinja_expr **items;
  int items_count;
  tsr_jinja_string *names;    /* of COMPARE */
  tsr_jinja_expr **arguments; /* of CALL, FILTER and TEST */
  int arguments_count;
  tsr_jinja_named_argument *named;
  int named_count;
};

typedef enum {
  TSR_JINJA_STMT_TEXT,
  TSR_JINJA_STMT_PRINT,
  TSR_JINJA_STMT_IF,    /* value; body, otherwise */
  TSR_JINJA_STMT_FOR,   /* target in value [if test]: body, `otherwise` without items */
  TSR_JINJA_STMT_SET,   /* target = value, or NULL: the body's text through `filter` */
  TSR_JINJA_STMT_MACRO, /* name, parameters, body */
  TSR_JINJA_STMT_CALL,  /* value is a call; the body is its caller */
  TSR_JINJA_STMT_FILTER,
  TSR_JINJA_STMT_WITH, /* parameters; body */
  TSR_JINJA_STMT_BREAK,
  TSR_JINJA_STMT_CONTINUE,
  TSR_JINJA_STMT_GENERATION /* {% generation %}: text of the assistant */
} tsr_jinja_stmt_kind;

typedef struct tsr_jinja_stmt tsr_jinja_stmt;
typedef struct {
  tsr_jinja_stmt **items;
  int count;
} tsr_jinja_block;

/* A parameter of a macro with its default, or of `with` with its value; NULL: none. */
typedef struct {
  tsr_jinja_string name;
  tsr_jinja_expr *value;
} tsr_jinja_parameter;

struct tsr_jinja_stmt {
  tsr_jinja_stmt_kind kind;
  tsr_location location;
  tsr_jinja_string text, name;
  tsr_jinja_expr *target, *value, *test;
  tsr_jinja_expr *filter; /* whose items[0], at the end of the chain, is NULL: the body's text */
  bool recursive;
  tsr_jinja_block body, otherwise;
  tsr_jinja_parameter *parameters;
  int parameters_count;
};

/* Parses a template. */
bool tsr_jinja_parse_block(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_jinja_block *ret_block,
    bool *ret_has_generation, tsr_diags *diags);

#endif
