// SPDX-License-Identifier: Apache-2.0
/* What readers of graph files ask of an expression: a whole number, a condition, a shape. */
#include "model/expr.h"
#include <inttypes.h>
#include <math.h>

bool tsr_expr_number(const tsr_expr *e, tsr_scope *scope, double *ret_number, tsr_diags *diags) {
  tsr_eval v;
  if (!tsr_expr_eval(e, scope, &v, diags)) return false;
  *ret_number = v.number;
  if (v.kind == TSR_EVAL_NUMBER) return true;
  return tsr_diag_error(
      diags, e->location, "'%s' is '%s', not a number", e->text, tsr_eval_text(scope->arena, &v));
}

bool tsr_expr_true(const tsr_expr *e, tsr_scope *scope, bool *ret_true, tsr_diags *diags) {
  double x;
  if (!tsr_expr_number(e, scope, &x, diags)) return false;
  *ret_true = x != 0;
  return true;
}

/* "num_heads 6", or just "6" for what is not a name. */
static const char *operand(tsr_arena *arena, const tsr_expr *e, double value) {
  if (e->kind == TSR_EXPR_NUMBER) return tsr_arena_printf(arena, "%.15g", value);
  return tsr_arena_printf(arena, "%s %.15g", e->text, value);
}

/* Where the user wrote one of the two numbers, if he did. */
static tsr_location operand_place(const tsr_expr *division, const tsr_scope *scope) {
  for (int i = 1; i >= 0; i--) {
    const tsr_expr *e = division->args[i];
    const tsr_name *n = e->kind == TSR_EXPR_NAME ? tsr_scope_find(scope, e->name) : NULL;
    if (n && n->given) return n->location;
  }
  return division->location;
}

static bool check_whole(
    const tsr_expr *e, tsr_scope *scope, const char *what, double x, int64_t min,
    tsr_diags *diags) {
  if (x == floor(x) && fabs(x) < 9e15) {
    if (x >= (double)min) return true;
    return tsr_diag_error(
        diags, e->location, "%s must be at least %" PRId64 ", not %.15g", what, min, x);
  }
  const tsr_expr *d = scope->rest.expr;
  if (d)
    return tsr_diag_error(
        diags, operand_place(d, scope), "%s does not divide %s",
        operand(scope->arena, d->args[1], scope->rest.right),
        operand(scope->arena, d->args[0], scope->rest.left));
  return tsr_diag_error(diags, e->location, "%s must be a whole number, not %.15g", what, x);
}

bool tsr_expr_whole(
    const tsr_expr *e, tsr_scope *scope, const char *what, int64_t min, int64_t *ret_whole,
    tsr_diags *diags) {
  double x;
  scope->rest.expr = NULL;
  if (!tsr_expr_number(e, scope, &x, diags) || !check_whole(e, scope, what, x, min, diags))
    return false;
  *ret_whole = (int64_t)x;
  return true;
}

/* The largest size of the expression that the user has given; NULL: none is. */
static const tsr_name *find_largest_given(const tsr_scope *scope, const tsr_expr *e) {
  const tsr_name *n = e->kind == TSR_EXPR_NAME ? tsr_scope_find(scope, e->name) : NULL;
  const tsr_name *largest = n && n->given && n->value.kind == TSR_EVAL_NUMBER ? n : NULL;
  for (int i = 0; i < e->count; i++) {
    n = find_largest_given(scope, e->args[i]);
    if (n && (!largest || n->value.number > largest->value.number)) largest = n;
  }
  return largest;
}

bool tsr_expr_shape(
    const tsr_expr *e, tsr_scope *scope, const char *what, int64_t min, int max, int64_t *ret_shape,
    int *ret_ndim, tsr_diags *diags) {
  bool ok = true;
  tsr_eval v;
  if (e->kind != TSR_EXPR_LIST) {
    scope->rest.expr = NULL;
    if (!tsr_expr_eval(e, scope, &v, diags)) return false;
    if (v.kind != TSR_EVAL_LIST || v.words)
      return tsr_diag_error(
          diags, e->location, "%s must be a list%s, not '%s'", what, v.words ? " of numbers" : "",
          e->text);
  }
  int count = e->kind == TSR_EXPR_LIST ? e->count : v.count;
  if (count < 1 || count > max)
    return tsr_diag_error(
        diags, e->location, "%s must have 1 to %d dimensions, not %d", what, max, count);
  for (int i = 0; i < count; i++) {
    if (e->kind == TSR_EXPR_LIST) {
      const tsr_expr *a = e->args[i];
      const char *name = a->kind == TSR_EXPR_NUMBER ? "a dimension" : a->text;
      ok &= tsr_expr_whole(a, scope, name, min, &ret_shape[i], diags);
    } else {
      ok &= check_whole(e, scope, what, v.list[i], min, diags);
      if (ok) ret_shape[i] = (int64_t)v.list[i];
    }
  }
  double elements = 1;
  for (int i = 0; ok && i < count; i++) elements *= fabs((double)ret_shape[i]);
  const tsr_name *given = ok && elements > 1e15 ? find_largest_given(scope, e) : NULL;
  if (ok && elements > 1e15)
    return tsr_diag_error(
        diags, given ? given->location : e->location, "%s has more than 10^15 elements", what);
  *ret_ndim = count;
  return ok;
}

void tsr_expr_dims(const tsr_expr *e, int max, const char **ret_dims) {
  for (int i = 0; i < max; i++)
    ret_dims[i] = e->kind == TSR_EXPR_LIST && i < e->count && e->args[i]->kind != TSR_EXPR_NUMBER
                      ? e->args[i]->text
                      : NULL;
}
