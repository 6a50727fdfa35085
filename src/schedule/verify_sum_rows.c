// SPDX-License-Identifier: Apache-2.0
/* The rows of a sum, and where they are on every rank. */
#include "base/sequence_layout.h"
#include "schedule/verify_sums.h"

/* ---- rows ---- */

/* The local units of a block's leaf, as the combination that they are in a dimension. */
static int64_t combination_of(const tsr_sum_check *c, int dim, int64_t block, int64_t leaf) {
  int64_t at[TSR_UNITS_KINDS], m = 0;
  at[TSR_UNITS_KEPT] = block % c->units[TSR_UNITS_KEPT];
  at[TSR_UNITS_TP] = leaf % c->units[TSR_UNITS_TP];
  at[TSR_UNITS_SEQUENCE] = leaf / c->units[TSR_UNITS_TP] % c->units[TSR_UNITS_SEQUENCE];
  at[TSR_UNITS_BATCH] = c->apart ? block / c->units[TSR_UNITS_KEPT]
                                 : leaf / c->units[TSR_UNITS_TP] / c->units[TSR_UNITS_SEQUENCE];
  for (int k = 0; k < c->dim[dim].splits_count; k++)
    m = m * c->dim[dim].splits[k].local + at[c->dim[dim].splits[k].kind];
  return m;
}

/* A run of rows ends with the innermost dimension that the recipe splits, whether or not this rank
 * has all of it; where a dimension with nothing split behind it is kept apart, runs are of those
 * before it. Dimensions [run, end) are in a run. */
static void find_run(const tsr_sum_check *c, int *ret_run, int *ret_end) {
  int end = c->strided ? c->kept : c->dims, run = end - 1;
  while (run > 0 && !c->dim[run].splits_count) run--;
  *ret_run = run > 0 ? run : 0;
  *ret_end = end;
}

/* The dimensions in the order in which rows are summed, innermost last; returns a run's rows. */
static int64_t order_dims(const tsr_sum_check *c, int *ret_order) {
  int n = 0, run, end;
  int64_t rows = 1;
  find_run(c, &run, &end);
  for (int d = 0; d < run; d++) ret_order[n++] = d;
  for (int d = end; d < c->dims; d++) ret_order[n++] = d;
  for (int d = run; d < end; d++) ret_order[n++] = d, rows *= c->dim[d].width;
  return rows;
}

/* A leaf's rows are a slice: `width` rows of each dimension from `base` on. There are as many
 * slices as combinations, which `seen` counts through, and those of a dimension are a grid, of
 * which `taken` has the places: so no row is summed twice where no slice is, however many rows
 * there are. */
typedef struct {
  int order[TSR_REDUCED_DIMS_MAX];
  int64_t base[TSR_REDUCED_DIMS_MAX], stride[TSR_REDUCED_DIMS_MAX];
  int64_t rows, run_rows; /* of the leaf, of one of its runs */
  int64_t step;           /* from a row of a run to the next; 0: they are not in equal steps */
  bool *taken[TSR_REDUCED_DIMS_MAX], *seen;
} leaf_rows;

/* The row that the leaf sums k-th. */
static int64_t nth_row(const tsr_sum_check *c, const leaf_rows *l, int64_t k) {
  int64_t row = 0;
  for (int i = c->dims - 1; i >= 0; i--) {
    int d = l->order[i];
    row += (l->base[d] + k % c->dim[d].width) * l->stride[d];
    k /= c->dim[d].width;
  }
  return row;
}

/* A combination's units begin where no other's do. */
static bool take_place(tsr_sum_dim *d, bool *taken, int64_t m, int64_t at) {
  if (d->begin[m] >= 0) return d->begin[m] == at;
  if (at % d->width || at / d->width >= d->combinations || taken[at / d->width]) return false;
  taken[at / d->width] = true;
  d->begin[m] = at;
  return true;
}

/* The first row of a leaf determines where its units begin. */
static bool find_base(tsr_sum_check *c, leaf_rows *l, int64_t block, int64_t leaf, int64_t row) {
  int64_t slice = 0;
  for (int d = 0; d < c->dims; d++) {
    int64_t m = combination_of(c, d, block, leaf), at = row / l->stride[d] % c->dim[d].local;
    if (!take_place(&c->dim[d], l->taken[d], m, at) || at + c->dim[d].width > c->dim[d].local)
      return false;
    l->base[d] = at;
    slice = slice * c->dim[d].combinations + m;
  }
  bool again = l->seen[slice];
  l->seen[slice] = true;
  return !again;
}

/* The rows of a run, its dimensions counted through, are in equal steps where each dimension steps
 * over all of those behind it. */
