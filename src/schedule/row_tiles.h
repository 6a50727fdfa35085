// SPDX-License-Identifier: Apache-2.0
/* The tiles of rows in which a fused classifier computes its logits (fuse.h).
 *
 * A tile's rows are neighbours. The gradient of the weight is a sum over rows: tiles come in the
 * order in which that sum takes its rows (sum_order.h), and a tile is a part of one of its runs or,
 * where units are runs of neighbours, some whole ones, so that no addition changes its place. */
#ifndef TSR_SCHEDULE_ROW_TILES_H
#define TSR_SCHEDULE_ROW_TILES_H
#include "schedule/sum_order.h"

typedef struct {
  int64_t rows;    /* of a tile; the last one of a period may have fewer */
  int64_t period;  /* rows after which tiles begin anew: those of a run, or all */
  int64_t periods; /* periods * period: all rows */
  int64_t runs;    /* in a tile; 0: it is a part of one run */
} tsr_row_tiles;

/* Into how many rows of a call a target splits the GEMMs of a classifier, whose bits depend on that
 * number (classifier_calls.h). */
typedef struct {
  int64_t rows; /* of a call at most; 0: the runs of rows are not split */
  int64_t run;  /* rows of a run: calls begin anew at each; 0: those of the recipe's units */
} tsr_row_calls;

/* Tiles of up to `most` rows, for `rows` of which `weight` is the sum; NULL: there is none. `runs`:
 * of rows whose calls a tile may not join, neighbours; 0: any rows may be computed together. False:
 * one tile would have less than half of the rows that it may have, or the sum has other runs. */
bool tsr_row_tiles_make(
    const tsr_reduction *weight, int64_t rows, int64_t runs, int64_t most,
    tsr_row_tiles *ret_tiles);

typedef struct {
  int64_t first, rows;
} tsr_row_tile;
static inline int64_t tsr_row_tiles_each(const tsr_row_tiles *t) {
  return (t->period + t->rows - 1) / t->rows;
}
static inline int64_t tsr_row_tiles_count(const tsr_row_tiles *t) {
  return t->periods * tsr_row_tiles_each(t);
}
/* Tile i; `weight` as above. */
tsr_row_tile tsr_row_tile_at(const tsr_row_tiles *tiles, const tsr_reduction *weight, int64_t i);

#endif
