// SPDX-License-Identifier: Apache-2.0
#include "jinja/parser.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool tsr_jinja_parser_is(const tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *text) {
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  return t->kind == kind && (!text || ((size_t)t->text.length == strlen(text) &&
                                       !memcmp(t->text.bytes, text, strlen(text))));
}
bool tsr_jinja_parser_is_name(const tsr_jinja_parser *p, const char *name) {
  return tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_NAME, name);
}
bool tsr_jinja_parser_is_operator(const tsr_jinja_parser *p, const char *text) {
  return tsr_jinja_parser_is(p, TSR_JINJA_TOKEN_OPERATOR, text);
}
bool tsr_jinja_parser_pass(tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *text) {
  if (!tsr_jinja_parser_is(p, kind, text)) return false;
  if (kind != TSR_JINJA_TOKEN_EOF) p->at++;
  return true;
}

const char *tsr_jinja_token_name(tsr_jinja_token_kind kind) {
  static const char *const texts[] = {
      "text",
      "'{%'",
      "'%}'",
      "'{{'",
      "'}}'",
      "a name",
      "a string",
      "an integer",
      "a float",
      "an operator",
      "the end of the template"};
  return texts[kind];
}

void *tsr_jinja_parser_fail(tsr_jinja_parser *p, tsr_location location, const char *format, ...) {
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

bool tsr_jinja_parser_expect(tsr_jinja_parser *p, tsr_jinja_token_kind kind, const char *text) {
  if (tsr_jinja_parser_pass(p, kind, text)) return true;
  const tsr_jinja_token *t = tsr_jinja_parser_token(p);
  bool shown = t->kind == TSR_JINJA_TOKEN_NAME || t->kind == TSR_JINJA_TOKEN_OPERATOR;
  char is[80];
  snprintf(
      is, sizeof is, "'%.*s'", (int)(t->text.length > 60 ? 60 : t->text.length), t->text.bytes);
  tsr_jinja_parser_fail(
      p, t->location, text ? "expected '%s', not %s" : "expected %s, not %s",
      text ? text : tsr_jinja_token_name(kind), shown ? is : tsr_jinja_token_name(t->kind));
  return false;
}

bool tsr_jinja_parser_enter(tsr_jinja_parser *p) {
  if (++p->depth <= TSR_JINJA_NESTING_MAX) return true;
  tsr_jinja_parser_fail(
      p, tsr_jinja_parser_token(p)->location,
      "expressions and blocks are nested more than %d levels deep", TSR_JINJA_NESTING_MAX);
  return false;
}
void tsr_jinja_parser_leave(tsr_jinja_parser *p) { p->depth--; }

tsr_jinja_expr *
tsr_jinja_parser_new(tsr_jinja_parser *p, tsr_jinja_expr_kind kind, tsr_location location) {
  tsr_jinja_expr *e = tsr_arena_alloc(p->arena, sizeof *e);
  e->kind = kind;
  e->location = location;
  return e;
}

void *tsr_jinja_grown(tsr_jinja_parser *p, void *items, int count, size_t bytes) {
  if (count & (count - 1)) return items;
  void *more = tsr_arena_alloc(p->arena, bytes * (size_t)(count ? 2 * count : 1));
  if (count) memcpy(more, items, bytes * (size_t)count);
  return more;
}

void tsr_jinja_parser_add_item(tsr_jinja_parser *p, tsr_jinja_expr *e, tsr_jinja_expr *item) {
  e->items = tsr_jinja_grown(p, e->items, e->items_count, sizeof(tsr_jinja_expr *));
  e->items[e->items_count++] = item;
}
