// SPDX-License-Identifier: Apache-2.0
/* The syntax tree of a template. All of it is in the arena of the template. */
#ifndef TSR_JINJA_TREE_H
#define TSR_JINJA_TREE_H
#include "base/diag.h"
#include "jinja/value.h"

typedef enum {
  EXPR_CONSTANT,
  EXPR_NAME,
  EXPR_LIST,
  EXPR_TUPLE,
  EXPR_DICT,    /* items: keys and values in turn */
  EXPR_UNARY,   /* name: "-", "+", "not" */
  EXPR_BINARY,  /* name: an operator of arithmetic, "and", "or" */
  EXPR_COMPARE, /* items[0] names[0] items[1] names[1] … */
  EXPR_CONCAT,  /* items ~ items … */
  EXPR_IF,      /* items: the test, the value, and the other one or NULL */
  EXPR_ATTRIBUTE,
  EXPR_ITEM,  /* items[0] [items[1]] */
  EXPR_SLICE, /* items[0] [items[1] : items[2] : items[3]], each or NULL */
  EXPR_CALL,  /* items[0] is called */
  EXPR_FILTER,
  EXPR_TEST /* items[0] is name(…) */
} expr_kind;

typedef struct expr expr;

/* name=value */
typedef struct {
  jinja_string name;
  expr *value;
} named_argument;

struct expr {
  expr_kind kind;
  tsr_location location;
  jinja_value constant;
  jinja_string name; /* of NAME, ATTRIBUTE, FILTER, TEST, and operators */
  expr **items;
  int items_count;
  jinja_string *names; /* of COMPARE */
  expr **arguments;    /* of CALL, FILTER and TEST */
  int arguments_count;
  named_argument *named;
  int named_count;
};

typedef enum {
  STMT_TEXT,
  STMT_PRINT,
  STMT_IF,    /* value; body, otherwise */
  STMT_FOR,   /* target in value [if test]: body, otherwise where nothing came */
  STMT_SET,   /* target = value, or NULL: the body's text through `filter` */
  STMT_MACRO, /* name, parameters, body */
  STMT_CALL,  /* value is a call; the body is its caller */
  STMT_FILTER,
  STMT_WITH, /* parameters; body */
  STMT_BREAK,
  STMT_CONTINUE,
  STMT_GENERATION /* {% generation %}: what the assistant has said */
} stmt_kind;

typedef struct stmt stmt;
typedef struct {
  stmt **items;
  int count;
} block;

/* A parameter of a macro with its default, or of `with` with its value; NULL: none. */
typedef struct {
  jinja_string name;
  expr *value;
} parameter;

struct stmt {
  stmt_kind kind;
  tsr_location location;
  jinja_string text, name;
  expr *target, *value, *test;
  expr *filter; /* whose items[0], at the end of the chain, is NULL: the body's text */
  bool recursive;
  block body, otherwise;
  parameter *parameters;
  int parameters_count;
};

/* Parses a template. False: an error at its place; `limit` is the depth of nesting allowed. */
bool jinja_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, block *ret_block,
    tsr_diags *diags);

#endif
