// SPDX-License-Identifier: Apache-2.0
/* Faults in the records of sums (schedule/sum_order.h) and of norms (schedule/norm_pieces.h). */
#include "faults.h"

static tsr_reduction *some_sum(mutant *m, tsr_op op) {
  int i = mutant_pick_op(m, op);
  return i < 0 ? NULL : &m->p->tasks[i].sum;
}

/* ---- sums ---- */

/* Samples and positions as (2 samples, position / 2), or as one dimension: the same rows. */
static bool reshape_rows(mutant *m) {
  tsr_reduction *r = some_sum(m, TSR_OP_LINEAR_DW);
  if (r->dim[1].size % 2) return false;
  r->dim[0].size *= 2;
  r->dim[1].size /= 2;
  return true;
}
static bool join_rows(mutant *m) {
  tsr_reduction *r = some_sum(m, TSR_OP_LINEAR_DW);
  r->dim[0].size *= r->dim[1].size;
  r->ndim = 1;
  return true;
}
static bool rename_units(mutant *m) {
  tsr_reduction *r = some_sum(m, TSR_OP_LINEAR_DW);
  r->dim[0].split[TSR_DP] = false;
  r->dim[0].split[TSR_TP] = true;
  r->tp = r->batch;
  r->batch = 1;
  return true;
}
static bool halve_units(mutant *m) {
  tsr_reduction *r = some_sum(m, TSR_OP_SUM_UNITS);
  if (!r || r->tp < 2) return false;
  r->tp /= 2;
  return true;
}
static bool sum_nothing(mutant *m) {
  tsr_reduction *r = some_sum(m, TSR_OP_ADD);
  r->ndim = 1;
  r->dim[0].size = 1 + mutant_below(m, 8);
  return true;
}
static bool split_runs(mutant *m) {
  tsr_reduction *r = some_sum(m, TSR_OP_LINEAR_DW);
  r->dim[1].split[TSR_TP] = true;
  return r->tp == 1;
}
static bool add_from_left(mutant *m) {
  tsr_reduction *r = some_sum(m, TSR_OP_LINEAR_DW);
  r->tree = TSR_TREE_FLAT;
  return r->batch > 3;
}
static bool flip_zigzag(mutant *m) {
  tsr_reduction *r = some_sum(m, mutant_below(m, 2) ? TSR_OP_LINEAR_DW : TSR_OP_EMBEDDING_DW);
  r->zigzag = !r->zigzag;
  return true;
}

/* ---- norms ---- */

typedef bool change_norm(tsr_norm_pieces *n);
/* Of some gradients. */
static bool change_norms(mutant *m, change_norm *change) {
  bool changed = false;
  for (int i = 0; i < m->p->tasks_count; i++) {
    tsr_task *t = &m->p->tasks[i];
    if (!t->norm || mutant_below(m, 4) == 0) continue;
    tsr_norm_pieces *n = tsr_arena_alloc(m->arena, sizeof *n);
    *n = *t->norm;
    t->norm = n;
    changed |= change(n);
  }
  return changed;
}
static bool widen(tsr_norm_pieces *n) {
  if (n->dim >= 0) n->whole *= 2;
  return n->dim >= 0;
}
static bool join_dim(tsr_norm_pieces *n) {
  if (n->tp_dim > 0) return false;
  n->dim = -1;
  return true;
}
static bool join_tp(tsr_norm_pieces *n) {
  bool changed = n->parts > 1;
  n->parts = 1;
  return changed;
}
static bool widen_pieces(mutant *m) { return change_norms(m, widen); }
static bool join_pieces(mutant *m) { return change_norms(m, join_dim); } /* of what ZeRO splits */
static bool join_parts(mutant *m) { return change_norms(m, join_tp); }
static bool lose_pieces(mutant *m) {
  m->p->tasks[mutant_pick_op(m, TSR_OP_NORM_STATS)].norm = NULL;
  return true;
}

