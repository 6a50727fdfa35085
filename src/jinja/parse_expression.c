// SPDX-License-Identifier: Apache-2.0
/* Expressions, with the precedence of Jinja 3.1: if, or, and, not, comparisons, + -, ~, * / // %,
 * **, signs, then calls, attributes, items, filters and tests. */
#include "jinja/parser.h"
#include <string.h>

/* ---- arguments ---- */

static bool parse_argument(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  const tsr_jinja_token *name = tsr_jinja_parser_token(p),
                        *next = &p->tokens[p->at + (name->kind != TSR_JINJA_TOKEN_EOF)];
  if (name->kind == TSR_JINJA_TOKEN_NAME && next->kind == TSR_JINJA_TOKEN_OPERATOR &&
      next->text.length == 1 && *next->text.bytes == '=') {
    p->at += 2;
    tsr_jinja_expr *value = tsr_jinja_parse_expression(p);
    of->named = tsr_jinja_grown(p, of->named, of->named_count, sizeof *of->named);
    of->named[of->named_count++] = (tsr_jinja_named_argument){name->text, value};
    return value;
  }
  if (tsr_jinja_parser_is_operator(p, "*") || tsr_jinja_parser_is_operator(p, "**"))
    return tsr_jinja_parser_fail(
        p, name->location, "arguments from a list or a dict (* and **) are not supported");
  if (of->named_count)
    return tsr_jinja_parser_fail(p, name->location, "a positional argument follows a named one");
  tsr_jinja_expr *value = tsr_jinja_parse_expression(p);
  of->arguments = tsr_jinja_grown(p, of->arguments, of->arguments_count, sizeof(tsr_jinja_expr *));
  of->arguments[of->arguments_count++] = value;
  return value;
}

bool tsr_jinja_parse_arguments(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  if (!tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, "(")) return false;
  while (!tsr_jinja_parser_is_operator(p, ")")) {
    if (!parse_argument(p, of)) return false;
    if (!tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ",")) break;
  }
  return tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, ")");
}

/* ---- primaries ---- */

static tsr_jinja_expr *
constant(tsr_jinja_parser *p, const tsr_jinja_token *t, tsr_jinja_value value) {
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_CONSTANT, t->location);
  e->constant = value;
  return e;
}

static tsr_jinja_expr *parse_name(tsr_jinja_parser *p) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  p->at++;
  static const char *const words[][2] = {{"true", "True"}, {"false", "False"}, {"none", "None"}};
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 2; k++)
      if ((size_t)t->text.length == strlen(words[i][k]) &&
          !memcmp(t->text.bytes, words[i][k], strlen(words[i][k])))
        return constant(p, t, i == 2 ? tsr_jinja_none() : tsr_jinja_bool(i == 0));
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_NAME, t->location);
  e->name = t->text;
  return e;
}

/* Adjacent strings are one. */
static tsr_jinja_expr *parse_strings(tsr_jinja_parser *p) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  tsr_text all = {0};
  for (; tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_STRING, NULL); p->at++)
    tsr_text_add_bytes(
        &all, tsr_jinja_parser_token(p)->text.bytes,
        (size_t)tsr_jinja_parser_token(p)->text.length);
  return constant(p, t, tsr_jinja_take(p->arena, &all));
}

static tsr_jinja_expr *parse_list(tsr_jinja_parser *p) {
  tsr_jinja_expr *e =
      tsr_jinja_parser_new(p, TSR_JINJA_EXPR_LIST, tsr_jinja_parser_token(p)->location);
  p->at++;
  while (!tsr_jinja_parser_is_operator(p, "]")) {
    tsr_jinja_expr *item = tsr_jinja_parse_expression(p);
    if (!item) return NULL;
    tsr_jinja_parser_add_item(p, e, item);
    if (!tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ",")) break;
  }
  return tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, "]") ? e : NULL;
}

