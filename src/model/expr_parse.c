// SPDX-License-Identifier: Apache-2.0
/* requires: a YAML scalar. produces: an expression tree with the place of every part. */
#include "model/expr.h"
#include "graph/attrs.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* TERMS_MAX: operators of one strength one after the other, which make a tree as high. */
enum { DEPTH_MAX = 60, ARGS_MAX = 32, TERMS_MAX = 1000 };

typedef enum { T_END, T_NUMBER, T_NAME, T_OP, T_BAD } token_kind;

typedef struct {
  tsr_arena *arena;
  const tsr_yaml *node;
  const char *text;
  tsr_diags *diags;
  bool calls, failed;
  int depth;
  size_t end; /* of the last token taken */
  struct {
    token_kind kind;
    size_t begin, end;
    double number;
    const char *word; /* NAME and OP */
  } token;
} parser;

tsr_location tsr_scalar_place(const tsr_yaml *node, size_t offset, size_t length) {
  tsr_location location = node->location;
  int quotes = node->quoted ? 1 : 0;
  if ((size_t)location.length != node->text_length + 2 * (size_t)quotes)
    return location; /* escapes or several lines: the columns do not match */
  location.col += quotes + (int)offset;
  location.length = (int)length;
  return location;
}

bool tsr_is_name(const char *text) {
  if (!isalpha((unsigned char)*text) && *text != '_') return false;
  for (const char *c = text; *c; c++)
    if (!isalnum((unsigned char)*c) && *c != '_' && !(*c == '.' && c[1] && c[1] != '.'))
      return false;
  return true;
}

static bool is_name_byte(const char *at) {
  unsigned char c = (unsigned char)*at, next = c ? (unsigned char)at[1] : 0;
  return isalnum(c) || c == '_' || (c == '.' && (isalnum(next) || next == '_'));
}

/* Integers as in the rest of the file, 0x10 and 1_000 too; else a decimal number, of which one that
 * begins as an octal one is neither. */
static bool read_number(const char *text, double *ret) {
  int64_t whole;
  char *end;
  if (tsr_yaml_int_text(text, &whole)) return *ret = (double)whole, true;
  if (text[0] == '0' && text[1] && !text[strspn(text, "0123456789_")]) return false;
  *ret = strtod(text, &end);
  return !*end && isfinite(*ret) && !text[strspn(text, "0123456789.eE+-")];
}

static void lex_number(parser *p, const char *at) {
  size_t length = 0, plain = strspn(at, "0123456789.");
  while (is_name_byte(at + length) || at[length] == '.') length++;
  bool exponent = length == plain + 1 && strchr("eE", at[plain]);
  if (exponent && (at[length] == '+' || at[length] == '-') &&
      isdigit((unsigned char)at[length + 1]))
    length += 1 + strspn(at + length + 1, "0123456789");
  bool ok = read_number(tsr_arena_strndup(p->arena, at, length), &p->token.number);
  p->token.kind = ok ? T_NUMBER : T_BAD;
  p->token.end = p->token.begin + (ok ? length : plain);
}

static void lex_op(parser *p, const char *at) {
  static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "<", ">", "+", "-", "*",
                                    "/",  "%",  "(",  ")",  "[",  "]", ",", "=", ":"};
  p->token.kind = T_BAD;
  p->token.end = p->token.begin + 1;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (!strncmp(at, ops[i], strlen(ops[i]))) {
      p->token.kind = T_OP;
      p->token.word = ops[i];
      p->token.end = p->token.begin + strlen(ops[i]);
      return;
    }
}

static void advance(parser *p) {
  p->end = p->token.end;
  size_t at = p->token.end + strspn(p->text + p->token.end, " \t\n\r");
  p->token.begin = p->token.end = at;
  const char *c = p->text + at;
  if (!*c) {
    p->token.kind = at < p->node->text_length ? T_BAD : T_END;
  } else if (isdigit((unsigned char)*c) || (*c == '.' && isdigit((unsigned char)c[1]))) {
    lex_number(p, c);
  } else if (isalpha((unsigned char)*c) || *c == '_') {
    size_t length = 1;
    while (is_name_byte(c + length)) length++;
    p->token.kind = T_NAME;
    p->token.word = tsr_arena_strndup(p->arena, c, length);
    p->token.end = at + length;
  } else {
    lex_op(p, c);
  }
}

static bool is_op(const parser *p, const char *op) {
  return p->token.kind == T_OP && !strcmp(p->token.word, op);
}

static bool is_word(const parser *p, const char *word) {
  return p->token.kind == T_NAME && !strcmp(p->token.word, word);
}

static bool is_keyword(const char *word) {
  static const char *const words[] = {"and", "or", "not", "if", "else"};
  for (int i = 0; i < 5; i++)
    if (!strcmp(word, words[i])) return true;
  return false;
}

static bool take_op(parser *p, const char *op) {
  if (!is_op(p, op)) return false;
  advance(p);
  return true;
}

static bool take_word(parser *p, const char *word) {
  if (!is_word(p, word)) return false;
  advance(p);
  return true;
}

