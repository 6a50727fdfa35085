// SPDX-License-Identifier: Apache-2.0
/* What the parsers of expressions and of statements share. */
#ifndef TSR_JINJA_PARSER_H
#define TSR_JINJA_PARSER_H
#include "jinja/lexer.h"
#include "jinja/tree.h"

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  const tsr_jinja_token *tokens;
  int at;
  int depth; /* of nesting: expressions and statements */
  bool failed, has_generation;
} tsr_jinja_parser;

enum { TSR_JINJA_NESTING_MAX = 200 };

static inline const tsr_jinja_token *tsr_jinja_parser_token(const tsr_jinja_parser *p) {
  return &p->tokens[p->at];
}
bool tsr_jinja_parser_is(const tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *text);
bool tsr_jinja_parser_is_name(const tsr_jinja_parser *p, const char *name);
bool tsr_jinja_parser_is_operator(const tsr_jinja_parser *p, const char *text);
/* Consumes the token if it is that one. */
bool tsr_jinja_parser_pass(tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *text);
/* The same; another token is an error. */
bool tsr_jinja_parser_expect(tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *text);
/* Adds the first error of a template; returns NULL. */
void *tsr_jinja_parser_fail(tsr_jinja_parser *p, tsr_location location, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Enters a level of nesting, which tsr_jinja_parser_leave ends. False: an error, there are too
 * many. */
bool tsr_jinja_parser_enter(tsr_jinja_parser *p);
void tsr_jinja_parser_leave(tsr_jinja_parser *p);

/* For messages: "a name", "an operator". */
const char *tsr_jinja_token_name(tsr_jinja_token_kind kind);
/* Room for one more item in an array that grows by doubling. */
void *tsr_jinja_grown(tsr_jinja_parser *p, void *items, int count, size_t bytes);
tsr_jinja_expr *
tsr_jinja_parser_new(tsr_jinja_parser *p, tsr_jinja_expr_kind kind, tsr_location location);
void tsr_jinja_parser_add_item(tsr_jinja_parser *p, tsr_jinja_expr *e, tsr_jinja_expr *item);

/* NULL: an error. */
tsr_jinja_expr *tsr_jinja_parse_expression(tsr_jinja_parser *p);
/* Without `… if … else …`. */
tsr_jinja_expr *tsr_jinja_parse_or(tsr_jinja_parser *p);
/* One expression, or several with commas between as a tuple. `plain`: without `… if … else …`. */
tsr_jinja_expr *tsr_jinja_parse_tuple(tsr_jinja_parser *p, bool plain);
/* What a value is assigned to: a name, a tuple of names, or an attribute of a namespace. */
tsr_jinja_expr *tsr_jinja_parse_target(tsr_jinja_parser *p, bool with_namespace);
/* The filters behind `|`, applied to `of` (NULL: to a body's text). */
tsr_jinja_expr *tsr_jinja_parse_filters(tsr_jinja_parser *p, tsr_jinja_expr *of);
/* (a, b=1) of a call, a filter or a test. */
bool tsr_jinja_parse_arguments(tsr_jinja_parser *p, tsr_jinja_expr *of);

#endif
