// SPDX-License-Identifier: Apache-2.0
/* requires: an expression and the names it may use. produces: a number, word, list or term. */
#include "model/expr.h"
#include <math.h>
#include <string.h>

static const double WHOLE_MAX = 9007199254740992.0; /* 2^53: doubles are exact up to here */

static bool is_whole(double x) { return x == floor(x) && fabs(x) <= WHOLE_MAX; }

static tsr_eval number_of(double number) {
  return (tsr_eval){.kind = TSR_EVAL_NUMBER, .number = number};
}

static void hint_names(const tsr_scope *scope, const char *name, tsr_diags *diags) {
  int most = scope->count + scope->words_count + scope->terms_count, count = 0;
  const char **names = tsr_arena_array(scope->arena, const char *, most + 1);
  for (int i = 0; i < scope->terms_count; i++) names[count++] = scope->terms[i].name;
  for (int i = 0; i < scope->count; i++) names[count++] = scope->names[i].name;
  for (int i = 0; i < scope->words_count; i++) names[count++] = scope->words[i];
  tsr_diag_nearest(diags, name, names, count);
}

static const tsr_term *find_term(const tsr_scope *scope, const char *name) {
  for (int i = 0; i < scope->terms_count; i++)
    if (!strcmp(scope->terms[i].name, name)) return &scope->terms[i];
  return NULL;
}

/* Python's words, and YAML's. */
static bool is_boolean(const char *name, bool value) {
  return !strcmp(name, value ? "True" : "False") || !strcmp(name, value ? "true" : "false");
}

bool tsr_expr_is_operand(const tsr_expr *e) {
  if (e->kind == TSR_EXPR_CALL) return true;
  return e->kind == TSR_EXPR_NAME && !is_boolean(e->name, true) && !is_boolean(e->name, false);
}

static bool eval_name(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  tsr_name *n = tsr_scope_find(scope, e->name);
  if (n) n->is_read = true;
  if (n && n->unknown && !n->bad)
    return tsr_diag_error(diags, e->location, "'%s' has no value: %s", e->name, n->unknown);
  if (n) return *ret = n->value, !n->bad;
  const tsr_term *term = find_term(scope, e->name);
  if (term && term->args_min == 0)
    return *ret = (tsr_eval){.kind = TSR_EVAL_TERM, .word = e->name}, true;
  if (term)
    return tsr_diag_error(diags, e->location, "'%s' needs its numbers: %s(…)", e->name, e->name);
  if (is_boolean(e->name, true)) return *ret = number_of(1), true;
  if (is_boolean(e->name, false)) return *ret = number_of(0), true;
  if (tsr_scope_has_word(scope, e->name))
    return *ret = (tsr_eval){.kind = TSR_EVAL_WORD, .word = e->name}, true;
  tsr_diag_error(diags, e->location, "unknown name '%s'", e->name);
  hint_names(scope, e->name, diags);
  return false;
}

static const char *describe(tsr_arena *arena, const tsr_eval *v) {
  const char *text = tsr_eval_text(arena, v);
  if (v->kind == TSR_EVAL_NUMBER) return tsr_arena_printf(arena, "the number %s", text);
  if (v->kind == TSR_EVAL_WORD) return tsr_arena_printf(arena, "the word '%s'", text);
  if (v->kind == TSR_EVAL_LIST) return tsr_arena_printf(arena, "the list %s", text);
  return tsr_arena_printf(arena, "'%s'", text);
}

static bool
need_number(const tsr_expr *e, tsr_scope *scope, const tsr_eval *v, double *ret, tsr_diags *diags) {
  *ret = v->number;
  if (v->kind == TSR_EVAL_NUMBER) return true;
  return tsr_diag_error(
      diags, e->location, "'%s' is %s, not a number", e->text, describe(scope->arena, v));
}

static bool eval_number(const tsr_expr *e, tsr_scope *scope, double *ret, tsr_diags *diags) {
  tsr_eval v;
  return tsr_expr_eval(e, scope, &v, diags) && need_number(e, scope, &v, ret, diags);
}

static bool eval_numbers(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  double *list = tsr_arena_array(scope->arena, double, e->count);
  for (int i = 0; i < e->count; i++)
    if (!eval_number(e->args[i], scope, &list[i], diags)) return false;
  *ret = (tsr_eval){.kind = TSR_EVAL_LIST, .count = e->count, .list = list};
  return true;
}

/* A list of `count` that grows by its items, of which the first decides whether all are words. */
typedef struct {
  tsr_eval list;
  double *numbers;
  const char **words;
} growing;