static tsr_location token_place(const parser *p) {
  size_t length = p->token.end - p->token.begin;
  return tsr_scalar_place(p->node, p->token.begin, length ? length : 1);
}

/* One error a scalar: what follows a syntax error is guesswork. */
static tsr_expr *fail(parser *p, const char *wanted) {
  if (p->failed) return NULL;
  p->failed = true;
  if (p->token.kind == T_END) {
    tsr_diag_error(p->diags, token_place(p), "the expression ends where %s should follow", wanted);
    if (strchr(p->text, '(') && !strchr(p->text, ',')) /* cut at its comma by YAML */
      tsr_diag_hint(p->diags, "inside [ ] and { } an expression with a comma must be quoted");
  } else {
    int length = (int)(p->token.end - p->token.begin);
    tsr_diag_error(
        p->diags, token_place(p), "expected %s, found '%.*s'", wanted, length ? length : 1,
        p->text + p->token.begin);
  }
  return NULL;
}

static tsr_expr *make(parser *p, tsr_expr_kind kind, size_t begin, int count, tsr_expr **args) {
  tsr_expr *e = tsr_arena_alloc(p->arena, sizeof *e);
  e->kind = kind;
  e->location = tsr_scalar_place(p->node, begin, p->end - begin);
  e->text = tsr_arena_strndup(p->arena, p->text + begin, p->end - begin);
  e->count = count;
  if (count) {
    e->args = tsr_arena_array(p->arena, tsr_expr *, count);
    memcpy(e->args, args, sizeof *args * (size_t)count);
  }
  return e;
}

static tsr_expr *parse_expr(parser *p);

/* `key=` or `key:` before an argument, when two tokens further on there is one. */
static bool take_key(parser *p, const char **ret_key, tsr_location *ret_place) {
  *ret_key = NULL;
  if (!p->calls || p->token.kind != T_NAME) return true;
  const char *after = p->text + p->token.end;
  after += strspn(after, " \t");
  if (!(*after == ':' || (*after == '=' && after[1] != '='))) return true;
  *ret_key = p->token.word;
  *ret_place = token_place(p);
  advance(p);
  advance(p);
  return true;
}

typedef struct {
  int count;
  tsr_expr *args[ARGS_MAX];
  const char *keys[ARGS_MAX];
  tsr_location key_places[ARGS_MAX];
} arguments;

static bool parse_arguments(parser *p, const char *close, bool keys, arguments *ret) {
  while (!is_op(p, close)) {
    if (ret->count == ARGS_MAX) return fail(p, "at most 32 arguments"), false;
    ret->keys[ret->count] = NULL;
    if (keys) take_key(p, &ret->keys[ret->count], &ret->key_places[ret->count]);
    tsr_expr *e = parse_expr(p);
    if (!e) return false;
    ret->args[ret->count++] = e;
    if (!take_op(p, ",")) break;
  }
  if (take_op(p, close)) return true;
  return fail(p, *close == ')' ? "',' or ')'" : "',' or ']'"), false;
}

static tsr_expr *parse_name(parser *p) {
  size_t begin = p->token.begin;
  const char *name = p->token.word;
  tsr_location location = token_place(p);
  advance(p);
  arguments a = {0};
  bool call = take_op(p, "(");
  if (call && !parse_arguments(p, ")", true, &a)) return NULL;
  tsr_expr *e = make(p, call ? TSR_EXPR_CALL : TSR_EXPR_NAME, begin, a.count, a.args);
  e->name = name;
  e->name_place = location;
  if (call) {
    e->keys = tsr_arena_array(p->arena, const char *, a.count);
    e->key_places = tsr_arena_array(p->arena, tsr_location, a.count);
    e->words = tsr_arena_array(p->arena, bool, a.count);
    memcpy(e->keys, a.keys, sizeof *a.keys * (size_t)a.count);
    memcpy(e->key_places, a.key_places, sizeof *a.key_places * (size_t)a.count);
    for (int i = 0; i < a.count; i++)
      e->words[i] = a.keys[i] && a.args[i]->kind == TSR_EXPR_NAME && tsr_attr_is_word(a.keys[i]);
  }
  return e;
}

static tsr_expr *parse_primary(parser *p) {
  size_t begin = p->token.begin;
  if (p->token.kind == T_NUMBER) {
    double number = p->token.number;
    advance(p);
    tsr_expr *e = make(p, TSR_EXPR_NUMBER, begin, 0, NULL);
    e->number = number;
    return e;
  }
  if (p->token.kind == T_NAME && !is_keyword(p->token.word)) return parse_name(p);
  if (take_op(p, "(")) {
    tsr_expr *e = parse_expr(p);
    if (!e) return NULL;
    return take_op(p, ")") ? e : fail(p, "')'");
  }
  if (take_op(p, "[")) {
    arguments a = {0};
    if (!parse_arguments(p, "]", false, &a)) return NULL;
    return make(p, TSR_EXPR_LIST, begin, a.count, a.args);
  }
  return fail(p, "a number, a name or '('");
}

