// SPDX-License-Identifier: Apache-2.0
/* The tasks of a linear_cross_entropy (schedule/fuse.h) on the rows of one tile: what a device runs
 * one after another, the same on each device. */
#ifndef TSR_DEVICE_TILE_TASK_H
#define TSR_DEVICE_TILE_TASK_H
#include "schedule/fuse.h"

typedef struct {
  tsr_task task;
  tsr_tensor inputs[4], outputs[2];
} tsr_tile_task;

/* A covered task, with the operands of the fused task where it has them; of all rows. */
void tsr_tile_task_bind(const tsr_task *fused, const tsr_task *of, tsr_tile_task *ret);

/* Elements of a tensor that a row has. */
int64_t tsr_tile_row_elements(const tsr_linear_cross_entropy *n, const tsr_tensor *t);
/* Makes a tensor of all rows that of the tile's. */
void tsr_tile_take_rows(const tsr_linear_cross_entropy *n, tsr_row_tile rows, tsr_tensor *t);
/* The same of one that has only the tile's rows, at an offset in WORK. */
void tsr_tile_put_rows(
    const tsr_linear_cross_entropy *n, tsr_row_tile rows, int64_t offset, tsr_tensor *t);

#endif
