// SPDX-License-Identifier: Apache-2.0
/* Statements. Those that read other files (include, import, extends, block) are refused by name. */
#include "jinja/parser.h"
#include <string.h>

static bool
parse_block(tsr_jinja_parser *p, tsr_location of, const char *const *ends, tsr_jinja_block *ret);

static tsr_jinja_stmt *
new_stmt(tsr_jinja_parser *p, tsr_jinja_stmt_kind kind, tsr_location location) {
  tsr_jinja_stmt *s = tsr_arena_alloc(p->arena, sizeof *s);
  s->kind = kind;
  s->location = location;
  return s;
}

static bool end_block(tsr_jinja_parser *p) {
  return tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_BLOCK_END, NULL);
}

/* `%}` and a body up to one of `ends`, which is consumed without its own `%}`. */
static bool parse_body(
    tsr_jinja_parser *p, const tsr_jinja_stmt *of, const char *const *ends, tsr_jinja_block *ret) {
  return end_block(p) && parse_block(p, of->location, ends, ret);
}

/* ---- if, for ---- */

/* From behind `if` or `elif` on. */
static tsr_jinja_stmt *parse_if(tsr_jinja_parser *p, tsr_location location) {
  static const char *const ends[] = {"elif", "else", "endif", NULL};
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_IF, location);
  if (!(s->value = tsr_jinja_parse_tuple(p, true)) || !parse_body(p, s, ends, &s->body))
    return NULL;
  const tsr_jinja_token *t = &p->tokens[p->at - 1];
  if (t->text.length == 5) return end_block(p) ? s : NULL; /* endif */
  if (t->text.bytes[2] == 's')                             /* else */
    return parse_body(p, s, ends + 2, &s->otherwise) && end_block(p) ? s : NULL;
  tsr_jinja_stmt *next = tsr_jinja_parser_enter(p) ? parse_if(p, t->location) : NULL;
  tsr_jinja_parser_leave(p);
  if (!next) return NULL;
  s->otherwise = (tsr_jinja_block){tsr_arena_array(p->arena, tsr_jinja_stmt *, 1), 1};
  s->otherwise.items[0] = next;
  return s;
}

static tsr_jinja_stmt *parse_for(tsr_jinja_parser *p, tsr_location location) {
  static const char *const ends[] = {"else", "endfor", NULL};
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_FOR, location);
  if (!(s->target = tsr_jinja_parse_target(p, false)) ||
      !tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_NAME, "in") ||
      !(s->value = tsr_jinja_parse_tuple(p, true)))
    return NULL;
  if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "if") &&
      !(s->test = tsr_jinja_parse_expression(p)))
    return NULL;
  s->recursive = tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, "recursive");
  if (!parse_body(p, s, ends, &s->body)) return NULL;
  bool has_else = p->tokens[p->at - 1].text.length == 4;
  if (has_else && !parse_body(p, s, ends + 1, &s->otherwise)) return NULL;
  return end_block(p) ? s : NULL;
}

/* ---- set, macro, call, filter, with ---- */

static tsr_jinja_stmt *parse_set(tsr_jinja_parser *p, tsr_location location) {
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_SET, location);
  if (!(s->target = tsr_jinja_parse_target(p, true))) return NULL;
  if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "="))
    return (s->value = tsr_jinja_parse_tuple(p, false)) && end_block(p) ? s : NULL;
  if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "|") &&
      !(s->filter = tsr_jinja_parse_filters(p, NULL)))
    return NULL;
  return parse_body(p, s, (const char *const[]){"endset", NULL}, &s->body) && end_block(p) ? s
                                                                                           : NULL;
}

static bool add_parameter(tsr_jinja_parser *p, tsr_jinja_stmt *s, bool needs_value) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  if (!tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_NAME, NULL)) return false;
  tsr_jinja_parameter *grown =
      tsr_arena_array(p->arena, tsr_jinja_parameter, s->parameters_count + 1);
  if (s->parameters_count)
    memcpy(grown, s->parameters, sizeof *grown * (size_t)s->parameters_count);
  s->parameters = grown;
  tsr_jinja_parameter *new = &grown[s->parameters_count++];
  new->name = t->text;
  if (needs_value ? !tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, "=")
                  : !tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, "="))
    return !needs_value;
  return (new->value = tsr_jinja_parse_expression(p));
}

/* (a, b=1) of a macro or a call's body. */
static bool parse_parameters(tsr_jinja_parser *p, tsr_jinja_stmt *s) {
  if (!tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, "(")) return false;
  while (!tsr_jinja_parser_is_operator(p, ")")) {
    if (!add_parameter(p, s, false)) return false;
    if (!tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ",")) break;
  }
  return tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_OPERATOR, ")");
}

static tsr_jinja_stmt *parse_macro(tsr_jinja_parser *p, tsr_location location) {
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_MACRO, location);
  s->name = tsr_jinja_parser_token(p)->text;
  return tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_NAME, NULL) && parse_parameters(p, s) &&
                 parse_body(p, s, (const char *const[]){"endmacro", NULL}, &s->body) && end_block(p)
             ? s
             : NULL;
}

static tsr_jinja_stmt *parse_call_block(tsr_jinja_parser *p, tsr_location location) {
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_CALL, location);
  if (tsr_jinja_parser_is_operator(p, "(") && !parse_parameters(p, s)) return NULL;
  if (!(s->value = tsr_jinja_parse_expression(p))) return NULL;
  if (s->value->kind != TSR_JINJA_EXPR_CALL)
    return tsr_jinja_parser_fail(p, s->value->location, "expected a call");
  return parse_body(p, s, (const char *const[]){"endcall", NULL}, &s->body) && end_block(p) ? s
                                                                                            : NULL;
}

