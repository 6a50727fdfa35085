// SPDX-License-Identifier: Apache-2.0
#include "schedule/sum_order.h"
#include <assert.h>

/* ---- the tree: over tp's units inside the sequence's inside the batch's ---- */

int tsr_reduction_merges(const tsr_reduction *r, int64_t leaf) {
  int64_t tp = leaf % r->tp, sequence = leaf / r->tp % r->sequence,
          batch = leaf / r->tp / r->sequence;
  int merges = tsr_tree_of_merges(r->tree, r->tp, tp);
  if (tp < r->tp - 1) return merges;
  merges += tsr_tree_of_merges(r->tree, r->sequence, sequence);
  if (sequence < r->sequence - 1) return merges;
  return merges + tsr_tree_of_merges(r->tree, r->keeps_batch ? 1 : r->batch, batch);
}

int tsr_reduction_entries(const tsr_reduction *r, int64_t leaf) {
  return tsr_tree_of_entries(r->tree, r->tp, leaf % r->tp) +
         tsr_tree_of_entries(r->tree, r->sequence, leaf / r->tp % r->sequence) +
         tsr_tree_of_entries(r->tree, r->batch, leaf / r->tp / r->sequence);
}

int tsr_reduction_depth(const tsr_reduction *r) {
  int batch = r->keeps_batch ? 1 : tsr_tree_of_depth(r->tree, r->batch);
  return batch - 1 + tsr_tree_of_depth(r->tree, r->sequence) - 1 +
         tsr_tree_of_depth(r->tree, r->tp);
}

bool tsr_reduction_equal(const tsr_reduction *a, const tsr_reduction *b) {
  if (a->ndim != b->ndim || a->tree != b->tree || a->zigzag != b->zigzag) return false;
  for (int d = 0; d < a->ndim; d++) {
    if (a->dim[d].size != b->dim[d].size) return false;
    for (int axis = 0; axis < TSR_AXES; axis++)
      if (a->dim[d].split[axis] != b->dim[d].split[axis]) return false;
  }
  return a->batch == b->batch && a->sequence == b->sequence && a->tp == b->tp &&
         a->keeps_batch == b->keeps_batch && a->kept_dim == b->kept_dim && a->kept == b->kept &&
         a->kept_positions == b->kept_positions;
}

/* ---- rows ---- */

/* [first, first + size) of the `whole` of a dimension; `split` by the recipe, into one or more. */
typedef struct {
  int64_t first, size, whole;
  bool split;
} interval;

static bool is_split(const tsr_reduction *r, int dim) {
  const bool *split = r->dim[dim].split;
  return split[TSR_DP] || split[TSR_CP] || split[TSR_TP] || dim == r->kept_dim;
}

int64_t tsr_reduction_splits(const tsr_reduction *r, int dim) {
  const tsr_reduced_dim *d = &r->dim[dim];
  int64_t splits = dim == r->kept_dim ? r->kept : 1;
  if (d->split[TSR_DP]) splits *= r->batch;
  if (d->split[TSR_CP]) splits *= r->sequence;
  if (d->split[TSR_TP]) splits *= r->tp;
  return splits;
}

static interval interval_of(const tsr_reduction *r, int dim, int64_t block, int64_t leaf) {
  const tsr_reduced_dim *d = &r->dim[dim];
  int64_t index = 0, kept = block % r->kept;
  int64_t batch = r->keeps_batch ? block / r->kept : leaf / r->tp / r->sequence;
  int64_t sequence = tsr_sequence_unit(r->zigzag, r->sequence, leaf / r->tp % r->sequence);
  if (d->split[TSR_DP]) index = batch;
  if (d->split[TSR_CP]) index = index * r->sequence + sequence;
  if (d->split[TSR_TP]) index = index * r->tp + leaf % r->tp;
  if (dim == r->kept_dim)
    index = index * r->kept + tsr_sequence_unit(r->zigzag && r->kept_positions, r->kept, kept);
  int64_t splits = tsr_reduction_splits(r, dim);
  assert(d->size % splits == 0);
  return (interval){index * (d->size / splits), d->size / splits, d->size, is_split(r, dim)};
}

/* The k-th run of neighbours of a product of intervals; false when there are no more. A dimension
 * that the recipe splits ends a run even where this rank has one unit of it, for others have
 * several. */
static bool
find_run(const interval *at, int ndim, int64_t k, int64_t *ret_first, int64_t *ret_rows) {
  int d = ndim - 1;
  int64_t inner = 1;
  if (ndim == 0) {
    *ret_first = 0;
    *ret_rows = 1;
    return k == 0;
  }
  for (; d > 0 && !at[d].split; d--) inner *= at[d].whole;
  *ret_rows = at[d].size * inner;
  *ret_first = at[d].first * inner;
  int64_t step = at[d].whole * inner;
  for (int e = d - 1; e >= 0; e--) {
    *ret_first += (at[e].first + k % at[e].size) * step;
    k /= at[e].size;
    step *= at[e].whole;
  }
  return k == 0;
}

/* Whether the dimensions behind the kept one are whole: then neighbours in the sum are a kept
 * dimension's length apart, and each index of it is summed by itself. */
static bool strides(const tsr_reduction *r) {
  if (r->kept_dim < 0) return false;
  for (int d = r->kept_dim + 1; d < r->ndim; d++)
    if (is_split(r, d)) return false;
  return true;
}

bool tsr_reduction_rows(
    const tsr_reduction *r, int64_t block, int64_t leaf, int64_t k, tsr_reduced_rows *ret) {
  interval at[TSR_REDUCED_DIMS_MAX] = {{0}};
  for (int d = 0; d < r->ndim; d++) at[d] = interval_of(r, d, block, leaf);
  ret->step = 1;
  if (!strides(r)) return find_run(at, r->ndim, k, &ret->first, &ret->rows);
  int64_t inner = 1, size = at[r->kept_dim].size, whole = at[r->kept_dim].whole;
  for (int d = r->kept_dim + 1; d < r->ndim; d++) inner *= at[d].whole;
  size *= inner;
  bool there = find_run(at, r->kept_dim, k / size, &ret->first, &ret->rows);
  ret->step = whole * inner;
  ret->first = ret->first * ret->step + at[r->kept_dim].first * inner + k % size;
  return there;
}

int64_t tsr_reduction_runs(const tsr_reduction *r) {
  int last = r->ndim - 1;
  int64_t runs = 1;
  if (strides(r)) {
    for (int d = r->kept_dim; d < r->ndim; d++) runs *= r->dim[d].size / tsr_reduction_splits(r, d);
    last = r->kept_dim - 1;
  }
  while (last > 0 && !is_split(r, last)) last--;
  for (int d = 0; d < last; d++) runs *= r->dim[d].size / tsr_reduction_splits(r, d);
  return runs;
}

bool tsr_reduction_is_contiguous(const tsr_reduction *r) {
  bool one = !(r->zigzag && r->sequence > 1) && r->kept_dim < 0;
  return one && tsr_reduction_runs(r) == 1;
}
