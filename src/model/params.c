// SPDX-License-Identifier: Apache-2.0
/* requires: a parameter's declaration, sizes and loop variables. produces: the graph's
 * parameter. */
#include "model/build.h"
#include <string.h>

typedef struct {
  tsr_scope *scope;
  tsr_param_decl *decl;
  tsr_param *param;
  int64_t tp_units;
  bool uneven;
  tsr_diags *diags;
} maker;

static bool eval_term(
    const maker *m, const tsr_expr *e, const tsr_term *terms, int count, const char *what,
    tsr_eval *ret) {
  m->scope->terms = terms;
  m->scope->terms_count = count;
  bool ok = tsr_expr_eval(e, m->scope, ret, m->diags);
  m->scope->terms = NULL;
  m->scope->terms_count = 0;
  if (!ok || ret->kind == TSR_EVAL_TERM) return ok;
  const char *names[8];
  for (int i = 0; i < count; i++) names[i] = terms[i].name;
  tsr_diag_error(m->diags, e->location, "'%s' is not %s of '%s'", e->text, what, m->param->name);
  tsr_diag_nearest(m->diags, e->text, names, count);
  return false;
}

static bool make_init(const maker *m) {
  static const tsr_term terms[] = {
      {"zeros", 0, 0}, {"ones", 0, 0}, {"normal", 1, 2}, {"uniform", 2, 2}};
  static const tsr_init_kind kinds[] = {
      TSR_INIT_ZEROS, TSR_INIT_ONES, TSR_INIT_NORMAL, TSR_INIT_UNIFORM};
  tsr_init *init = &m->param->init;
  tsr_eval v;
  if (!m->decl->init) return true;
  if (!eval_term(m, m->decl->init, terms, 4, "an init", &v)) return false;
  for (int i = 0; i < 4; i++)
    if (!strcmp(v.word, terms[i].name)) init->kind = kinds[i];
  if (v.count == 2) init->a = v.list[0];
  if (v.count) init->b = v.list[v.count - 1];
  if (init->kind == TSR_INIT_NORMAL && init->b < 0)
    return tsr_diag_error(
        m->diags, m->decl->init->location, "the spread of normal must not be below 0, is %g",
        init->b);
  if (init->kind == TSR_INIT_UNIFORM && init->a > init->b)
    return tsr_diag_error(
        m->diags, m->decl->init->location, "uniform(%g, %g) has its ends the wrong way round",
        init->a, init->b);
  return true;
}

static bool make_placement(const maker *m, int axis) {
  static const tsr_term terms[] = {{"replicate", 0, 0}, {"shard", 1, 1}};
  const tsr_expr *e = m->decl->placement[axis];
  tsr_placement *p = &m->param->placement[axis];
  *p = m->decl->layout[axis];
  if (!e) return true;
  tsr_eval v;
  if (!eval_term(m, e, terms, 2, "a placement", &v)) return false;
  if (!v.count) return true;
  double dim = v.list[0] < 0 ? v.list[0] + m->param->ndim : v.list[0];
  *p = (tsr_placement){TSR_SHARD, dim >= 0 && dim < TSR_DIMS_MAX ? (int)dim : TSR_DIMS_MAX};
  if (p->dim != dim)
    return tsr_diag_error(
        m->diags, e->location, "parameter '%s' has no dimension %g", m->param->name, v.list[0]);
  return true;
}

static const char *shape_text(const maker *m) {
  const tsr_param *p = m->param;
  return tsr_named_shape_text(m->scope->arena, p->ndim, p->shape, p->dims);
}

static bool check_placement(const maker *m, int axis) {
  const tsr_placement *p = &m->param->placement[axis];
  const tsr_expr *e = m->decl->placement[axis];
  if (p->kind != TSR_SHARD) return true;
  if (p->dim >= m->param->ndim)
    return tsr_diag_error(
        m->diags, e ? e->location : m->decl->location,
        "parameter '%s' %s has no dimension %d to split over %s", m->param->name, shape_text(m),
        p->dim, tsr_axis_name(axis));
  int64_t size = m->param->shape[p->dim];
  if (p->dim == 0 && tsr_param_is_of_experts(m->param)) return true; /* whole ones, not units */
  if (axis != TSR_TP || size % m->tp_units == 0) return true;
  bool has_padding = m->param->padding.blocks > 0;
  if (m->uneven && !has_padding)
    return m->param->padding = (tsr_padding){p->dim, size, m->tp_units}, true;
  tsr_diag_error(
      m->diags, m->decl->location,
      "parameter '%s': %lld tp units do not divide its dimension %d of %lld%s", m->param->name,
      (long long)m->tp_units, p->dim, (long long)size,
      m->uneven ? ", and a parameter with valid0 has no uneven blocks" : "");
  tsr_diag_hint(
      m->diags, "tp units are numerics.units.tp, else the mesh's tp size%s",
      m->uneven ? "; without valid0 the blocks may be uneven" : "");
  return false;
}

