// SPDX-License-Identifier: Apache-2.0
/* Shared by the parser of expressions and that of statements. */
#ifndef TSR_JINJA_PARSER_H
#define TSR_JINJA_PARSER_H
#include "jinja/lexer.h"
#include "jinja/tree.h"

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  const token *tokens;
  int at;
  int depth; /* of nesting: expressions and statements */
  bool failed;
} parser;

enum { NESTING_MAX = 200 };

static inline const token *parser_token(const parser *p) { return &p->tokens[p->at]; }
bool parser_is(const parser *p, token_kind kind, const char *text);
bool parser_is_name(const parser *p, const char *name);
bool parser_is_operator(const parser *p, const char *text);
/* Passes the token if it is that. */
bool parser_pass(parser *p, token_kind kind, const char *text);
/* The same; an error if it is not. */
bool parser_expect(parser *p, token_kind kind, const char *text);
/* The first error alone; NULL, for callers to return. */
void *parser_fail(parser *p, tsr_location location, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether one more level of nesting is allowed; parser_leave ends it. */
bool parser_enter(parser *p);
void parser_leave(parser *p);

expr *parser_new(parser *p, expr_kind kind, tsr_location location);
void parser_add_item(parser *p, expr *e, expr *item);

/* NULL: an error. */
expr *parse_expression(parser *p);
/* Without `… if … else …`. */
expr *parse_plain(parser *p);
/* One, or a tuple of several with commas between; an empty one where `end` follows. */
expr *parse_tuple(parser *p, bool plain);
/* Names to assign to: a name, a tuple of names, or (where allowed) an attribute of a namespace. */
expr *parse_target(parser *p, bool with_namespace);
/* Filters behind `|`, of `of` (NULL: of a body's text). */
expr *parse_filters(parser *p, expr *of);
/* (a, b=1) of a call, a filter or a test. */
bool parse_arguments(parser *p, expr *of);

#endif
