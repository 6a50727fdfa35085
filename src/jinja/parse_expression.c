// SPDX-License-Identifier: Apache-2.0
/* Expressions, with the precedence of Jinja 3.1: if, or, and, not, comparisons, + -, ~, * / // %,
 * **, signs, then calls, attributes, items, filters and tests. */
#include "jinja/parser.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- tokens ---- */

bool parser_is(const parser *p, token_kind kind, const char *text) {
  const token *t = parser_token(p);
  return t->kind == kind && (!text || ((size_t)t->text.length == strlen(text) &&
                                       !memcmp(t->text.bytes, text, strlen(text))));
}
bool parser_is_name(const parser *p, const char *name) { return parser_is(p, TOKEN_NAME, name); }
bool parser_is_operator(const parser *p, const char *text) {
  return parser_is(p, TOKEN_OPERATOR, text);
}
bool parser_pass(parser *p, token_kind kind, const char *text) {
  if (!parser_is(p, kind, text)) return false;
  if (kind != TOKEN_EOF) p->at++;
  return true;
}

static const char *kind_text(token_kind kind) {
  static const char *const texts[] = {"text",     "'{%'",     "'%}'",    "'{{'",        "'}}'", "a name",
                                      "a string", "an integer", "a float", "an operator", "the end"};
  return texts[kind];
}

void *parser_fail(parser *p, tsr_location location, const char *format, ...) {
  char text[512];
  va_list args;
  if (p->failed) return NULL;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  tsr_diag_error(p->diags, location, "%s", text);
  p->failed = true;
  return NULL;
}

bool parser_expect(parser *p, token_kind kind, const char *text) {
  if (parser_pass(p, kind, text)) return true;
  const token *t = parser_token(p);
  bool shown = t->kind == TOKEN_NAME || t->kind == TOKEN_OPERATOR;
  char is[80];
  snprintf(is, sizeof is, "'%.*s'", (int)(t->text.length > 60 ? 60 : t->text.length), t->text.bytes);
  parser_fail(
      p, t->location, text ? "'%s' is expected here, not %s" : "%s is expected here, not %s",
      text ? text : kind_text(kind), shown ? is : kind_text(t->kind));
  return false;
}

bool parser_enter(parser *p) {
  if (++p->depth <= NESTING_MAX) return true;
  parser_fail(p, parser_token(p)->location, "more than %d levels of nesting", NESTING_MAX);
  return false;
}
void parser_leave(parser *p) { p->depth--; }

expr *parser_new(parser *p, expr_kind kind, tsr_location location) {
  expr *e = tsr_arena_alloc(p->arena, sizeof *e);
  e->kind = kind;
  e->location = location;
  return e;
}

/* Arrays grow by doubling at powers of two. */
static void *grown(parser *p, void *items, int count, size_t bytes) {
  if (count & (count - 1)) return items;
  void *more = tsr_arena_alloc(p->arena, bytes * (size_t)(count ? 2 * count : 1));
  if (count) memcpy(more, items, bytes * (size_t)count);
  return more;
}

void parser_add_item(parser *p, expr *e, expr *item) {
  e->items = grown(p, e->items, e->items_count, sizeof(expr *));
  e->items[e->items_count++] = item;
}

/* ---- arguments ---- */

static bool parse_argument(parser *p, expr *of) {
  const token *name = parser_token(p), *next = &p->tokens[p->at + (name->kind != TOKEN_EOF)];
  if (name->kind == TOKEN_NAME && next->kind == TOKEN_OPERATOR && next->text.length == 1 &&
      *next->text.bytes == '=') {
    p->at += 2;
    expr *value = parse_expression(p);
    of->named = grown(p, of->named, of->named_count, sizeof *of->named);
    of->named[of->named_count++] = (named_argument){name->text, value};
    return value;
  }
  if (parser_is_operator(p, "*") || parser_is_operator(p, "**"))
    return parser_fail(p, name->location, "arguments from a list or a dict (*, **) are not supported");
  if (of->named_count)
    return parser_fail(p, name->location, "an argument without a name follows one with a name");
  expr *value = parse_expression(p);
  of->arguments = grown(p, of->arguments, of->arguments_count, sizeof(expr *));
  of->arguments[of->arguments_count++] = value;
  return value;
}