/* The rows of dimension 0 behind the first `valid0` are padding; 0: none. */
static bool make_valid_rows(const maker *m) {
  const tsr_expr *e = m->decl->valid0;
  int64_t valid, rows = m->param->shape[0];
  if (!e) return true;
  if (!tsr_expr_whole(e, m->scope, "valid0", 0, &valid, m->diags)) return false;
  if (valid) m->param->padding = (tsr_padding){0, valid, 1};
  if (valid <= rows) return true;
  return tsr_diag_error(
      m->diags, e->location, "'%s' has %lld rows, so %lld cannot be valid", m->param->name,
      (long long)rows, (long long)valid);
}

/* `{expert}` stays as it is, because the parameter has a tensor there for each expert. A name of
 * the graph file's own comes first. */
static bool make_hf_name(const maker *m) {
  static const char mark[] = "{expert}";
  const tsr_param_decl *d = m->decl;
  if (!d->hf) return true;
  const char **name = &m->param->hf_name;
  if (!strstr(d->hf, mark) || tsr_scope_find(m->scope, "expert"))
    return tsr_scope_fill(m->scope, d->hf, d->hf_place, name, m->diags);
  if (!tsr_param_is_of_experts(m->param)) {
    tsr_diag_error(
        m->diags, d->hf_place, "parameter '%s' %s has no dimension of experts for '%s' in its name",
        m->param->name, shape_text(m), mark);
    tsr_diag_hint(m->diags, "dimension 0 of 'ep: shard(0)' is experts");
    return false;
  }
  tsr_name expert = {.name = "expert", .value = {.kind = TSR_EVAL_WORD, .word = mark}};
  tsr_scope_push(m->scope, &expert);
  bool ok = tsr_scope_fill(m->scope, d->hf, d->hf_place, name, m->diags);
  m->scope->count--;
  return ok;
}

/* As a mark in the name, "name#2:5/8". */
static bool make_hf_rows(const maker *m) {
  static const char *const what[] = {"the first row", "the last row", "the number of rows"};
  const tsr_expr *e = m->decl->hf_rows;
  tsr_param *p = m->param;
  int64_t rows[3], shape[TSR_DIMS_MAX];
  if (!e) return true;
  if (!p->hf_name || strchr(p->hf_name, '#'))
    return tsr_diag_error(
        m->diags, e->location, "'hf_rows' of '%s' needs 'hf', a name without '#'", p->name);
  if (e->kind != TSR_EXPR_LIST || e->count != 3)
    return tsr_diag_error(m->diags, e->location, "'hf_rows' must be a list [begin, end, of]");
  for (int i = 0; i < 3; i++)
    if (!tsr_expr_whole(e->args[i], m->scope, what[i], 0, &rows[i], m->diags)) return false;
  tsr_param_real_shape(p, shape);
  int64_t out = shape[tsr_param_is_of_experts(p) && p->ndim > 1];
  if (rows[0] >= rows[1] || rows[1] > rows[2] || out % (rows[1] - rows[0]))
    return tsr_diag_error(
        m->diags, e->location,
        "'%s' has %lld rows, which cannot be rows %lld to %lld of every %lld", p->name,
        (long long)out, (long long)rows[0], (long long)rows[1], (long long)rows[2]);
  p->hf_name = tsr_arena_printf(
      m->scope->arena, "%s#%lld:%lld/%lld", p->hf_name, (long long)rows[0], (long long)rows[1],
      (long long)rows[2]);
  return true;
}

bool tsr_param_make(
    tsr_scope *scope, tsr_param_decl *decl, const char *prefix, int64_t tp_units, bool uneven,
    tsr_param *ret_param, tsr_diags *diags) {
  *ret_param = (tsr_param){
      .hf_transposed = decl->hf_transposed, .dtype = decl->dtype, .location = decl->location};
  ret_param->replaces = decl->replaces;
  ret_param->name = tsr_arena_printf(scope->arena, "%s%s", prefix, decl->name);
  maker m = {scope, decl, ret_param, tp_units, uneven, diags};
  const char *what = tsr_arena_printf(scope->arena, "the shape of '%s'", ret_param->name);
  if (!tsr_expr_shape(
          decl->shape, scope, what, 1, TSR_DIMS_MAX, ret_param->shape, &ret_param->ndim, diags))
    return false;
  tsr_expr_dims(decl->shape, TSR_DIMS_MAX, ret_param->dims);
  ret_param->decay = decl->decay < 0 ? ret_param->ndim >= 2 : decl->decay;
  bool ok = make_valid_rows(&m);
  ok &= make_init(&m);
  for (int axis = 0; axis < TSR_AXES; axis++)
    ok &= make_placement(&m, axis) && check_placement(&m, axis);
  return ok && make_hf_name(&m) && make_hf_rows(&m);
}
