// SPDX-License-Identifier: Apache-2.0
#include "schedule/norm_pieces.h"
#include <assert.h>

static int64_t elements(const tsr_norm_pieces *p, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; d++) n *= p->shape[d];
  return n;
}

/* Of the pieces' dimension and tp's, they are (tp, pieces), or (pieces, …, tp, …). */
static void split(const tsr_norm_pieces *p, tsr_norm_grid *g) {
  int64_t share = p->shape[p->tp_dim] / p->parts, inner = elements(p, p->tp_dim + 1, p->ndim);
  assert(p->shape[p->tp_dim] % p->parts == 0);
  g->part_step = share * inner;
  if (p->tp_dim < p->dim) {
    assert(p->dim == 1);
    g->rows = share;
    return;
  }
  assert(p->dim == 0 && p->tp_dim > 0);
  g->rows_of_indices = true;
  g->rows = elements(p, 1, p->tp_dim);
  g->cols = share * inner;
  g->stride = p->shape[p->tp_dim] * inner;
}

tsr_norm_grid tsr_norm_grid_of(const tsr_norm_pieces *p, int64_t first) {
  tsr_norm_grid g = {.units = (int)p->units, .pieces = (int)p->pieces, .parts = (int)p->parts};
  if (p->dim < 0) { /* in one piece; tp's dimension is the first */
    assert(p->tp_dim <= 0 && (!p->ndim || p->shape[0] % p->parts == 0));
    g.rows = 1;
    g.cols = g.stride = g.part_step = elements(p, 0, p->ndim) / p->parts;
    return g;
  }
  g.whole = p->whole;
  g.first = first;
  g.here = p->shape[p->dim];
  g.index_step = g.cols = elements(p, p->dim + 1, p->ndim);
  g.rows = elements(p, 0, p->dim);
  g.stride = p->shape[p->dim] * g.cols;
  if (p->tp_dim >= 0) split(p, &g);
  return g;
}