bool parse_arguments(parser *p, expr *of) {
  if (!parser_expect(p, TOKEN_OPERATOR, "(")) return false;
  while (!parser_is_operator(p, ")")) {
    if (!parse_argument(p, of)) return false;
    if (!parser_pass(p, TOKEN_OPERATOR, ",")) break;
  }
  return parser_expect(p, TOKEN_OPERATOR, ")");
}

/* ---- primaries ---- */

static expr *constant(parser *p, const token *t, jinja_value value) {
  expr *e = parser_new(p, EXPR_CONSTANT, t->location);
  e->constant = value;
  return e;
}

static expr *parse_name(parser *p) {
  const token *t = parser_token(p);
  p->at++;
  static const char *const words[][2] = {{"true", "True"}, {"false", "False"}, {"none", "None"}};
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 2; k++)
      if ((size_t)t->text.length == strlen(words[i][k]) &&
          !memcmp(t->text.bytes, words[i][k], strlen(words[i][k])))
        return constant(p, t, i == 2 ? jinja_none() : jinja_bool(i == 0));
  expr *e = parser_new(p, EXPR_NAME, t->location);
  e->name = t->text;
  return e;
}

/* Neighbours are one. */
static expr *parse_strings(parser *p) {
  const token *t = parser_token(p);
  tsr_text all = {0};
  for (; parser_is(p, TOKEN_STRING, NULL); p->at++)
    tsr_text_add_bytes(&all, parser_token(p)->text.bytes, (size_t)parser_token(p)->text.length);
  return constant(p, t, jinja_take(p->arena, &all));
}

static expr *parse_list(parser *p) {
  expr *e = parser_new(p, EXPR_LIST, parser_token(p)->location);
  p->at++;
  while (!parser_is_operator(p, "]")) {
    expr *item = parse_expression(p);
    if (!item) return NULL;
    parser_add_item(p, e, item);
    if (!parser_pass(p, TOKEN_OPERATOR, ",")) break;
  }
  return parser_expect(p, TOKEN_OPERATOR, "]") ? e : NULL;
}

static expr *parse_dict(parser *p) {
  expr *e = parser_new(p, EXPR_DICT, parser_token(p)->location);
  p->at++;
  while (!parser_is_operator(p, "}")) {
    expr *key = parse_expression(p);
    if (!key || !parser_expect(p, TOKEN_OPERATOR, ":")) return NULL;
    expr *value = parse_expression(p);
    if (!value) return NULL;
    parser_add_item(p, e, key);
    parser_add_item(p, e, value);
    if (!parser_pass(p, TOKEN_OPERATOR, ",")) break;
  }
  return parser_expect(p, TOKEN_OPERATOR, "}") ? e : NULL;
}

static expr *parse_primary(parser *p) {
  const token *t = parser_token(p);
  switch (t->kind) {
  case TOKEN_NAME: return parse_name(p);
  case TOKEN_STRING: return parse_strings(p);
  case TOKEN_INT:
  case TOKEN_FLOAT: p->at++; return constant(p, t, t->value);
  default: break;
  }
  if (parser_is_operator(p, "[")) return parse_list(p);
  if (parser_is_operator(p, "{")) return parse_dict(p);
  if (!parser_pass(p, TOKEN_OPERATOR, "("))
    return parser_fail(p, t->location, "an expression is expected here, not %s", kind_text(t->kind));
  expr *e;
  if (parser_is_operator(p, ")")) e = parser_new(p, EXPR_TUPLE, t->location);
  else e = parse_tuple(p, false);
  return e && parser_expect(p, TOKEN_OPERATOR, ")") ? e : NULL;
}

/* ---- what follows a primary ---- */