static tsr_jinja_expr *parse_dict(tsr_jinja_parser *p) {
  tsr_jinja_expr *e =
      tsr_jinja_parser_new(p, TSR_JINJA_EXPR_DICT, tsr_jinja_parser_token(p)->location);
  p->at++;
  while (!tsr_jinja_parser_is_operator(p, "}")) {
    tsr_jinja_expr *key = tsr_jinja_parse_expression(p);
    if (!key || !tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, ":")) return NULL;
    tsr_jinja_expr *value = tsr_jinja_parse_expression(p);
    if (!value) return NULL;
    tsr_jinja_parser_add_item(p, e, key);
    tsr_jinja_parser_add_item(p, e, value);
    if (!tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ",")) break;
  }
  return tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, "}") ? e : NULL;
}

static tsr_jinja_expr *parse_primary(tsr_jinja_parser *p) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  switch (t->kind) {
  case TSR_JINJA_TOKEN_NAME:
    return parse_name(p);
  case TSR_JINJA_TOKEN_STRING:
    return parse_strings(p);
  case TSR_JINJA_TOKEN_INT:
  case TSR_JINJA_TOKEN_FLOAT:
    p->at++;
    return constant(p, t, t->value);
  default:
    break;
  }
  if (tsr_jinja_parser_is_operator(p, "[")) return parse_list(p);
  if (tsr_jinja_parser_is_operator(p, "{")) return parse_dict(p);
  if (!tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "("))
    return tsr_jinja_parser_fail(
        p, t->location, "expected an expression, not %s", tsr_jinja_token_name(t->kind));
  tsr_jinja_expr *e;
  if (tsr_jinja_parser_is_operator(p, ")"))
    e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_TUPLE, t->location);
  else e = tsr_jinja_parse_tuple(p, false);
  return e && tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, ")") ? e : NULL;
}

/* ---- what follows a primary ---- */

static tsr_jinja_expr *parse_attribute(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  const tsr_jinja_token *t = &p->tokens[++p->at];
  if (t->kind == TSR_JINJA_TOKEN_INT) {
    tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_ITEM, t->location);
    tsr_jinja_parser_add_item(p, e, of);
    tsr_jinja_parser_add_item(p, e, constant(p, t, t->value));
    p->at++;
    return e;
  }
  if (!tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_NAME, NULL)) return NULL;
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_ATTRIBUTE, t->location);
  e->name = t->text;
  tsr_jinja_parser_add_item(p, e, of);
  return e;
}

/* [i], or [from : to : step] with each of them or without. */
static tsr_jinja_expr *parse_item(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  tsr_jinja_expr *e = tsr_jinja_parser_new(
                     p, TSR_JINJA_EXPR_ITEM, tsr_jinja_parser_token(p)->location),
                 *parts[3] = {NULL};
  int at = 0;
  p->at++;
  tsr_jinja_parser_add_item(p, e, of);
  while (!tsr_jinja_parser_is_operator(p, "]")) {
    if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ":")) {
      e->kind = TSR_JINJA_EXPR_SLICE;
      if (++at > 2)
        return tsr_jinja_parser_fail(p, e->location, "a slice should have at most three parts");
    } else if (parts[at]) {
      break;
    } else if (!(parts[at] = tsr_jinja_parse_expression(p))) {
      return NULL;
    }
  }
  if (e->kind == TSR_JINJA_EXPR_ITEM && !parts[0])
    return tsr_jinja_parser_fail(p, e->location, "expected an index between these brackets");
  for (int i = 0; i < (e->kind == TSR_JINJA_EXPR_ITEM ? 1 : 3); i++)
    tsr_jinja_parser_add_item(p, e, parts[i]);
  return tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, "]") ? e : NULL;
}

static tsr_jinja_expr *parse_call(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_CALL, of->location);
  tsr_jinja_parser_add_item(p, e, of);
  return tsr_jinja_parse_arguments(p, e) ? e : NULL;
}

static tsr_jinja_expr *parse_postfix(tsr_jinja_parser *p, tsr_jinja_expr *e) {
  for (int links = 0; e; links++) {
    if (links > TSR_JINJA_NESTING_MAX)
      return tsr_jinja_parser_fail(
          p, tsr_jinja_parser_token(p)->location,
          "expressions and blocks are nested more than %d levels deep", TSR_JINJA_NESTING_MAX);
    if (tsr_jinja_parser_is_operator(p, ".")) e = parse_attribute(p, e);
    else if (tsr_jinja_parser_is_operator(p, "[")) e = parse_item(p, e);
    else if (tsr_jinja_parser_is_operator(p, "(")) e = parse_call(p, e);
    else break;
  }
  return e;
}

