// SPDX-License-Identifier: Apache-2.0
#include "schedule/norm_pieces.h"
#include <assert.h>

static int64_t elements(const tsr_norm_pieces *p, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; d++) n *= p->shape[d];
  return n;
}

/* [begin, begin + size) of dimension `dim`, all of the others. */
static tsr_rectangle slice(const tsr_norm_pieces *p, int dim, int64_t begin, int64_t size) {
  int64_t inner = elements(p, dim + 1, p->ndim), outer = elements(p, 0, dim);
  return (tsr_rectangle){begin * inner, outer, size * inner, p->shape[dim] * inner};
}

/* The part of tp's dimension of a slice of `size` of the pieces' dimension: they are (tp, pieces),
 * or (pieces, …, tp, …). */
static tsr_rectangle split(const tsr_norm_pieces *p, tsr_rectangle r, int64_t size, int64_t part) {
  int64_t share = p->shape[p->tp_dim] / p->parts;
  assert(p->shape[p->tp_dim] % p->parts == 0);
  if (p->tp_dim < p->dim) {
    assert(p->dim == 1);
    return (tsr_rectangle){r.start + part * share * r.stride, share, r.cols, r.stride};
  }
  assert(p->dim == 0 && p->tp_dim > 0);
  int64_t inner = elements(p, p->tp_dim + 1, p->ndim), outer = elements(p, 1, p->tp_dim);
  return (tsr_rectangle){
      r.start + part * share * inner, size * outer, share * inner, p->shape[p->tp_dim] * inner};
}

tsr_rectangle
tsr_norm_rectangle(const tsr_norm_pieces *p, int64_t first, int64_t unit, int64_t piece) {
  tsr_rectangle none = {0};
  if (unit >= p->parts) return none;
  if (p->dim < 0) { /* in one piece; tp's dimension is the first */
    assert(p->tp_dim <= 0 && p->shape[0] % p->parts == 0);
    int64_t share = p->shape[0] / p->parts;
    return piece ? none : slice(p, 0, unit * share, share);
  }
  int64_t begin = piece * p->whole / p->pieces - first,
          end = (piece + 1) * p->whole / p->pieces - first;
  if (begin < 0 || end > p->shape[p->dim] || begin == end) return none;
  tsr_rectangle r = slice(p, p->dim, begin, end - begin);
  return p->tp_dim < 0 ? r : split(p, r, end - begin, unit);
}