static expr *parse_attribute(parser *p, expr *of) {
  const token *t = &p->tokens[++p->at];
  if (t->kind == TOKEN_INT) {
    expr *e = parser_new(p, EXPR_ITEM, t->location);
    parser_add_item(p, e, of);
    parser_add_item(p, e, constant(p, t, t->value));
    p->at++;
    return e;
  }
  if (!parser_expect(p, TOKEN_NAME, NULL)) return NULL;
  expr *e = parser_new(p, EXPR_ATTRIBUTE, t->location);
  e->name = t->text;
  parser_add_item(p, e, of);
  return e;
}

/* [i], or [from : to : step] with each of them or without. */
static expr *parse_item(parser *p, expr *of) {
  expr *e = parser_new(p, EXPR_ITEM, parser_token(p)->location), *parts[3] = {NULL};
  int at = 0;
  p->at++;
  parser_add_item(p, e, of);
  while (!parser_is_operator(p, "]")) {
    if (parser_pass(p, TOKEN_OPERATOR, ":")) {
      e->kind = EXPR_SLICE;
      if (++at > 2) return parser_fail(p, e->location, "this slice has more than three parts");
    } else if (parts[at]) {
      break;
    } else if (!(parts[at] = parse_expression(p))) {
      return NULL;
    }
  }
  if (e->kind == EXPR_ITEM && !parts[0])
    return parser_fail(p, e->location, "an index is expected between these brackets");
  for (int i = 0; i < (e->kind == EXPR_ITEM ? 1 : 3); i++) parser_add_item(p, e, parts[i]);
  return parser_expect(p, TOKEN_OPERATOR, "]") ? e : NULL;
}

static expr *parse_call(parser *p, expr *of) {
  expr *e = parser_new(p, EXPR_CALL, of->location);
  parser_add_item(p, e, of);
  return parse_arguments(p, e) ? e : NULL;
}

static expr *parse_postfix(parser *p, expr *e) {
  for (int links = 0; e; links++) {
    if (links > NESTING_MAX)
      return parser_fail(p, parser_token(p)->location, "more than %d levels of nesting", NESTING_MAX);
    if (parser_is_operator(p, ".")) e = parse_attribute(p, e);
    else if (parser_is_operator(p, "[")) e = parse_item(p, e);
    else if (parser_is_operator(p, "(")) e = parse_call(p, e);
    else break;
  }
  return e;
}

/* A filter's or a test's name, which may have dots. */
static expr *parse_named(parser *p, expr_kind kind, expr *of) {
  const token *t = parser_token(p);
  if (!parser_expect(p, TOKEN_NAME, NULL)) return NULL;
  expr *e = parser_new(p, kind, t->location);
  e->name = t->text;
  parser_add_item(p, e, of);
  return e;
}