static int64_t step_of_run(const tsr_sum_check *c, const leaf_rows *l) {
  int64_t rows = 1, step = 0;
  for (int i = c->dims - 1; i >= 0 && rows < l->run_rows; i--) {
    const tsr_sum_dim *d = &c->dim[l->order[i]];
    if (d->width == 1) continue;
    if (rows == 1) step = l->stride[l->order[i]];
    else if (l->stride[l->order[i]] != step * rows) return 0;
    rows *= d->width;
  }
  return step;
}

/* Whether the record splits a dimension into equal units, which its rows are counted in. */
static bool divides(const tsr_reduction *r) {
  for (int d = 0; d < r->ndim; d++) {
    int64_t splits = tsr_reduction_splits(r, d);
    if (splits < 1 || r->dim[d].size < 1 || r->dim[d].size % splits) return false;
  }
  return true;
}

static bool
check_run(tsr_sum_check *c, const leaf_rows *l, int64_t block, int64_t leaf, int64_t k) {
  tsr_reduced_rows run;
  return tsr_reduction_rows(c->r, block, leaf, k, &run) && run.rows == l->run_rows &&
         run.first == nth_row(c, l, k * l->run_rows) && (run.rows == 1 || run.step == l->step);
}

/* Of very many runs, which are counted through dimensions, those at the ends of each dimension. */
static bool
check_ends(tsr_sum_check *c, const leaf_rows *l, int64_t block, int64_t leaf, int64_t runs) {
  for (int64_t i = c->dims - 1, rows = 1; i >= 0; i--) {
    int64_t width = c->dim[l->order[i]].width, k = rows / l->run_rows;
    if (rows >= l->run_rows && width > 1 &&
        !(check_run(c, l, block, leaf, k) && check_run(c, l, block, leaf, k * (width - 1))))
      return false;
    rows *= width;
  }
  return check_run(c, l, block, leaf, runs - 1);
}

static bool check_leaf(tsr_sum_check *c, leaf_rows *l, int64_t block, int64_t leaf) {
  enum { RUNS_MAX = 1 << 16 };
  int64_t runs = l->rows / l->run_rows, looked = runs < RUNS_MAX ? runs : RUNS_MAX;
  tsr_reduced_rows run;
  if (!tsr_reduction_rows(c->r, block, leaf, 0, &run) || !find_base(c, l, block, leaf, run.first))
    return false;
  for (int64_t k = 0; k < looked; k++)
    if (!check_run(c, l, block, leaf, k)) return false;
  return (looked == runs || check_ends(c, l, block, leaf, runs)) &&
         !tsr_reduction_rows(c->r, block, leaf, runs, &run);
}

/* Every leaf has as many rows, so that none is left out where none is summed twice. */
static bool check_rows(tsr_sum_check *c) {
  leaf_rows l = {.rows = 1};
  int64_t all = 1, slices = 1;
  for (int d = c->dims - 1; d >= 0; d--) {
    l.stride[d] = all;
    all *= c->dim[d].local;
    l.rows *= c->dim[d].width;
    l.taken[d] = tsr_arena_array(c->v->brief, bool, c->dim[d].combinations);
    slices *= c->dim[d].combinations;
  }
  l.run_rows = order_dims(c, l.order);
  l.step = step_of_run(c, &l);
  l.seen = tsr_arena_array(c->v->brief, bool, slices);
  bool whole = divides(c->r);
  for (int64_t block = 0; block < tsr_reduction_blocks(c->r); block++)
    for (int64_t leaf = 0; leaf < tsr_reduction_leaves(c->r); leaf++)
      if (!(whole && check_leaf(c, &l, block, leaf)) &&
          !tsr_verify_say_task(
              c->v, c->s, c->task, -1,
              "leaf %lld of block %lld is not one unit of the recipe's in %lld rows of '%s'",
              (long long)leaf, (long long)block, (long long)all, c->in->name))
        return false;
  return true;
}

/* ---- units on every rank ---- */

/* Where a rank's element of a dimension lies in the whole: splits of dp, ep, cp and tp are nested.
 */
static int64_t global_position(const tsr_sum_check *c, int dim, const int *coord, int64_t i) {
  static const int axes[] = {TSR_TP, TSR_CP, TSR_EP, TSR_DP};
  const tsr_lowering *l = &c->p->lowering;
  int64_t local = c->dim[dim].local;
  for (int k = 0; k < 4; k++) {
    int a = axes[k];
    if (!tsr_sum_splits(c->in->placement[a], c->first + dim)) continue;
    i = tsr_sequence_position(a == TSR_CP && l->zigzag, l->size[a], coord[a], local, i);
    local *= l->size[a];
  }
  return i;
}

