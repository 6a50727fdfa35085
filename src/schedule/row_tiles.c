// SPDX-License-Identifier: Apache-2.0
#include "schedule/row_tiles.h"
#include <assert.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

bool tsr_row_tiles_make(
    const tsr_reduction *w, int64_t rows, int64_t fixed, int64_t most, tsr_row_tiles *ret) {
  int64_t runs = fixed ? fixed : 1;
  if (w) runs = tsr_reduction_blocks(w) * tsr_reduction_leaves(w) * tsr_reduction_runs(w);
  if (fixed && runs != fixed) return false;
  int64_t run = rows / runs;
  bool neighbours = w ? tsr_reduction_is_contiguous(w) : fixed > 0;
  *ret = (tsr_row_tiles){least(run, most), run, runs, 0};
  if (run <= most && neighbours) {
    int64_t whole = least(most / run, runs);
    *ret = (tsr_row_tiles){whole * run, rows, 1, whole};
  }
  return 2 * ret->rows >= least(rows, most);
}

/* A period is a run where it is not all rows: its first one is known to the sum alone. */
static int64_t first_of_period(const tsr_row_tiles *t, const tsr_reduction *w, int64_t period) {
  if (t->periods == 1) return 0;
  if (!w) return period * t->period;
  int64_t runs = tsr_reduction_runs(w), leaves = tsr_reduction_leaves(w), leaf = period / runs;
  tsr_reduced_rows rows;
  bool there = tsr_reduction_rows(w, leaf / leaves, leaf % leaves, period % runs, &rows);
  assert(there && rows.rows == t->period);
  return rows.first;
}

tsr_row_tile tsr_row_tile_at(const tsr_row_tiles *t, const tsr_reduction *w, int64_t i) {
  int64_t each = tsr_row_tiles_each(t), in_period = i % each * t->rows;
  return (tsr_row_tile){
      first_of_period(t, w, i / each) + in_period, least(t->rows, t->period - in_period)};
}
