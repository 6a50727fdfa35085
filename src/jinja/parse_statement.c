// SPDX-License-Identifier: Apache-2.0
/* Statements. Those that read other files (include, import, extends, block) are refused by name. */
#include "jinja/parser.h"
#include <string.h>

static bool parse_block(parser *p, const char *const *ends, block *ret);

static stmt *new_stmt(parser *p, stmt_kind kind, tsr_location location) {
  stmt *s = tsr_arena_alloc(p->arena, sizeof *s);
  s->kind = kind;
  s->location = location;
  return s;
}

static bool end_block(parser *p) { return parser_expect(p, TOKEN_BLOCK_END, NULL); }

/* `%}`, a body up to the first of `ends`, which is passed without its own `%}`. */
static bool parse_body(parser *p, const char *const *ends, block *ret) {
  return end_block(p) && parse_block(p, ends, ret);
}

/* ---- if, for ---- */

/* Behind `if` or `elif`. */
static stmt *parse_if(parser *p, tsr_location location) {
  static const char *const ends[] = {"elif", "else", "endif", NULL};
  stmt *s = new_stmt(p, STMT_IF, location);
  if (!(s->value = parse_tuple(p, true)) || !parse_body(p, ends, &s->body)) return NULL;
  const token *t = &p->tokens[p->at - 1];
  if (t->text.length == 5) return end_block(p) ? s : NULL; /* endif */
  if (t->text.bytes[2] == 's')                             /* else */
    return parse_body(p, ends + 2, &s->otherwise) && end_block(p) ? s : NULL;
  stmt *next = parser_enter(p) ? parse_if(p, t->location) : NULL;
  parser_leave(p);
  if (!next) return NULL;
  s->otherwise = (block){tsr_arena_array(p->arena, stmt *, 1), 1};
  s->otherwise.items[0] = next;
  return s;
}

static stmt *parse_for(parser *p, tsr_location location) {
  static const char *const ends[] = {"else", "endfor", NULL};
  stmt *s = new_stmt(p, STMT_FOR, location);
  if (!(s->target = parse_target(p, false)) || !parser_expect(p, TOKEN_NAME, "in") ||
      !(s->value = parse_tuple(p, true)))
    return NULL;
  if (parser_pass(p, TOKEN_NAME, "if") && !(s->test = parse_expression(p))) return NULL;
  s->recursive = parser_pass(p, TOKEN_NAME, "recursive");
  if (!parse_body(p, ends, &s->body)) return NULL;
  bool has_else = p->tokens[p->at - 1].text.length == 4;
  if (has_else && !parse_body(p, ends + 1, &s->otherwise)) return NULL;
  return end_block(p) ? s : NULL;
}

/* ---- set, macro, call, filter, with ---- */

static stmt *parse_set(parser *p, tsr_location location) {
  stmt *s = new_stmt(p, STMT_SET, location);
  if (!(s->target = parse_target(p, true))) return NULL;
  if (parser_pass(p, TOKEN_OPERATOR, "="))
    return (s->value = parse_tuple(p, false)) && end_block(p) ? s : NULL;
  if (parser_pass(p, TOKEN_OPERATOR, "|") && !(s->filter = parse_filters(p, NULL))) return NULL;
  return parse_body(p, (const char *const[]){"endset", NULL}, &s->body) && end_block(p) ? s : NULL;
}

static bool add_parameter(parser *p, stmt *s, bool needs_value) {
  const token *t = parser_token(p);
  if (!parser_expect(p, TOKEN_NAME, NULL)) return false;
  parameter *grown = tsr_arena_array(p->arena, parameter, s->parameters_count + 1);
  if (s->parameters_count)
    memcpy(grown, s->parameters, sizeof *grown * (size_t)s->parameters_count);
  s->parameters = grown;
  parameter *new = &grown[s->parameters_count++];
  new->name = t->text;
  if (needs_value ? !parser_expect(p, TOKEN_OPERATOR, "=") : !parser_pass(p, TOKEN_OPERATOR, "="))
    return !needs_value;
  return (new->value = parse_expression(p));
}

/* (a, b=1) of a macro or a call's body. */
static bool parse_parameters(parser *p, stmt *s) {
  if (!parser_expect(p, TOKEN_OPERATOR, "(")) return false;
  while (!parser_is_operator(p, ")")) {
    if (!add_parameter(p, s, false)) return false;
    if (!parser_pass(p, TOKEN_OPERATOR, ",")) break;
  }
  return parser_expect(p, TOKEN_OPERATOR, ")");
}

static stmt *parse_macro(parser *p, tsr_location location) {
  stmt *s = new_stmt(p, STMT_MACRO, location);
  s->name = parser_token(p)->text;
  return parser_expect(p, TOKEN_NAME, NULL) && parse_parameters(p, s) &&
                 parse_body(p, (const char *const[]){"endmacro", NULL}, &s->body) && end_block(p)
             ? s
             : NULL;
}