/* The name of a filter or a test. */
static tsr_jinja_expr *
parse_named(tsr_jinja_parser *p, tsr_jinja_expr_kind kind, tsr_jinja_expr *of) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  if (!tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_NAME, NULL)) return NULL;
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, kind, t->location);
  e->name = t->text;
  tsr_jinja_parser_add_item(p, e, of);
  return e;
}

static bool begins_primary(const tsr_jinja_parser *p) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  if (t->kind == TSR_JINJA_TOKEN_OPERATOR) return strchr("[{(", *t->text.bytes) != NULL;
  if (t->kind != TSR_JINJA_TOKEN_NAME)
    return t->kind == TSR_JINJA_TOKEN_STRING || t->kind == TSR_JINJA_TOKEN_INT ||
           t->kind == TSR_JINJA_TOKEN_FLOAT;
  static const char *const words[] = {"else", "or", "and", "if", "is", "not", "in", "recursive"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (tsr_jinja_parser_is_name(p, words[i])) return false;
  return true;
}

/* Behind `is`. */
static tsr_jinja_expr *parse_test(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  tsr_location location = tsr_jinja_parser_token(p)->location;
  bool negated = tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "not");
  tsr_jinja_expr *e = parse_named(p, TSR_JINJA_EXPR_TEST, of);
  if (!e) return NULL;
  if (tsr_jinja_parser_is_operator(p, "(")) {
    if (!tsr_jinja_parse_arguments(p, e)) return NULL;
  } else if (begins_primary(p)) {
    tsr_jinja_expr *operand = parse_primary(p);
    if (!operand || !(operand = parse_postfix(p, operand))) return NULL;
    e->arguments = tsr_jinja_grown(p, NULL, 0, sizeof(tsr_jinja_expr *));
    e->arguments[e->arguments_count++] = operand;
  }
  if (!negated) return e;
  tsr_jinja_expr *no = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_UNARY, location);
  no->name = (tsr_jinja_string){"not", 3};
  tsr_jinja_parser_add_item(p, no, e);
  return no;
}

static tsr_jinja_expr *parse_filter(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  tsr_jinja_expr *e = parse_named(p, TSR_JINJA_EXPR_FILTER, of);
  return e && (!tsr_jinja_parser_is_operator(p, "(") || tsr_jinja_parse_arguments(p, e)) ? e : NULL;
}

tsr_jinja_expr *tsr_jinja_parse_filters(tsr_jinja_parser *p, tsr_jinja_expr *of) {
  do of = parse_filter(p, of);
  while (of && tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "|"));
  return of;
}

static tsr_jinja_expr *parse_behind(tsr_jinja_parser *p, tsr_jinja_expr *e) {
  for (int links = 0; e; links++) {
    if (links > TSR_JINJA_NESTING_MAX)
      return tsr_jinja_parser_fail(
          p, tsr_jinja_parser_token(p)->location,
          "expressions and blocks are nested more than %d levels deep", TSR_JINJA_NESTING_MAX);
    if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "|")) e = parse_filter(p, e);
    else if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "is")) e = parse_test(p, e);
    else if (tsr_jinja_parser_is_operator(p, "(")) e = parse_call(p, e);
    else break;
  }
  return e;
}

/* ---- operators ---- */

static tsr_jinja_expr *unary(tsr_jinja_parser *p, const tsr_jinja_token *t, tsr_jinja_expr *of) {
  if (!of) return NULL;
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_UNARY, t->location);
  e->name = t->text;
  tsr_jinja_parser_add_item(p, e, of);
  return e;
}

