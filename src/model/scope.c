// SPDX-License-Identifier: Apache-2.0
/* The names that expressions may use, and their values as text. */
#include "base/text.h"
#include "model/expr.h"
#include <math.h>
#include <string.h>

void tsr_scope_push(tsr_scope *scope, const tsr_name *name) {
  tsr_arena_grow(
      scope->arena, (void **)&scope->names, sizeof *scope->names, scope->count, &scope->capacity);
  scope->names[scope->count++] = *name;
}

void tsr_scope_push_number(tsr_scope *scope, const char *name, double number) {
  tsr_name n = {.name = name, .value = {.kind = TSR_EVAL_NUMBER, .number = number}};
  tsr_scope_push(scope, &n);
}

bool tsr_scope_has_word(const tsr_scope *scope, const char *word) {
  for (int i = 0; i < scope->words_count; i++)
    if (!strcmp(scope->words[i], word)) return true;
  return false;
}

void tsr_scope_word(tsr_scope *scope, const char *word) {
  if (tsr_scope_has_word(scope, word)) return;
  tsr_arena_grow(
      scope->arena, (void **)&scope->words, sizeof *scope->words, scope->words_count,
      &scope->words_capacity);
  scope->words[scope->words_count++] = word;
}

tsr_name *tsr_scope_find(const tsr_scope *scope, const char *name) {
  for (int i = scope->count; i-- > 0;)
    if (*scope->names[i].name == *name && !strcmp(scope->names[i].name, name))
      return &scope->names[i];
  return NULL;
}

const char *tsr_eval_text(tsr_arena *arena, const tsr_eval *value) {
  if (value->kind == TSR_EVAL_NUMBER) {
    double n = value->number;
    bool is_whole = fabs(n) < 1e15 && n == floor(n) && !(n == 0 && signbit(n));
    return is_whole ? tsr_arena_printf(arena, "%lld", (long long)n)
                    : tsr_arena_printf(arena, "%.15g", n);
  }
  if (value->kind == TSR_EVAL_WORD) return value->word;
  tsr_text text = {0};
  bool term = value->kind == TSR_EVAL_TERM;
  tsr_text_add(&text, "%s", term ? value->word : "[");
  for (int i = 0; i < value->count; i++) {
    tsr_text_add(&text, "%s", i ? ", " : term ? "(" : "");
    if (value->words) tsr_text_add(&text, "%s", value->words[i]);
    else tsr_text_add(&text, "%.15g", value->list[i]);
  }
  tsr_text_add(&text, "%s", !term ? "]" : value->count ? ")" : "");
  char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

static bool
fill(tsr_scope *scope, const char *text, tsr_location location, tsr_text *out, tsr_diags *diags) {
  for (const char *open; (open = strchr(text, '{'));) {
    const char *close = strchr(open, '}');
    if (!close) return tsr_diag_error(diags, location, "'{' without '}' in '%s'", text);
    tsr_text_add_bytes(out, text, (size_t)(open - text));
    const char *name = tsr_arena_strndup(scope->arena, open + 1, (size_t)(close - open - 1));
    const tsr_name *n = tsr_scope_find(scope, name);
    if (!n) {
      tsr_diag_error(diags, location, "unknown name '%s' in braces", name);
      const char **names = tsr_arena_array(scope->arena, const char *, scope->count + 1);
      for (int i = 0; i < scope->count; i++) names[i] = scope->names[i].name;
      tsr_diag_nearest(diags, name, names, scope->count);
      return false;
    }
    if (n->bad) return false;
    if (n->unknown)
      return tsr_diag_error(diags, location, "'%s' in braces has no value: %s", name, n->unknown);
    tsr_text_add(out, "%s", tsr_eval_text(scope->arena, &n->value));
    text = close + 1;
  }
  tsr_text_add(out, "%s", text);
  return true;
}

bool tsr_scope_fill(
    tsr_scope *scope, const char *text, tsr_location location, const char **ret_text,
    tsr_diags *diags) {
  tsr_text out = {0};
  bool ok = fill(scope, text, location, &out, diags);
  *ret_text = ok ? tsr_arena_strdup(scope->arena, out.data) : NULL;
  tsr_text_free(&out);
  return ok;
}
