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
  int64_t runs;    /* of the weight's gradient, in a tile: 0: the sum of a part of one run */
} tsr_row_tiles;

/* Tiles of up to `most` rows, for `rows` of which `weight` is the sum; NULL: there is none. False:
 * one would have less than half of the rows that it may have. */
bool tsr_row_tiles_make(
    const tsr_reduction *weight, int64_t rows, int64_t most, tsr_row_tiles *ret_tiles);

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