static tsr_jinja_expr *parse_sign(tsr_jinja_parser *p, bool with_filters) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  tsr_jinja_expr *e;
  if (!tsr_jinja_parser_enter(p)) return NULL;
  if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "-") ||
      tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "+"))
    e = unary(p, t, parse_sign(p, false));
  else if ((e = parse_primary(p))) e = parse_postfix(p, e);
  if (e && with_filters) e = parse_behind(p, e);
  tsr_jinja_parser_leave(p);
  return e;
}

static tsr_jinja_expr *
binary(tsr_jinja_parser *p, const tsr_jinja_token *t, tsr_jinja_expr *a, tsr_jinja_expr *b) {
  if (!b) return NULL;
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_BINARY, t->location);
  e->name = t->text;
  tsr_jinja_parser_add_item(p, e, a);
  tsr_jinja_parser_add_item(p, e, b);
  return e;
}

/* Consumes one of the operators, a list that ends with NULL. */
static bool pass_one(tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *const *operators) {
  for (int i = 0; operators[i]; i++)
    if (tsr_jinja_parser_pass(p, kind, operators[i])) return true;
  return false;
}

/* a op b op c, from left to right. */
static tsr_jinja_expr *parse_left(
    tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *const *operators,
    tsr_jinja_expr *operand(tsr_jinja_parser *p)) {
  tsr_jinja_expr *e = operand(p);
  for (const tsr_jinja_token *t = tsr_jinja_parser_token(p); e && pass_one(p, kind, operators);
       t = tsr_jinja_parser_token(p))
    e = binary(p, t, e, operand(p));
  return e;
}

static tsr_jinja_expr *parse_signed(tsr_jinja_parser *p) { return parse_sign(p, true); }
static tsr_jinja_expr *parse_power(tsr_jinja_parser *p) {
  return parse_left(p, TSR_JINJA_TOKEN_OPERATOR, (const char *const[]){"**", NULL}, parse_signed);
}
static tsr_jinja_expr *parse_product(tsr_jinja_parser *p) {
  return parse_left(
      p, TSR_JINJA_TOKEN_OPERATOR, (const char *const[]){"*", "/", "//", "%", NULL}, parse_power);
}

static tsr_jinja_expr *parse_concat(tsr_jinja_parser *p) {
  tsr_jinja_expr *first = parse_product(p);
  if (!first || !tsr_jinja_parser_is_operator(p, "~")) return first;
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_CONCAT, first->location);
  tsr_jinja_parser_add_item(p, e, first);
  while (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "~")) {
    tsr_jinja_expr *next = parse_product(p);
    if (!next) return NULL;
    tsr_jinja_parser_add_item(p, e, next);
  }
  return e;
}

static tsr_jinja_expr *parse_sum(tsr_jinja_parser *p) {
  return parse_left(
      p, TSR_JINJA_TOKEN_OPERATOR, (const char *const[]){"+", "-", NULL}, parse_concat);
}

/* Consumes the operator of a comparison; no bytes: there is none. */
static tsr_jinja_string pass_comparison(tsr_jinja_parser *p) {
  static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">=", NULL};
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  if (pass_one(p, TSR_JINJA_TOKEN_OPERATOR, operators) ||
      tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "in"))
    return t->text;
  if (!tsr_jinja_parser_is_name(p, "not")) return (tsr_jinja_string){0};
  p->at++;
  if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "in")) return (tsr_jinja_string){"not in", 6};
  p->at--;
  return (tsr_jinja_string){0};
}

static tsr_jinja_expr *parse_comparison(tsr_jinja_parser *p) {
  tsr_jinja_expr *first = parse_sum(p), *e = NULL;
  if (!first) return NULL;
  for (tsr_jinja_string op; (op = pass_comparison(p)).length;) {
    if (!e)
      tsr_jinja_parser_add_item(
          p, e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_COMPARE, first->location), first);
    tsr_jinja_expr *next = parse_sum(p);
    if (!next) return NULL;
    e->names = tsr_jinja_grown(p, e->names, e->items_count - 1, sizeof *e->names);
    e->names[e->items_count - 1] = op;
    tsr_jinja_parser_add_item(p, e, next);
  }
  return e ? e : first;
}