static tsr_expr *parse_postfix(parser *p) {
  size_t begin = p->token.begin;
  tsr_expr *e = parse_primary(p);
  for (int terms = 1; e && take_op(p, "["); terms++) {
    if (terms > TERMS_MAX) return fail(p, "fewer indices");
    tsr_expr *index = parse_expr(p);
    if (!index) return NULL;
    if (!take_op(p, "]")) return fail(p, "']'");
    e = make(p, TSR_EXPR_INDEX, begin, 2, (tsr_expr *[]){e, index});
  }
  return e;
}

static tsr_expr *parse_prefixed(parser *p, const char *op, tsr_expr *(*next)(parser *)) {
  size_t begin = p->token.begin;
  if (++p->depth > DEPTH_MAX) return fail(p, "fewer nested parts");
  advance(p);
  tsr_expr *e = next(p);
  p->depth--;
  if (!e) return NULL;
  e = make(p, TSR_EXPR_UNARY, begin, 1, &e);
  e->name = op;
  return e;
}

static tsr_expr *parse_unary(parser *p) {
  return is_op(p, "-") ? parse_prefixed(p, "-", parse_unary) : parse_postfix(p);
}

static const char *match_any(const parser *p, int count, const char *const *ops) {
  for (int i = 0; i < count; i++)
    if (is_op(p, ops[i]) || is_word(p, ops[i])) return ops[i];
  return NULL;
}

/* Left-associative operators of one strength. */
static tsr_expr *
parse_binary(parser *p, int count, const char *const *ops, tsr_expr *(*next)(parser *)) {
  size_t begin = p->token.begin;
  tsr_expr *e = next(p);
  int terms = 1;
  for (const char *op; e && (op = match_any(p, count, ops)); terms++) {
    if (terms == TERMS_MAX) return fail(p, "no more than 1000 terms");
    advance(p);
    tsr_expr *right = next(p);
    if (!right) return NULL;
    e = make(p, TSR_EXPR_BINARY, begin, 2, (tsr_expr *[]){e, right});
    e->name = op;
  }
  return e;
}

static tsr_expr *parse_product(parser *p) {
  static const char *const ops[] = {"*", "/", "//", "%"};
  return parse_binary(p, 4, ops, parse_unary);
}

static tsr_expr *parse_sum(parser *p) {
  static const char *const ops[] = {"+", "-"};
  return parse_binary(p, 2, ops, parse_product);
}

static tsr_expr *parse_comparison(parser *p) {
  static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
  return parse_binary(p, 6, ops, parse_sum);
}

static tsr_expr *parse_not(parser *p) {
  return is_word(p, "not") ? parse_prefixed(p, "not", parse_not) : parse_comparison(p);
}

static tsr_expr *parse_and(parser *p) {
  static const char *const ops[] = {"and"};
  return parse_binary(p, 1, ops, parse_not);
}

static tsr_expr *parse_or(parser *p) {
  static const char *const ops[] = {"or"};
  return parse_binary(p, 1, ops, parse_and);
}

static tsr_expr *parse_expr(parser *p) {
  if (++p->depth > DEPTH_MAX) return fail(p, "fewer nested parts");
  size_t begin = p->token.begin;
  tsr_expr *e = parse_or(p);
  if (e && take_word(p, "if")) {
    tsr_expr *condition = parse_or(p);
    if (!condition) return NULL;
    if (!take_word(p, "else")) return fail(p, "'else'");
    tsr_expr *otherwise = parse_expr(p);
    if (!otherwise) return NULL;
    e = make(p, TSR_EXPR_IF, begin, 3, (tsr_expr *[]){e, condition, otherwise});
  }
  p->depth--;
  return e;
}

/* A YAML list is the list of its items' expressions: [batch, sequence]. */
static bool
parse_list(tsr_arena *arena, const tsr_yaml *node, tsr_expr **ret_expr, tsr_diags *diags) {
  tsr_expr *e = tsr_arena_alloc(arena, sizeof *e);
  *e = (tsr_expr){.kind = TSR_EXPR_LIST, .location = node->location, .text = "the list"};
  e->args = tsr_arena_array(arena, tsr_expr *, node->count);
  e->count = node->count;
  bool ok = true;
  for (int i = 0; i < node->count; i++) {
    if (node->items[i]->kind == TSR_YAML_LIST)
      ok = tsr_diag_error(diags, node->items[i]->location, "a list of lists has no meaning here");
    else ok &= tsr_expr_parse(arena, node->items[i], false, &e->args[i], diags);
  }
  *ret_expr = e;
  return ok;
}

bool tsr_expr_parse(
    tsr_arena *arena, const tsr_yaml *node, bool calls, tsr_expr **ret_expr, tsr_diags *diags) {
  if (node->kind == TSR_YAML_LIST && !calls) return parse_list(arena, node, ret_expr, diags);
  if (node->kind != TSR_YAML_SCALAR)
    return tsr_diag_error(
        diags, node->location, "expected an expression, found %s", tsr_yaml_describe(arena, node));
  parser p = {.arena = arena, .node = node, .text = node->text, .diags = diags, .calls = calls};
  advance(&p);
  tsr_expr *e = parse_expr(&p);
  if (e && p.token.kind != T_END) e = fail(&p, "the end of the expression");
  *ret_expr = e;
  return e != NULL;
}