/* The number of a rank among those that hold units of a split. */
static int64_t holder(const tsr_sum_check *c, int dim, const tsr_sum_split *k, const int *coord) {
  static const int axis_of[] = {[TSR_UNITS_SEQUENCE] = TSR_CP, [TSR_UNITS_TP] = TSR_TP};
  int64_t number = 0;
  if (k->kind == TSR_UNITS_BATCH)
    return coord[TSR_DP] * c->p->lowering.size[TSR_EP] + coord[TSR_EP];
  if (k->kind != TSR_UNITS_KEPT) return coord[axis_of[k->kind]];
  if (c->out->units_of_sequence && tsr_sum_is_partial(c, TSR_CP, dim)) number = coord[TSR_CP];
  bool tp = tsr_sum_splits(c->in->placement[TSR_TP], c->first + dim);
  return tp ? number * c->p->lowering.size[TSR_TP] + coord[TSR_TP] : number;
}

/* Whether the rows of every combination of local units are those of the recipe's units. */
static bool check_rank(const tsr_sum_check *c, int dim, const int *coord) {
  const tsr_sum_dim *d = &c->dim[dim];
  for (int64_t m = 0; m < d->combinations; m++) {
    int64_t rest = m, scale = 1, unit = 0;
    for (int k = d->splits_count - 1; k >= 0; k--) {
      const tsr_sum_split *u = &d->splits[k];
      int64_t location = holder(c, dim, u, coord) * u->local + rest % u->local;
      unit += tsr_sequence_unit(u->zigzag, u->global, location) * scale;
      scale *= u->global;
      rest /= u->local;
    }
    int64_t want = unit * d->width;
    if (global_position(c, dim, coord, d->begin[m]) != want ||
        global_position(c, dim, coord, d->begin[m] + d->width - 1) != want + d->width - 1)
      if (!tsr_verify_say_task(
              c->v, c->s, c->task, -1,
              "at coords dp %d, ep %d, cp %d, tp %d its unit %lld of dimension %d of '%s' is not "
              "the "
              "recipe's, which begins at %lld",
              coord[TSR_DP], coord[TSR_EP], coord[TSR_CP], coord[TSR_TP], (long long)m,
              c->first + dim, c->in->name, (long long)want))
        return false;
  }
  return true;
}

static bool check_ranks(const tsr_sum_check *c, int dim) {
  int size[TSR_AXES], coord[TSR_AXES] = {0};
  for (int a = 0; a < TSR_AXES; a++)
    size[a] = tsr_sum_splits(c->in->placement[a], c->first + dim) ? (int)c->p->lowering.size[a] : 1;
  int ranks = 1;
  for (int a = 0; a < TSR_AXES; a++) ranks *= size[a];
  for (int r = 0; r < ranks; r++) {
    for (int a = 0, rest = r; a < TSR_AXES; rest /= size[a++]) coord[a] = rest % size[a];
    if (!check_rank(c, dim, coord)) return false;
  }
  return true;
}

/* How wide a unit is of every dimension: units divide it, a rank has as large a part of it as of
 * its units (so what an axis splits is partial over it), and these are a subtree of theirs. */
static bool find_widths(tsr_sum_check *c) {
  for (int d = 0; d < c->dims; d++) {
    tsr_sum_dim *x = &c->dim[d];
    x->combinations = 1;
    int64_t splits = 1;
    for (int k = 0; k < x->splits_count; k++) {
      const tsr_sum_split *u = &x->splits[k];
      bool added = !(c->samples && u->kind == TSR_UNITS_BATCH); /* samples are the host's to add */
      if ((added ? !tsr_tree_of_is_subtree(c->v->graph->units.tree, u->global, u->local)
                 : u->local < 1 || u->global % u->local) &&
          (!tsr_verify_say_task(
               c->v, c->s, c->task, -1,
               "%lld of the recipe's %lld units are no subtree of their tree", (long long)u->local,
               (long long)u->global) ||
           u->local < 1 || u->global % u->local))
        return false;
      x->combinations *= u->local;
      splits *= u->global;
    }
    if (x->whole % splits || x->local % x->combinations ||
        x->whole / splits != x->local / x->combinations) {
      tsr_verify_say_task(
          c->v, c->s, c->task, -1,
          "it sums %lld of the %lld of dimension %d of '%s' into %lld of the %lld units of '%s'",
          (long long)x->local, (long long)x->whole, c->first + d, c->in->name,
          (long long)x->combinations, (long long)splits, c->out->name);
      return false;
    }
    x->width = x->whole / splits;
    x->begin = tsr_arena_array(c->v->brief, int64_t, x->combinations);
    for (int64_t m = 0; m < x->combinations; m++) x->begin[m] = -1;
  }
  return true;
}

bool tsr_verify_rows(tsr_sum_check *c) {
  if (!find_widths(c) || !check_rows(c)) return false;
  for (int d = 0; d < c->dims; d++)
    if (!check_ranks(c, d)) return false;
  return true;
}