static tsr_jinja_stmt *parse_filter_block(tsr_jinja_parser *p, tsr_location location) {
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_FILTER, location);
  if (!(s->filter = tsr_jinja_parse_filters(p, NULL))) return NULL;
  return parse_body(p, s, (const char *const[]){"endfilter", NULL}, &s->body) && end_block(p)
             ? s
             : NULL;
}

static tsr_jinja_stmt *parse_with(tsr_jinja_parser *p, tsr_location location) {
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_WITH, location);
  while (!tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_BLOCK_END, NULL)) {
    if (!add_parameter(p, s, true)) return NULL;
    if (!tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_OPERATOR, ",")) break;
  }
  return parse_body(p, s, (const char *const[]){"endwith", NULL}, &s->body) && end_block(p) ? s
                                                                                            : NULL;
}

static tsr_jinja_stmt *parse_generation(tsr_jinja_parser *p, tsr_location location) {
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_GENERATION, location);
  p->has_generation = true;
  return parse_body(p, s, (const char *const[]){"endgeneration", NULL}, &s->body) && end_block(p)
             ? s
             : NULL;
}

static tsr_jinja_stmt *parse_break(tsr_jinja_parser *p, tsr_location location) {
  return end_block(p) ? new_stmt(p, TSR_JINJA_STMT_BREAK, location) : NULL;
}
static tsr_jinja_stmt *parse_continue(tsr_jinja_parser *p, tsr_location location) {
  return end_block(p) ? new_stmt(p, TSR_JINJA_STMT_CONTINUE, location) : NULL;
}

/* ---- all of them ---- */

static const struct {
  const char *name;
  tsr_jinja_stmt *(*parse)(tsr_jinja_parser *p, tsr_location location);
} statements[] = {{"if", parse_if},           {"for", parse_for},
                  {"set", parse_set},         {"macro", parse_macro},
                  {"call", parse_call_block}, {"filter", parse_filter_block},
                  {"with", parse_with},       {"generation", parse_generation},
                  {"break", parse_break},     {"continue", parse_continue}};

static tsr_jinja_stmt *parse_named_statement(tsr_jinja_parser *p) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  static const char *const refused[] = {"include", "import", "from",       "extends",
                                        "block",   "do",     "autoescape", "trans"};
  if (!tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_NAME, NULL)) return NULL;
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
    if ((size_t)t->text.length == strlen(statements[i].name) &&
        !memcmp(t->text.bytes, statements[i].name, strlen(statements[i].name)))
      return statements[i].parse(p, t->location);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if ((size_t)t->text.length == strlen(refused[i]) &&
        !memcmp(t->text.bytes, refused[i], strlen(refused[i])))
      return tsr_jinja_parser_fail(p, t->location, "'%s' is not supported", refused[i]);
  return tsr_jinja_parser_fail(
      p, t->location, "unknown statement '%.*s'", (int)(t->text.length > 60 ? 60 : t->text.length),
      t->text.bytes);
}

static tsr_jinja_stmt *parse_print(tsr_jinja_parser *p, tsr_location location) {
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_PRINT, location);
  return (s->value = tsr_jinja_parse_tuple(p, false)) &&
                 tsr_jinja_parser_expect(p, TSR_JINJA_TOKEN_PRINT_END, NULL)
             ? s
             : NULL;
}

static tsr_jinja_stmt *parse_statement(tsr_jinja_parser *p) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  p->at++;
  if (t->kind == TSR_JINJA_TOKEN_PRINT_BEGIN) return parse_print(p, t->location);
  if (t->kind == TSR_JINJA_TOKEN_BLOCK_BEGIN) return parse_named_statement(p);
  tsr_jinja_stmt *s = new_stmt(p, TSR_JINJA_STMT_TEXT, t->location);
  s->text = t->text;
  return s;
}

/* Consumes `{%` and one of the names behind it. */
static bool pass_end_name(tsr_jinja_parser *p, const char *const *ends) {
  if (!tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_BLOCK_BEGIN, NULL)) return false;
  p->at++;
  for (int i = 0; ends[i]; i++)
    if (tsr_jinja_parser_pass(p, TSR_JINJA_TOKEN_NAME, ends[i])) return true;
  p->at--;
  return false;
}

static bool
parse_block(tsr_jinja_parser *p, tsr_location of, const char *const *ends, tsr_jinja_block *ret) {
  int capacity = 0;
  if (!tsr_jinja_parser_enter(p)) return false;
  *ret = (tsr_jinja_block){0};
  while (!pass_end_name(p, ends)) {
    if (tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_EOF, NULL)) {
      if (!ends[0]) break;
      int last = 0;
      while (ends[last + 1]) last++;
      tsr_jinja_parser_fail(p, of, "this block has no '%s'", ends[last]);
      return false;
    }
    tsr_jinja_stmt *s = parse_statement(p);
    if (!s) return false;
    tsr_arena_grow(p->arena, (void **)&ret->items, sizeof s, ret->count, &capacity);
    ret->items[ret->count++] = s;
  }
  tsr_jinja_parser_leave(p);
  return true;
}

bool tsr_jinja_parse_block(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_jinja_block *ret_block,
    bool *ret_has_generation, tsr_diags *diags) {
  tsr_jinja_parser p = {.arena = arena, .diags = diags};
  tsr_jinja_token *tokens;
  int count;
  if (!tsr_jinja_tokenize(arena, file, text, length, &tokens, &count, diags)) return false;
  p.tokens = tokens;
  bool ok = parse_block(&p, TSR_NOWHERE, (const char *const[]){NULL}, ret_block) && !p.failed;
  *ret_has_generation = p.has_generation;
  return ok;
}