static bool add_item(
    const tsr_expr *e, tsr_scope *scope, int most, growing *g, const tsr_eval *item,
    tsr_diags *diags) {
  bool word = item->kind == TSR_EVAL_WORD;
  if (!word && !need_number(e, scope, item, &(double){0}, diags)) return false;
  if (g->list.count && word != (g->words != NULL))
    return tsr_diag_error(
        diags, e->location, "a list has numbers or words, not both: '%s' is %s", e->text,
        describe(scope->arena, item));
  if (word && !g->words) g->words = tsr_arena_array(scope->arena, const char *, most);
  if (!word && !g->numbers) g->numbers = tsr_arena_array(scope->arena, double, most);
  if (word) g->words[g->list.count++] = item->word;
  else g->numbers[g->list.count++] = item->number;
  return true;
}

static tsr_eval grown(const growing *g) {
  return (tsr_eval){
      .kind = TSR_EVAL_LIST, .count = g->list.count, .list = g->numbers, .words = g->words};
}

static bool eval_list(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  growing g = {0};
  tsr_eval item;
  for (int i = 0; i < e->count; i++)
    if (!tsr_expr_eval(e->args[i], scope, &item, diags) ||
        !add_item(e->args[i], scope, e->count, &g, &item, diags))
      return false;
  return *ret = grown(&g), true;
}

/* list(i, n, e): the values of e for i = 0, ..., n - 1. */
static bool eval_repeated(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  enum { ITEMS_MAX = 1 << 16 };
  const tsr_expr *name = e->args[0], *each = e->args[2];
  double count;
  if (name->kind != TSR_EXPR_NAME)
    return tsr_diag_error(diags, name->location, "list needs a name to count with first");
  if (!eval_number(e->args[1], scope, &count, diags)) return false;
  if (!scope->lists) scope->items = 0;
  if (!is_whole(count) || count < 0 || count > ITEMS_MAX - scope->items)
    return tsr_diag_error(
        diags, e->args[1]->location, "a list and those inside it have 0 to %d items, not %.15g",
        ITEMS_MAX, count);
  growing g = {0};
  bool ok = true;
  scope->lists++;
  tsr_scope_push_number(scope, name->name, 0);
  for (int i = 0; ok && i < (int)count; i++) {
    tsr_eval item;
    scope->items++;
    scope->names[scope->count - 1].value.number = i;
    ok = tsr_expr_eval(each, scope, &item, diags) &&
         add_item(each, scope, (int)count, &g, &item, diags);
  }
  scope->count--;
  scope->lists--;
  if (ok) *ret = grown(&g);
  return ok;
}

static bool need_list(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  if (!tsr_expr_eval(e, scope, ret, diags)) return false;
  if (ret->kind == TSR_EVAL_LIST) return true;
  return tsr_diag_error(
      diags, e->location, "'%s' is %s, not a list", e->text, describe(scope->arena, ret));
}

static tsr_eval item_of(const tsr_eval *list, int i) {
  if (list->words) return (tsr_eval){.kind = TSR_EVAL_WORD, .word = list->words[i]};
  return number_of(list->list[i]);
}

static bool eval_index(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  tsr_eval list;
  double index;
  if (!need_list(e->args[0], scope, &list, diags)) return false;
  if (!eval_number(e->args[1], scope, &index, diags)) return false;
  if (!is_whole(index) || index < 0 || index >= list.count)
    return tsr_diag_error(
        diags, e->args[1]->location, "index %g is outside '%s', which has %d items", index,
        e->args[0]->text, list.count);
  *ret = item_of(&list, (int)index);
  return true;
}

static bool eval_compared(
    const tsr_expr *e, tsr_scope *scope, const tsr_eval *other, tsr_eval *ret, tsr_diags *diags);

/* Where an item of a list is: all its positions. */
static bool eval_where(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  tsr_eval list, x;
  if (!need_list(e->args[0], scope, &list, diags)) return false;
  tsr_eval first = list.count ? item_of(&list, 0) : (tsr_eval){.kind = TSR_EVAL_NUMBER};
  if (!eval_compared(e->args[1], scope, &first, &x, diags)) return false;
  if (x.kind > TSR_EVAL_WORD)
    return tsr_diag_error(
        diags, e->args[1]->location, "'%s' is %s, which no list has", e->args[1]->text,
        describe(scope->arena, &x));
  double *found = tsr_arena_array(scope->arena, double, list.count + 1);
  *ret = (tsr_eval){.kind = TSR_EVAL_LIST, .list = found};
  for (int i = 0; i < list.count; i++) {
    tsr_eval item = item_of(&list, i);
    if (tsr_eval_equal(&item, &x)) found[ret->count++] = i;
  }
  return true;
}

/* contains(list, x), or index(list, x): its first position, or the length. */
static bool
eval_search(const tsr_expr *e, tsr_scope *scope, bool index, tsr_eval *ret, tsr_diags *diags) {
  tsr_eval found, list;
  if (!eval_where(e, scope, &found, diags)) return false;
  if (!index) return *ret = number_of(found.count > 0), true;
  if (!need_list(e->args[0], scope, &list, diags)) return false;
  return *ret = number_of(found.count ? found.list[0] : list.count), true;
}