static bool begins_primary(const parser *p) {
  const token *t = parser_token(p);
  if (t->kind == TOKEN_OPERATOR) return strchr("[{(", *t->text.bytes) != NULL;
  if (t->kind != TOKEN_NAME)
    return t->kind == TOKEN_STRING || t->kind == TOKEN_INT || t->kind == TOKEN_FLOAT;
  static const char *const words[] = {"else", "or", "and", "if", "is", "not", "in", "recursive"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (parser_is_name(p, words[i])) return false;
  return true;
}

/* Behind `is`. */
static expr *parse_test(parser *p, expr *of) {
  tsr_location location = parser_token(p)->location;
  bool negated = parser_pass(p, TOKEN_NAME, "not");
  expr *e = parse_named(p, EXPR_TEST, of);
  if (!e) return NULL;
  if (parser_is_operator(p, "(")) {
    if (!parse_arguments(p, e)) return NULL;
  } else if (begins_primary(p)) {
    expr *argument = parse_primary(p);
    if (!argument || !(argument = parse_postfix(p, argument))) return NULL;
    e->arguments = grown(p, NULL, 0, sizeof(expr *));
    e->arguments[e->arguments_count++] = argument;
  }
  if (!negated) return e;
  expr *no = parser_new(p, EXPR_UNARY, location);
  no->name = (jinja_string){"not", 3};
  parser_add_item(p, no, e);
  return no;
}

static expr *parse_filter(parser *p, expr *of) {
  expr *e = parse_named(p, EXPR_FILTER, of);
  return e && (!parser_is_operator(p, "(") || parse_arguments(p, e)) ? e : NULL;
}

expr *parse_filters(parser *p, expr *of) {
  do of = parse_filter(p, of);
  while (of && parser_pass(p, TOKEN_OPERATOR, "|"));
  return of;
}

static expr *parse_behind(parser *p, expr *e) {
  for (int links = 0; e; links++) {
    if (links > NESTING_MAX)
      return parser_fail(p, parser_token(p)->location, "more than %d levels of nesting", NESTING_MAX);
    if (parser_pass(p, TOKEN_OPERATOR, "|")) e = parse_filter(p, e);
    else if (parser_pass(p, TOKEN_NAME, "is")) e = parse_test(p, e);
    else if (parser_is_operator(p, "(")) e = parse_call(p, e);
    else break;
  }
  return e;
}

/* ---- operators ---- */

static expr *unary(parser *p, const token *t, expr *of) {
  if (!of) return NULL;
  expr *e = parser_new(p, EXPR_UNARY, t->location);
  e->name = t->text;
  parser_add_item(p, e, of);
  return e;
}

static expr *parse_sign(parser *p, bool with_filters) {
  const token *t = parser_token(p);
  expr *e;
  if (!parser_enter(p)) return NULL;
  if (parser_pass(p, TOKEN_OPERATOR, "-") || parser_pass(p, TOKEN_OPERATOR, "+"))
    e = unary(p, t, parse_sign(p, false));
  else if ((e = parse_primary(p))) e = parse_postfix(p, e);
  if (e && with_filters) e = parse_behind(p, e);
  parser_leave(p);
  return e;
}

static expr *binary(parser *p, const token *t, expr *a, expr *b) {
  if (!b) return NULL;
  expr *e = parser_new(p, EXPR_BINARY, t->location);
  e->name = t->text;
  parser_add_item(p, e, a);
  parser_add_item(p, e, b);
  return e;
}

/* Which of the operators, a list that ends with NULL, stands here. */
static bool pass_one(parser *p, token_kind kind, const char *const *operators) {
  for (int i = 0; operators[i]; i++)
    if (parser_pass(p, kind, operators[i])) return true;
  return false;
}

/* a op b op c, from left to right. */
static expr *parse_left(
    parser *p, token_kind kind, const char *const *operators, expr *operand(parser *p)) {
  expr *e = operand(p);
  for (const token *t = parser_token(p); e && pass_one(p, kind, operators); t = parser_token(p))
    e = binary(p, t, e, operand(p));
  return e;
}

static expr *parse_signed(parser *p) { return parse_sign(p, true); }
static expr *parse_power(parser *p) {
  return parse_left(p, TOKEN_OPERATOR, (const char *const[]){"**", NULL}, parse_signed);
}
static expr *parse_product(parser *p) {
  return parse_left(
      p, TOKEN_OPERATOR, (const char *const[]){"*", "/", "//", "%", NULL}, parse_power);
}

static expr *parse_concat(parser *p) {
  expr *first = parse_product(p);
  if (!first || !parser_is_operator(p, "~")) return first;
  expr *e = parser_new(p, EXPR_CONCAT, first->location);
  parser_add_item(p, e, first);
  while (parser_pass(p, TOKEN_OPERATOR, "~")) {
    expr *next = parse_product(p);
    if (!next) return NULL;
    parser_add_item(p, e, next);
  }
  return e;
}

static expr *parse_sum(parser *p) {
  return parse_left(p, TOKEN_OPERATOR, (const char *const[]){"+", "-", NULL}, parse_concat);
}

/* The operator of a comparison, passed; no bytes: there is none. */
static jinja_string pass_comparison(parser *p) {
  static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">=", NULL};
  const token *t = parser_token(p);
  if (pass_one(p, TOKEN_OPERATOR, operators) || parser_pass(p, TOKEN_NAME, "in")) return t->text;
  if (!parser_is_name(p, "not")) return (jinja_string){0};
  p->at++;
  if (parser_pass(p, TOKEN_NAME, "in")) return (jinja_string){"not in", 6};
  p->at--;
  return (jinja_string){0};
}

