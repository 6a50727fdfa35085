// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/classifier_tiles.h"

enum { TILE_BYTES = 256 << 20, ROWS_MIN = 2048, ROWS_STEP = 128 };

int64_t cuda_tile_rows(int64_t columns) {
  int64_t rows = TILE_BYTES / (columns * 4) / ROWS_STEP * ROWS_STEP;
  return rows > ROWS_MIN ? rows : ROWS_MIN;
}

/* ---- operands ---- */

/* The GEMMs read the gradient in the type of their other operands. */
static void put_gradient(const cuda_classifier *c, tsr_row_tile rows, tsr_tensor *t) {
  t->dtype = c->nodes.linear->inputs[0].dtype;
  tsr_tile_put_rows(&c->nodes, rows, c->gradient, t);
}

/* Maxima and sums of rows, which are an output where nothing reads them here, or an input. */
static void put_maxima(const cuda_classifier *c, tsr_row_tile rows, tsr_tensor *t) {
  if (c->nodes.loss && c->nodes.loss_dx) tsr_tile_put_rows(&c->nodes, rows, c->maxima, t);
  else tsr_tile_take_rows(&c->nodes, rows, t);
}

/* Calls begin anew at each run of a tile's, or the tile is a part of one (row_tiles.h). */
static void set_calls(const cuda_classifier *c, tsr_row_tile rows, tsr_tile_task *ret) {
  const tsr_row_tiles *tiles = &c->fused->tiles;
  ret->task.calls.run = tiles->runs ? tiles->rows / tiles->runs : rows.rows;
  ret->task.scratch_offset = c->gemm;
}

void cuda_tile_task_of(
    const cuda_classifier *c, const tsr_task *of, tsr_row_tile rows, tsr_tile_task *ret) {
  const tsr_linear_cross_entropy *n = &c->nodes;
  tsr_tile_task_bind(c->fused, of, ret);
  switch ((int)of->op) {
  case TSR_OP_LINEAR:
    tsr_tile_take_rows(n, rows, &ret->inputs[0]);
    tsr_tile_put_rows(n, rows, c->logits, &ret->outputs[0]);
    set_calls(c, rows, ret);
    break;
  case TSR_OP_CE_STATS:
    tsr_tile_put_rows(n, rows, c->logits, &ret->inputs[0]);
    tsr_tile_take_rows(n, rows, &ret->inputs[1]);
    if (n->loss) tsr_tile_put_rows(n, rows, c->stats, &ret->outputs[0]);
    else tsr_tile_take_rows(n, rows, &ret->outputs[0]);
    break;
  case TSR_OP_CE_LOSS:
    tsr_tile_put_rows(n, rows, c->stats, &ret->inputs[1]);
    tsr_tile_take_rows(n, rows, &ret->inputs[2]);
    put_maxima(c, rows, &ret->outputs[1]);
    break;
  case TSR_OP_CE_LOSS_DX:
    tsr_tile_put_rows(n, rows, c->logits, &ret->inputs[0]);
    put_maxima(c, rows, &ret->inputs[1]);
    tsr_tile_take_rows(n, rows, &ret->inputs[2]);
    put_gradient(c, rows, &ret->outputs[0]);
    break;
  case TSR_OP_LINEAR_DX:
    put_gradient(c, rows, &ret->inputs[0]);
    tsr_tile_take_rows(n, rows, &ret->outputs[0]);
    set_calls(c, rows, ret);
    break;
  }
}

void cuda_whole_task_of(const cuda_classifier *c, const tsr_task *of, tsr_tile_task *ret) {
  tsr_tile_task_bind(c->fused, of, ret);
  ret->task.scratch_offset = c->losses;
  if (of->op != TSR_OP_LINEAR_DW) return;
  put_gradient(c, (tsr_row_tile){0, c->fused->tiles.rows}, &ret->inputs[0]);
  ret->task.scratch_offset = c->weight;
}

/* ---- the layout ---- */

static int64_t tile_bytes(const cuda_classifier *c, const tsr_tensor *t, tsr_dtype dtype) {
  int64_t elements = c->fused->tiles.rows * tsr_tile_row_elements(&c->nodes, t);
  return cuda_aligned(elements * tsr_dtype_bytes(dtype));
}

static int64_t gemm_bytes(const tsr_program *p, const tsr_task *t) {
  tsr_task_call call = {.program = p, .task = t};
  return cuda_aligned(cuda_matmul_scratch_at(&call, NULL).bytes);
}

cuda_classifier cuda_classifier_of(const tsr_program *p, const tsr_task *fused) {
  cuda_classifier c = {.fused = fused, .nodes = tsr_linear_cross_entropy_of(fused)};
  const tsr_linear_cross_entropy *n = &c.nodes;
  const tsr_tensor *logits = &n->linear->outputs[0];
  tsr_dtype dtype = n->linear->inputs[0].dtype;
  bool half = n->loss_dx && dtype != TSR_F32;
  c.sum = n->dw ? &n->dw->sum : NULL;
  c.losses = fused->scratch_offset + fused->cast_bytes;
  c.logits = c.losses;
  if (n->loss) c.logits += cuda_aligned(cuda_loss_scratch_at(n->loss, NULL).bytes);
  int64_t behind = c.logits + tile_bytes(&c, logits, TSR_F32);
  c.gradient = half ? behind : c.logits;
  c.stats = behind + (half ? tile_bytes(&c, logits, dtype) : 0);
  c.maxima = c.stats + (n->loss ? tile_bytes(&c, &n->stats->outputs[0], TSR_F32) : 0);
  c.weight = c.maxima + (n->loss ? tile_bytes(&c, &n->loss->outputs[1], TSR_F32) : 0);
  c.gemm = c.weight;
  if (!n->dw) return c;
  tsr_tile_task dw;
  cuda_whole_task_of(&c, n->dw, &dw);
  c.gemm += gemm_bytes(p, &dw.task);
  return c;
}

int64_t cuda_classifier_bytes(const tsr_program *p, const tsr_task *fused) {
  cuda_classifier c = cuda_classifier_of(p, fused);
  const tsr_row_tiles *tiles = &fused->tiles;
  int64_t last = tiles->period - (tsr_row_tiles_each(tiles) - 1) * tiles->rows, most = 0;
  const tsr_task *gemms[] = {c.nodes.linear, c.nodes.dx};
  const tsr_row_tile rows[] = {{0, tiles->rows}, {0, last}};
  for (int i = 0; i < 4; i++) {
    tsr_tile_task part;
    if (!gemms[i / 2]) continue;
    cuda_tile_task_of(&c, gemms[i / 2], rows[i % 2], &part);
    int64_t bytes = gemm_bytes(p, &part.task);
    if (bytes > most) most = bytes;
  }
  return c.gemm - c.losses + most;
}