static double round_up(double x, double m) { return ceil(x / m) * m; }

static bool
eval_function(const tsr_expr *e, tsr_scope *scope, int index, tsr_eval *ret, tsr_diags *diags) {
  double x[2] = {0, 0};
  tsr_eval list;
  if (index == 8 || index == 9) return eval_search(e, scope, index == 9, ret, diags);
  if (index == 10) return eval_where(e, scope, ret, diags);
  if (index == 11) return eval_repeated(e, scope, ret, diags);
  if (index == 6) /* len */
    return need_list(e->args[0], scope, &list, diags) && (*ret = number_of(list.count), true);
  for (int i = 0; i < e->count; i++)
    if (!eval_number(e->args[i], scope, &x[i], diags)) return false;
  if (index == 5 && x[1] <= 0)
    return tsr_diag_error(diags, e->location, "round_up needs a multiple above 0, not %g", x[1]);
  if (index == 7 && x[0] <= 0)
    return tsr_diag_error(diags, e->location, "the logarithm of %g is not a number", x[0]);
  if (index == 4 && x[0] < 0)
    return tsr_diag_error(diags, e->location, "the square root of %g is not a number", x[0]);
  switch (index) {
  case 0:
    *ret = number_of(fmin(x[0], x[1]));
    break;
  case 1:
    *ret = number_of(fmax(x[0], x[1]));
    break;
  case 2:
    *ret = number_of(ceil(x[0]));
    break;
  case 3:
    *ret = number_of(floor(x[0]));
    break;
  case 4:
    *ret = number_of(sqrt(x[0]));
    break;
  case 7:
    *ret = number_of(log(x[0]));
    break;
  default:
    *ret = number_of(round_up(x[0], x[1]));
    break;
  }
  if (index == 2 || index == 3 || index == 5) scope->rest.expr = NULL; /* rounded on purpose */
  return true;
}

static bool eval_term(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  const tsr_term *terms = scope->terms;
  int terms_count = scope->terms_count;
  scope->terms_count = 0;
  bool ok = eval_numbers(e, scope, ret, diags);
  scope->terms = terms;
  scope->terms_count = terms_count;
  ret->kind = TSR_EVAL_TERM;
  ret->word = e->name;
  return ok;
}

static bool check_arguments(const tsr_expr *e, int min, int max, tsr_diags *diags) {
  for (int i = 0; i < e->count; i++)
    if (e->keys[i])
      return tsr_diag_error(
          diags, e->key_places[i], "%s takes no named argument '%s'", e->name, e->keys[i]);
  if (e->count >= min && e->count <= max) return true;
  if (min == max)
    return tsr_diag_error(
        diags, e->location, "%s takes %d argument%s, not %d", e->name, min, min == 1 ? "" : "s",
        e->count);
  return tsr_diag_error(
      diags, e->location, "%s takes %d to %d arguments, not %d", e->name, min, max, e->count);
}

static bool eval_call(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  static const tsr_term functions[] = {{"min", 2, 2},   {"max", 2, 2},   {"ceil", 1, 1},
                                       {"floor", 1, 1}, {"sqrt", 1, 1},  {"round_up", 2, 2},
                                       {"len", 1, 1},   {"log", 1, 1},   {"contains", 2, 2},
                                       {"index", 2, 2}, {"where", 2, 2}, {"list", 3, 3}};
  enum { FUNCTIONS = sizeof functions / sizeof *functions };
  const tsr_term *term = find_term(scope, e->name);
  if (term)
    return check_arguments(e, term->args_min, term->args_max, diags) &&
           eval_term(e, scope, ret, diags);
  const char *names[32];
  int count = 0;
  for (int i = 0; i < FUNCTIONS; i++) {
    names[count++] = functions[i].name;
    if (strcmp(e->name, functions[i].name)) continue;
    return check_arguments(e, functions[i].args_min, functions[i].args_max, diags) &&
           eval_function(e, scope, i, ret, diags);
  }
  if (scope->terms_count) count = 0; /* what is wanted there */
  for (int i = 0; i < scope->terms_count && count < 32; i++) names[count++] = scope->terms[i].name;
  tsr_diag_error(diags, e->name_place, "unknown function '%s'", e->name);
  tsr_diag_nearest(diags, e->name, names, count);
  return false;
}

static bool
divide(const tsr_expr *e, tsr_scope *scope, double a, double b, double *ret, tsr_diags *diags) {
  if (b == 0) return tsr_diag_error(diags, e->location, "'%s' divides by zero", e->text);
  if (e->name[0] == '%') {
    *ret = a - b * floor(a / b);
  } else if (e->name[1]) {
    *ret = floor(a / b);
  } else {
    *ret = a / b;
    if (!scope->rest.expr && is_whole(a) && is_whole(b) && !is_whole(*ret)) {
      scope->rest.expr = e;
      scope->rest.left = a;
      scope->rest.right = b;
    }
  }
  return true;
}