static tsr_jinja_expr *parse_not(tsr_jinja_parser *p) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  if (!tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "not")) return parse_comparison(p);
  if (!tsr_jinja_parser_enter(p)) return NULL;
  tsr_jinja_expr *e = unary(p, t, parse_not(p));
  tsr_jinja_parser_leave(p);
  return e;
}
static tsr_jinja_expr *parse_and(tsr_jinja_parser *p) {
  return parse_left(p, TSR_JINJA_TOKEN_NAME, (const char *const[]){"and", NULL}, parse_not);
}
tsr_jinja_expr *tsr_jinja_parse_or(tsr_jinja_parser *p) {
  return parse_left(p, TSR_JINJA_TOKEN_NAME, (const char *const[]){"or", NULL}, parse_and);
}

tsr_jinja_expr *tsr_jinja_parse_expression(tsr_jinja_parser *p) {
  if (!tsr_jinja_parser_enter(p)) return NULL;
  tsr_jinja_expr *value = tsr_jinja_parse_or(p);
  while (value && tsr_jinja_parser_is_name(p, "if")) {
    tsr_jinja_expr *e = tsr_jinja_parser_new(
                       p, TSR_JINJA_EXPR_IF, tsr_jinja_parser_token(p)->location),
                   *otherwise = NULL;
    p->at++;
    tsr_jinja_expr *test = tsr_jinja_parse_or(p);
    if (!test) return NULL;
    if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "else") &&
        !(otherwise = tsr_jinja_parse_expression(p)))
      return NULL;
    tsr_jinja_parser_add_item(p, e, test);
    tsr_jinja_parser_add_item(p, e, value);
    tsr_jinja_parser_add_item(p, e, otherwise);
    value = e;
  }
  tsr_jinja_parser_leave(p);
  return value;
}

tsr_jinja_expr *tsr_jinja_parse_tuple(tsr_jinja_parser *p, bool plain) {
  tsr_jinja_expr *first = plain ? tsr_jinja_parse_or(p) : tsr_jinja_parse_expression(p);
  if (!first || !tsr_jinja_parser_is_operator(p, ",")) return first;
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_TUPLE, first->location);
  tsr_jinja_parser_add_item(p, e, first);
  while (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ",")) {
    if (tsr_jinja_parser_is_operator(p, ")") ||
        tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_BLOCK_END, NULL) ||
        tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_PRINT_END, NULL) ||
        tsr_jinja_parser_is_operator(p, "="))
      break;
    tsr_jinja_expr *next = plain ? tsr_jinja_parse_or(p) : tsr_jinja_parse_expression(p);
    if (!next) return NULL;
    tsr_jinja_parser_add_item(p, e, next);
  }
  return e;
}

/* ---- targets ---- */

static tsr_jinja_expr *parse_one_target(tsr_jinja_parser *p, bool with_namespace) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "(")) {
    tsr_jinja_expr *inner = tsr_jinja_parse_target(p, false);
    return inner && tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, ")") ? inner : NULL;
  }
  if (!tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_NAME, NULL)) return NULL;
  tsr_jinja_expr *e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_NAME, t->location);
  e->name = t->text;
  return with_namespace && tsr_jinja_parser_is_operator(p, ".") ? parse_attribute(p, e) : e;
}

tsr_jinja_expr *tsr_jinja_parse_target(tsr_jinja_parser *p, bool with_namespace) {
  if (!tsr_jinja_parser_enter(p)) return NULL;
  tsr_jinja_expr *first = parse_one_target(p, with_namespace), *e = first;
  if (first && tsr_jinja_parser_is_operator(p, ",")) {
    tsr_jinja_parser_add_item(
        p, e = tsr_jinja_parser_new(p, TSR_JINJA_EXPR_TUPLE, first->location), first);
    while (e && tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ",") &&
           !tsr_jinja_parser_is_name(p, "in")) {
      tsr_jinja_expr *next = parse_one_target(p, false);
      if (next) tsr_jinja_parser_add_item(p, e, next);
      else e = NULL;
    }
  }
  tsr_jinja_parser_leave(p);
  return e;
}
