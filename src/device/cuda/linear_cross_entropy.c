// SPDX-License-Identifier: Apache-2.0
/* A classifier with the cross-entropy of its logits, a tile of rows at a time: the tile's logits,
 * of each row its statistics, loss and the gradient of its logits, then its rows of the input's
 * gradient and what it adds to the weight's. Each step is the op that the node has as a task of its
 * own. */
#include "device/cuda/classifier_tiles.h"
#include "device/cuda/ops.h"
#include <assert.h>

typedef struct {
  cuda_classifier of;
  const cuda_call *call;
  int64_t next;      /* tile */
  tsr_row_tile tile; /* whose rows are in the scratch; 0 rows: none */
} tiles;

static cuda_call call_of(const cuda_call *c, const tsr_tile_task *part) {
  cuda_call call = *c;
  call.call.task = &part->task;
  return call;
}

static void run_covered(const tiles *t, const tsr_task *of, cuda_op op) {
  tsr_tile_task part;
  if (!of) return;
  cuda_tile_task_of(&t->of, of, t->tile, &part);
  cuda_call call = call_of(t->call, &part);
  op(&call);
}

/* The losses of all rows are in the scratch of the whole loss. */
static void run_row_losses(const tiles *t) {
  tsr_tile_task whole, part;
  if (!t->of.nodes.loss) return;
  cuda_whole_task_of(&t->of, t->of.nodes.loss, &whole);
  cuda_tile_task_of(&t->of, t->of.nodes.loss, t->tile, &part);
  cuda_call of_whole = call_of(t->call, &whole), call = call_of(t->call, &part);
  cuda_loss_scratch s = cuda_loss_scratch_at(&whole.task, cuda_scratch(&of_whole));
  cuda_run_ce_row_losses(&call, s.row_loss + t->tile.first);
}

static void run_next_tile(tiles *t) {
  const tsr_linear_cross_entropy *n = &t->of.nodes;
  t->tile = tsr_row_tile_at(&t->of.fused->tiles, t->of.sum, t->next++);
  run_covered(t, n->linear, cuda_linear);
  run_covered(t, n->stats, cuda_ce_stats);
  run_row_losses(t);
  run_covered(t, n->loss_dx, cuda_ce_loss_dx);
  run_covered(t, n->dx, cuda_linear_dx);
}

/* The gradient of the logits of some rows. The weight's gradient sums rows in the order of tiles.
 */
static const void *gradient_rows(const cuda_call *c, void *context, int64_t first, int64_t rows) {
  tiles *t = context;
  const tsr_tensor *dy = cuda_x(c, 0);
  if (first < t->tile.first || first >= t->tile.first + t->tile.rows) run_next_tile(t);
  assert(first >= t->tile.first && first + rows <= t->tile.first + t->tile.rows);
  int64_t elements = (first - t->tile.first) * tsr_tensor_last(dy);
  return (const char *)cuda_in(c, 0) + elements * tsr_dtype_bytes(dy->dtype);
}

static void linear_cross_entropy_run(const cuda_call *c) {
  const tsr_task *fused = c->call.task;
  tiles t = {.of = cuda_classifier_of(c->call.program, fused), .call = c};
  tsr_tile_task whole;
  if (t.of.nodes.dw) {
    cuda_whole_task_of(&t.of, t.of.nodes.dw, &whole);
    cuda_call call = call_of(c, &whole);
    cuda_run_linear_dw(&call, gradient_rows, &t);
  } else
    while (t.next < tsr_row_tiles_count(&fused->tiles)) run_next_tile(&t);
  assert(t.next == tsr_row_tiles_count(&fused->tiles));
  if (!t.of.nodes.loss) return;
  cuda_whole_task_of(&t.of, t.of.nodes.loss, &whole);
  cuda_call call = call_of(c, &whole);
  cuda_run_ce_loss_sum(&call);
}
const cuda_op cuda_linear_cross_entropy = linear_cross_entropy_run;