bool tsr_eval_equal(const tsr_eval *a, const tsr_eval *b) {
  if (a->kind != b->kind || a->count != b->count) return false;
  if (a->kind == TSR_EVAL_NUMBER) return a->number == b->number;
  if (a->kind == TSR_EVAL_WORD) return !strcmp(a->word, b->word);
  if (a->count && !a->words != !b->words) return false;
  for (int i = 0; i < a->count; i++)
    if (a->words ? strcmp(a->words[i], b->words[i]) != 0 : a->list[i] != b->list[i]) return false;
  return true;
}

/* Behind a word a name is a word, too, if some size has that choice: `balance.loss == sequence`,
 * though `sequence` alone is the length of the sequences. */
static bool eval_compared(
    const tsr_expr *e, tsr_scope *scope, const tsr_eval *other, tsr_eval *ret, tsr_diags *diags) {
  bool word = other->kind == TSR_EVAL_WORD && e->kind == TSR_EXPR_NAME;
  if (!word || !tsr_scope_has_word(scope, e->name)) return tsr_expr_eval(e, scope, ret, diags);
  *ret = (tsr_eval){.kind = TSR_EVAL_WORD, .word = e->name};
  return true;
}

static bool eval_equality(
    const tsr_expr *e, tsr_scope *scope, const tsr_eval *a, tsr_eval *ret, tsr_diags *diags) {
  tsr_eval b;
  if (!eval_compared(e->args[1], scope, a, &b, diags)) return false;
  if (a->kind != b.kind || a->kind == TSR_EVAL_TERM)
    return tsr_diag_error(
        diags, e->location, "%s cannot be compared with %s", describe(scope->arena, a),
        describe(scope->arena, &b));
  *ret = number_of(tsr_eval_equal(a, &b) == (e->name[0] == '='));
  return true;
}

static bool eval_logic(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  double a;
  if (!eval_number(e->args[0], scope, &a, diags)) return false;
  bool decided = e->name[0] == 'a' ? a == 0 : a != 0;
  if (!decided && !eval_number(e->args[1], scope, &a, diags)) return false;
  *ret = number_of(a != 0);
  return true;
}

static bool eval_binary(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret, tsr_diags *diags) {
  if (e->name[0] == 'a' || e->name[0] == 'o') return eval_logic(e, scope, ret, diags);
  tsr_eval a, b;
  if (!tsr_expr_eval(e->args[0], scope, &a, diags)) return false;
  if (!strcmp(e->name, "==") || !strcmp(e->name, "!="))
    return eval_equality(e, scope, &a, ret, diags);
  if (!tsr_expr_eval(e->args[1], scope, &b, diags)) return false;
  double x, y, z = 0;
  if (!need_number(e->args[0], scope, &a, &x, diags) ||
      !need_number(e->args[1], scope, &b, &y, diags))
    return false;
  switch (e->name[0]) {
  case '+':
    z = x + y;
    break;
  case '-':
    z = x - y;
    break;
  case '*':
    z = x * y;
    break;
  case '<':
    z = e->name[1] ? x <= y : x < y;
    break;
  case '>':
    z = e->name[1] ? x >= y : x > y;
    break;
  default:
    if (!divide(e, scope, x, y, &z, diags)) return false;
  }
  if (!isfinite(z)) return tsr_diag_error(diags, e->location, "'%s' is too large", e->text);
  *ret = number_of(z);
  return true;
}

bool tsr_expr_eval(const tsr_expr *e, tsr_scope *scope, tsr_eval *ret_value, tsr_diags *diags) {
  double x;
  switch (e->kind) {
  case TSR_EXPR_NUMBER:
    return *ret_value = number_of(e->number), true;
  case TSR_EXPR_NAME:
    return eval_name(e, scope, ret_value, diags);
  case TSR_EXPR_LIST:
    return eval_list(e, scope, ret_value, diags);
  case TSR_EXPR_CALL:
    return eval_call(e, scope, ret_value, diags);
  case TSR_EXPR_INDEX:
    return eval_index(e, scope, ret_value, diags);
  case TSR_EXPR_BINARY:
    return eval_binary(e, scope, ret_value, diags);
  case TSR_EXPR_UNARY:
    if (!eval_number(e->args[0], scope, &x, diags)) return false;
    *ret_value = number_of(e->name[0] == '-' ? -x : x == 0);
    return true;
  case TSR_EXPR_IF:
    if (!eval_number(e->args[1], scope, &x, diags)) return false;
    return tsr_expr_eval(e->args[x != 0 ? 0 : 2], scope, ret_value, diags);
  }
  return false;
}
