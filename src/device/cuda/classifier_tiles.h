// SPDX-License-Identifier: Apache-2.0
/* A classifier with the cross-entropy of its logits (schedule/fuse.h), a tile of rows at a time:
 * how its scratch is laid out, and the tasks of a tile. The target sizes the scratch with them, the
 * plugin runs the tasks (linear_cross_entropy.c).
 *
 * Scratch: what the loss has as a task of its own, of all rows; of the tile its logits in f32,
 * their gradient (in f32 the same memory, in half precision memory of its own), statistics, maxima
 * with sums; what the weight's gradient has as a task of its own; what a tile's other GEMMs have,
 * one after another. */
#ifndef TSR_DEVICE_CUDA_CLASSIFIER_TILES_H
#define TSR_DEVICE_CUDA_CLASSIFIER_TILES_H
#include "device/cuda/scratch.h"
#include "device/tile_task.h"

/* Rows of a tile of logits, of so many columns: a multiple of 128 with 256 MiB of logits at most,
 * but 2,048 of any vocabulary, since each tile reads and writes the weight's gradient once more. */
int64_t cuda_tile_rows(int64_t columns);

typedef struct {
  const tsr_task *fused;
  tsr_linear_cross_entropy nodes;
  const tsr_reduction *sum; /* over rows, of the weight's gradient; NULL: there is none */
  int64_t losses, logits, gradient, stats, maxima, weight, gemm; /* offsets in WORK */
} cuda_classifier;
cuda_classifier cuda_classifier_of(const tsr_program *program, const tsr_task *fused);
/* Of the scratch. */
int64_t cuda_classifier_bytes(const tsr_program *program, const tsr_task *fused);

/* A covered task on a tile's rows: linear, ce_stats, ce_loss (whose loss is not computed, but rows'
 * losses are), ce_loss_dx, linear_dx. */
void cuda_tile_task_of(
    const cuda_classifier *c, const tsr_task *of, tsr_row_tile rows, tsr_tile_task *ret);
/* ce_loss and linear_dw, of all rows; the latter's dy is where the tile's gradient is. */
void cuda_whole_task_of(const cuda_classifier *c, const tsr_task *of, tsr_tile_task *ret);

#endif