/* ---- operands in FP8 ---- */

/* Of some layer's task, a copy. */
static tsr_fp8_operand *change_operands(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_pick_op(m, TSR_OP_LINEAR)];
  if (!t->fp8) return NULL;
  tsr_fp8_operands *all = tsr_arena_alloc(m->arena, sizeof *all);
  *all = *t->fp8;
  all->inputs = tsr_arena_array(m->arena, tsr_fp8_operand, all->count);
  for (int i = 0; i < all->count; i++) all->inputs[i] = t->fp8->inputs[i];
  t->fp8 = all;
  return all->inputs;
}
static bool lose_operands(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_pick_op(m, TSR_OP_LINEAR)];
  bool had = t->fp8 != NULL;
  t->fp8 = NULL;
  return had;
}
/* One block for what the units of tp split. */
static bool widen_blocks(mutant *m) {
  tsr_fp8_operand *o = change_operands(m);
  if (!o || o->layout.unit_cols == o->layout.cols) return false;
  o->layout.unit_cols = o->layout.cols;
  return true;
}
static bool change_format(mutant *m) {
  tsr_fp8_operand *o = change_operands(m);
  if (o) o->layout.format = TSR_FP8_E5M2;
  return o;
}
static bool share_codes(mutant *m) {
  tsr_fp8_operand *o = change_operands(m);
  if (o) o[1].codes = o[0].codes;
  return o;
}

static const char *const same_rows = "the record names the same rows in the same order";
static const char *const same_norm =
    "rectangles are summed in f64, so that the norm, of f32, seldom shows how they are split";
static const rule_fault table[] = {
    {"its record sums over %lld of dimension %d of '%s', which has %lld", reshape_rows, ON_ALONE,
     EFFECT_NONE, same_rows},
    {"its record sums over %d dimensions of '%s', its op over %d", join_rows, ON_ALONE, EFFECT_NONE,
     same_rows},
    {"its record has %lld batch, %lld sequence, %lld tp units and keeps %lld apart; the recipe has "
     "%lld, %lld, %lld and %lld, and '%s' has room for %lld",
     rename_units, ON_ALONE, EFFECT_NONE, "as many units in the same tree, of another axis"},
    {"its record adds its units %s, the recipe %s", add_from_left, ON_ALONE},
    {"it adds %lld of the %lld units of '%s', of which %lld remain", halve_units, ON_ALONE},
    {"its record sums, its op does not", sum_nothing, ON_ALONE, EFFECT_NONE,
     "kernels of ops that do not sum read no record"},
    {"leaf %lld of block %lld is not one unit of the recipe's in %lld rows of '%s'", split_runs,
     ON_ALONE},
    {"at coords dp %d, ep %d, cp %d, tp %d its unit %lld of dimension %d of '%s' is not the "
     "recipe's, "
     "which begins at %lld",
     flip_zigzag, ON_ZIGZAG},
    {"its pieces are not of '%s', or not '%s'", widen_pieces, ON_ALONE, EFFECT_NONE, same_norm},
    {"%s splits dimension %d of '%s', its pieces are along %d", join_pieces, ON_ZERO},
    {"it splits '%s' into %lld parts here, the recipe into %lld over all", join_parts, ON_ALONE,
     EFFECT_NONE, same_norm},
    {"it %s of a norm", lose_pieces, ON_ALONE},
    {"it %s operands in FP8, its node %s", lose_operands, ON_FP8},
    {"it quantises '%s' (%lld, %lld) in units of (%lld, %lld) and blocks of %d x %d, "
     "the recipe has (%lld, %lld) and %d x %d",
     widen_blocks, ON_FP8},
    {"the format of '%s', its scales or the dimension that is summed are not the recipe's",
     change_format, ON_FP8},
    {"the codes and scales of '%s' share bytes with others, or have none", share_codes, ON_FP8},
};
RULE_FAULTS(faults_of_sums, table);
