// SPDX-License-Identifier: Apache-2.0
/* The rectangles of which the sum of squares of a gradient is taken (schedule/norm_pieces.h): runs
 * of one dimension, the pieces, in each of `parts` runs of the dimension that tp splits. */
#ifndef TSR_BASE_NORM_GRID_H
#define TSR_BASE_NORM_GRID_H
#include <stdbool.h>
#include <stdint.h>

/* In CUDA C for the device, too. */
#ifdef __CUDACC__
#define TSR_NORM_FUNCTION static inline __host__ __device__
#else
#define TSR_NORM_FUNCTION static inline
#endif

/* `rows` runs of `cols` elements, `stride` apart; 0 rows: nothing of it is on this rank. */
typedef struct {
  int64_t start, rows, cols, stride;
} tsr_rectangle;

/* Piece k is [k, k + 1) * whole / pieces of its dimension, of which the rank has `here` indices
 * from `first` on; whole 0: all of the rank's part is piece 0. */
typedef struct {
  int units, pieces;
  int parts;            /* units from this one on have no elements */
  bool rows_of_indices; /* an index more of the pieces' dimension: as many rows more, else cols */
  int64_t whole, first, here;
  int64_t index_step, part_step; /* elements from an index, from a part to the next one */
  int64_t rows, cols, stride;    /* of one index of one part */
} tsr_norm_grid;

TSR_NORM_FUNCTION tsr_rectangle
tsr_norm_grid_rectangle(const tsr_norm_grid *g, int64_t unit, int64_t piece) {
  tsr_rectangle r = {0, 0, 0, 0};
  int64_t begin = 0, size = piece == 0;
  if (g->whole) {
    begin = piece * g->whole / g->pieces - g->first;
    size = (piece + 1) * g->whole / g->pieces - g->first - begin;
    if (begin < 0 || begin + size > g->here) size = 0;
  }
  if (unit >= g->parts || size <= 0) return r;
  r.start = begin * g->index_step + unit * g->part_step;
  r.rows = g->rows_of_indices ? g->rows * size : g->rows;
  r.cols = g->rows_of_indices ? g->cols : g->cols * size;
  r.stride = g->stride;
  return r;
}

/* Elements of the largest rectangle, on any rank. */
TSR_NORM_FUNCTION int64_t tsr_norm_grid_most(const tsr_norm_grid *g) {
  int64_t size = g->whole ? (g->whole + g->pieces - 1) / g->pieces : 1;
  return g->rows * g->cols * size;
}

#endif