static expr *parse_comparison(parser *p) {
  expr *first = parse_sum(p), *e = NULL;
  if (!first) return NULL;
  for (jinja_string op; (op = pass_comparison(p)).length;) {
    if (!e) parser_add_item(p, e = parser_new(p, EXPR_COMPARE, first->location), first);
    expr *next = parse_sum(p);
    if (!next) return NULL;
    e->names = grown(p, e->names, e->items_count - 1, sizeof *e->names);
    e->names[e->items_count - 1] = op;
    parser_add_item(p, e, next);
  }
  return e ? e : first;
}

static expr *parse_not(parser *p) {
  const token *t = parser_token(p);
  if (!parser_pass(p, TOKEN_NAME, "not")) return parse_comparison(p);
  if (!parser_enter(p)) return NULL;
  expr *e = unary(p, t, parse_not(p));
  parser_leave(p);
  return e;
}
static expr *parse_and(parser *p) {
  return parse_left(p, TOKEN_NAME, (const char *const[]){"and", NULL}, parse_not);
}
expr *parse_plain(parser *p) {
  return parse_left(p, TOKEN_NAME, (const char *const[]){"or", NULL}, parse_and);
}

expr *parse_expression(parser *p) {
  if (!parser_enter(p)) return NULL;
  expr *value = parse_plain(p);
  while (value && parser_is_name(p, "if")) {
    expr *e = parser_new(p, EXPR_IF, parser_token(p)->location), *otherwise = NULL;
    p->at++;
    expr *test = parse_plain(p);
    if (!test) return NULL;
    if (parser_pass(p, TOKEN_NAME, "else") && !(otherwise = parse_expression(p))) return NULL;
    parser_add_item(p, e, test);
    parser_add_item(p, e, value);
    parser_add_item(p, e, otherwise);
    value = e;
  }
  parser_leave(p);
  return value;
}

expr *parse_tuple(parser *p, bool plain) {
  expr *first = plain ? parse_plain(p) : parse_expression(p);
  if (!first || !parser_is_operator(p, ",")) return first;
  expr *e = parser_new(p, EXPR_TUPLE, first->location);
  parser_add_item(p, e, first);
  while (parser_pass(p, TOKEN_OPERATOR, ",")) {
    if (parser_is_operator(p, ")") || parser_is(p, TOKEN_BLOCK_END, NULL) ||
        parser_is(p, TOKEN_PRINT_END, NULL) || parser_is_operator(p, "="))
      break;
    expr *next = plain ? parse_plain(p) : parse_expression(p);
    if (!next) return NULL;
    parser_add_item(p, e, next);
  }
  return e;
}

/* ---- targets ---- */

static expr *parse_one_target(parser *p, bool with_namespace) {
  const token *t = parser_token(p);
  if (parser_pass(p, TOKEN_OPERATOR, "(")) {
    expr *inner = parse_target(p, false);
    return inner && parser_expect(p, TOKEN_OPERATOR, ")") ? inner : NULL;
  }
  if (!parser_expect(p, TOKEN_NAME, NULL)) return NULL;
  expr *e = parser_new(p, EXPR_NAME, t->location);
  e->name = t->text;
  return with_namespace && parser_is_operator(p, ".") ? parse_attribute(p, e) : e;
}

expr *parse_target(parser *p, bool with_namespace) {
  if (!parser_enter(p)) return NULL;
  expr *first = parse_one_target(p, with_namespace), *e = first;
  if (first && parser_is_operator(p, ",")) {
    parser_add_item(p, e = parser_new(p, EXPR_TUPLE, first->location), first);
    while (e && parser_pass(p, TOKEN_OPERATOR, ",") && !parser_is_name(p, "in")) {
      expr *next = parse_one_target(p, false);
      if (next) parser_add_item(p, e, next);
      else e = NULL;
    }
  }
  parser_leave(p);
  return e;
}