static stmt *parse_call_block(parser *p, tsr_location location) {
  stmt *s = new_stmt(p, STMT_CALL, location);
  if (parser_is_operator(p, "(") && !parse_parameters(p, s)) return NULL;
  if (!(s->value = parse_expression(p))) return NULL;
  if (s->value->kind != EXPR_CALL) return parser_fail(p, s->value->location, "this is no call");
  return parse_body(p, (const char *const[]){"endcall", NULL}, &s->body) && end_block(p) ? s : NULL;
}

static stmt *parse_filter_block(parser *p, tsr_location location) {
  stmt *s = new_stmt(p, STMT_FILTER, location);
  if (!(s->filter = parse_filters(p, NULL))) return NULL;
  return parse_body(p, (const char *const[]){"endfilter", NULL}, &s->body) && end_block(p) ? s
                                                                                           : NULL;
}

static stmt *parse_with(parser *p, tsr_location location) {
  stmt *s = new_stmt(p, STMT_WITH, location);
  while (!parser_is(p, TOKEN_BLOCK_END, NULL)) {
    if (!add_parameter(p, s, true)) return NULL;
    if (!parser_pass(p, TOKEN_OPERATOR, ",")) break;
  }
  return parse_body(p, (const char *const[]){"endwith", NULL}, &s->body) && end_block(p) ? s : NULL;
}

static stmt *parse_generation(parser *p, tsr_location location) {
  stmt *s = new_stmt(p, STMT_GENERATION, location);
  return parse_body(p, (const char *const[]){"endgeneration", NULL}, &s->body) && end_block(p)
             ? s
             : NULL;
}

static stmt *parse_break(parser *p, tsr_location location) {
  return end_block(p) ? new_stmt(p, STMT_BREAK, location) : NULL;
}
static stmt *parse_continue(parser *p, tsr_location location) {
  return end_block(p) ? new_stmt(p, STMT_CONTINUE, location) : NULL;
}

/* ---- all of them ---- */

static const struct {
  const char *name;
  stmt *(*parse)(parser *p, tsr_location location);
} statements[] = {
    {"if", parse_if},         {"for", parse_for},
    {"set", parse_set},       {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},     {"generation", parse_generation},
    {"break", parse_break},   {"continue", parse_continue}};

static stmt *parse_named_statement(parser *p) {
  const token *t = parser_token(p);
  static const char *const refused[] = {"include", "import", "from", "extends", "block", "do",
                                        "autoescape", "trans"};
  if (!parser_expect(p, TOKEN_NAME, NULL)) return NULL;
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
    if ((size_t)t->text.length == strlen(statements[i].name) &&
        !memcmp(t->text.bytes, statements[i].name, strlen(statements[i].name)))
      return statements[i].parse(p, t->location);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if ((size_t)t->text.length == strlen(refused[i]) &&
        !memcmp(t->text.bytes, refused[i], strlen(refused[i])))
      return parser_fail(p, t->location, "'%s' is not supported in chat templates", refused[i]);
  return parser_fail(
      p, t->location, "there is no statement '%.*s'",
      (int)(t->text.length > 60 ? 60 : t->text.length), t->text.bytes);
}

static stmt *parse_print(parser *p, tsr_location location) {
  stmt *s = new_stmt(p, STMT_PRINT, location);
  return (s->value = parse_tuple(p, false)) && parser_expect(p, TOKEN_PRINT_END, NULL) ? s : NULL;
}

static stmt *parse_statement(parser *p) {
  const token *t = parser_token(p);
  p->at++;
  if (t->kind == TOKEN_PRINT_BEGIN) return parse_print(p, t->location);
  if (t->kind == TOKEN_BLOCK_BEGIN) return parse_named_statement(p);
  stmt *s = new_stmt(p, STMT_TEXT, t->location);
  s->text = t->text;
  return s;
}

/* Whether one of the names follows `{%`; passes both then. */
static bool pass_end_name(parser *p, const char *const *ends) {
  if (!parser_is(p, TOKEN_BLOCK_BEGIN, NULL)) return false;
  p->at++;
  for (int i = 0; ends[i]; i++)
    if (parser_pass(p, TOKEN_NAME, ends[i])) return true;
  p->at--;
  return false;
}

static bool parse_block(parser *p, const char *const *ends, block *ret) {
  int capacity = 0;
  tsr_location begin = parser_token(p)->location;
  if (!parser_enter(p)) return false;
  *ret = (block){0};
  while (!pass_end_name(p, ends)) {
    if (parser_is(p, TOKEN_EOF, NULL)) {
      if (!ends[0]) break;
      int last = 0;
      while (ends[last + 1]) last++;
      parser_fail(p, begin, "there is no '%s' for the body that begins here", ends[last]);
      return false;
    }
    stmt *s = parse_statement(p);
    if (!s) return false;
    tsr_arena_grow(p->arena, (void **)&ret->items, sizeof s, ret->count, &capacity);
    ret->items[ret->count++] = s;
  }
  parser_leave(p);
  return true;
}

bool jinja_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, block *ret_block,
    tsr_diags *diags) {
  parser p = {.arena = arena, .diags = diags};
  token *tokens;
  int count;
  if (!jinja_tokens(arena, file, text, length, &tokens, &count, diags)) return false;
  p.tokens = tokens;
  return parse_block(&p, (const char *const[]){NULL}, ret_block) && !p.failed;
}
