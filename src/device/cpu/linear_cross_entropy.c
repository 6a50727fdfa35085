// SPDX-License-Identifier: Apache-2.0
/* A classifier with the cross-entropy of its logits (schedule/fuse.h), a tile of rows at a time:
 * the tile's logits, of each row its statistics, loss and, in place, the gradient of its logits,
 * then the tile's rows of the input's gradient and what it adds to the weight's. Each step runs the
 * op that the node has as a task of its own, on the tile's rows.
 *
 * It may be the part with the statistics, or that with the gradients (fuse.h).
 *
 * Scratch: losses of all rows, as the op of the loss has them; the tile's logits, statistics and
 * maxima with sums; the stack of the weight's gradient; and what is packed for a GEMM. */
#include "device/cpu/gemm_rounds.h"
#include "device/tile_task.h"
#include "schedule/fuse.h"
#include "schedule/row_tiles.h"

enum { TILE_BYTES = 32 << 20 };

int64_t cpu_tile_rows(int64_t columns) {
  int64_t rows = TILE_BYTES / (columns * 4) / TSR_GEMM_DEPTH * TSR_GEMM_DEPTH;
  return rows > TSR_GEMM_DEPTH ? rows : TSR_GEMM_DEPTH;
}

typedef tsr_linear_cross_entropy nodes;

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static const tsr_reduction *weight_sum(const nodes *n) { return n->dw ? &n->dw->sum : NULL; }

/* ---- the layout of the scratch ---- */

/* Offsets in WORK. */
typedef struct {
  int64_t losses, logits, stats, maxima, stack, packed, end;
} layout;

static layout layout_of(const tsr_task *fused, const nodes *n) {
  const tsr_tensor *logits = &n->linear->outputs[0];
  int64_t columns = tsr_tensor_last(logits), rows = tsr_tensor_rows(logits);
  layout l = {.losses = fused->scratch_offset + fused->cast_bytes};
  l.logits = l.losses + (n->loss ? aligned(rows * 4 + tsr_task_stack_bytes(n->loss, 1)) : 0);
  l.maxima = l.stats = l.logits + aligned(fused->tiles.rows * columns * 4);
  if (n->loss)
    l.maxima += aligned(fused->tiles.rows * tsr_tile_row_elements(n, &n->stats->outputs[0]) * 4);
  l.stack = l.maxima + aligned(fused->tiles.rows * 2 * 4);
  l.packed = l.stack + (n->dw ? cpu_gemm_stack_bytes(n->dw) : 0);
  return l;
}

static void bind_linear(
    const tsr_task *fused, const nodes *n, const layout *l, tsr_row_tile rows, tsr_tile_task *ret) {
  tsr_tile_task_bind(fused, n->linear, ret);
  tsr_tile_take_rows(n, rows, &ret->inputs[0]);
  tsr_tile_put_rows(n, rows, l->logits, &ret->outputs[0]);
  ret->task.scratch_offset = l->packed;
}

static void bind_dx(
    const tsr_task *fused, const nodes *n, const layout *l, tsr_row_tile rows, tsr_tile_task *ret) {
  tsr_tile_task_bind(fused, n->dx, ret);
  tsr_tile_put_rows(n, rows, l->logits, &ret->inputs[0]);
  tsr_tile_take_rows(n, rows, &ret->outputs[0]);
  ret->task.scratch_offset = l->packed;
}

/* ---- rounds: those of a tile's GEMMs, and between them one over its rows ---- */

typedef enum { LINEAR, ROWS, DX, DW } step;

typedef struct {
  int64_t linear, dx, dw;
} tile_rounds;

static int64_t all_rounds(const tile_rounds *r) { return r->linear + 1 + r->dx + r->dw; }

static tile_rounds rounds_of_tile(const tsr_task *fused, const nodes *n, int64_t rows) {
  const tsr_row_tiles *tiles = &fused->tiles;
  layout l = layout_of(fused, n);
  tsr_tile_task part;
  bind_linear(fused, n, &l, (tsr_row_tile){0, rows}, &part);
  tile_rounds r = {.linear = cpu_linear.rounds(&part.task)};
  if (n->dx) {
    bind_dx(fused, n, &l, (tsr_row_tile){0, rows}, &part);
    r.dx = cpu_linear_dx.rounds(&part.task);
  }
  if (n->dw) r.dw = tiles->runs ? rows / (tiles->rows / tiles->runs) : 1;
  return r;
}

/* Rows of the last tile of a period. */
static int64_t last_rows(const tsr_row_tiles *t) {
  return t->period - (tsr_row_tiles_each(t) - 1) * t->rows;
}

typedef struct {
  nodes n;
  tsr_row_tiles tiles;
  layout l;
  int64_t tile;
  tsr_row_tile rows;
  step step;
  int round; /* of the step */
} place;

static place place_of(const tsr_task *fused, int round) {
  place at = {.n = tsr_linear_cross_entropy_of(fused)};
  at.tiles = fused->tiles;
  at.l = layout_of(fused, &at.n);
  tile_rounds r = rounds_of_tile(fused, &at.n, at.tiles.rows),
              last = rounds_of_tile(fused, &at.n, last_rows(&at.tiles));
  int64_t before_last = tsr_row_tiles_each(&at.tiles) - 1,
          period = before_last * all_rounds(&r) + all_rounds(&last), left = round % period,
          tile = left / all_rounds(&r);
  if (tile > before_last) tile = before_last;
  left -= tile * all_rounds(&r);
  if (tile == before_last) r = last;
  at.tile = round / period * (before_last + 1) + tile;
  at.rows = tsr_row_tile_at(&at.tiles, weight_sum(&at.n), at.tile);
  const int64_t of[] = {r.linear, 1, r.dx, r.dw};
  for (; left >= of[at.step]; at.step++) left -= of[at.step];
  at.round = (int)left;
  return at;
}

static int fused_rounds(const tsr_task *t) {
  nodes n = tsr_linear_cross_entropy_of(t);
  tile_rounds r = rounds_of_tile(t, &n, t->tiles.rows),
              last = rounds_of_tile(t, &n, last_rows(&t->tiles));
  int64_t before_last = tsr_row_tiles_each(&t->tiles) - 1;
  return (int)(t->tiles.periods * (before_last * all_rounds(&r) + all_rounds(&last)));
}

/* ---- the weight's gradient ---- */

/* The rounds of all tiles are those of the whole sum, in pieces as long as tiles. */
static cpu_gemm_plan weight_plan(const place *at) {
  cpu_gemm_plan p = cpu_linear_dw_plan(at->n.dw);
  p.depth = at->tiles.rows < p.K ? at->tiles.rows : p.K;
  p.first = at->rows.first;
  return p;
}

static void bind_dw(const tsr_task *fused, const place *at, tsr_tile_task *ret) {
  tsr_tile_task_bind(fused, at->n.dw, ret);
  tsr_tile_put_rows(&at->n, at->rows, at->l.logits, &ret->inputs[0]);
  tsr_tile_take_rows(&at->n, at->rows, &ret->inputs[1]);
  ret->task.scratch_offset = at->l.stack;
}

static cpu_call weight_call(const cpu_call *c, const place *at, tsr_tile_task *part) {
  cpu_call call = *c;
  bind_dw(c->call.task, at, part);
  call.call.task = &part->task;
  call.round = (int)(at->tile * (at->tiles.runs ? at->tiles.runs : 1)) + at->round;
  return call;
}

/* ---- rows ---- */

static cpu_call call_of(const cpu_call *c, const tsr_tile_task *part, int round) {
  cpu_call call = *c;
  call.call.task = &part->task;
  call.round = round;
  return call;
}

static void bind_stats(const tsr_task *fused, const place *at, tsr_tile_task *ret) {
  tsr_tile_task_bind(fused, at->n.stats, ret);
  tsr_tile_put_rows(&at->n, at->rows, at->l.logits, &ret->inputs[0]);
  tsr_tile_take_rows(&at->n, at->rows, &ret->inputs[1]);
  if (at->n.loss) tsr_tile_put_rows(&at->n, at->rows, at->l.stats, &ret->outputs[0]);
  else tsr_tile_take_rows(&at->n, at->rows, &ret->outputs[0]);
}

/* Maxima and sums of rows, which are an output where nothing reads them here, or an input. */
static void bind_maxima(const place *at, tsr_tensor *t) {
  if (at->n.loss && at->n.loss_dx) tsr_tile_put_rows(&at->n, at->rows, at->l.maxima, t);
  else tsr_tile_take_rows(&at->n, at->rows, t);
}

static void bind_loss(const tsr_task *fused, const place *at, tsr_tile_task *ret) {
  tsr_tile_task_bind(fused, at->n.loss, ret);
  tsr_tile_put_rows(&at->n, at->rows, at->l.stats, &ret->inputs[1]);
  tsr_tile_take_rows(&at->n, at->rows, &ret->inputs[2]);
  bind_maxima(at, &ret->outputs[1]);
  ret->task.scratch_offset = at->l.losses + at->rows.first * 4;
}

static void bind_loss_dx(const tsr_task *fused, const place *at, tsr_tile_task *ret) {
  tsr_tile_task_bind(fused, at->n.loss_dx, ret);
  tsr_tile_put_rows(&at->n, at->rows, at->l.logits, &ret->inputs[0]);
  bind_maxima(at, &ret->inputs[1]);
  tsr_tile_take_rows(&at->n, at->rows, &ret->inputs[2]);
  tsr_tile_put_rows(&at->n, at->rows, at->l.logits, &ret->outputs[0]);
}

/* A row is read again while it is in the cache. */
static void run_rows(const cpu_call *c, const place *at, int64_t begin, int64_t end, int thread) {
  tsr_tile_task stats, loss, loss_dx;
  if (at->n.stats) bind_stats(c->call.task, at, &stats);
  if (at->n.loss) bind_loss(c->call.task, at, &loss);
  if (at->n.loss_dx) bind_loss_dx(c->call.task, at, &loss_dx);
  cpu_call of_stats = call_of(c, &stats, 0), of_loss = call_of(c, &loss, 0),
           of_loss_dx = call_of(c, &loss_dx, 0);
  for (int64_t row = begin; row < end; row++) {
    if (at->n.stats) cpu_ce_stats.run(&of_stats, row, row + 1, thread);
    if (at->n.loss) cpu_ce_loss.run(&of_loss, row, row + 1, thread);
    if (at->n.loss_dx) cpu_ce_loss_dx.run(&of_loss_dx, row, row + 1, thread);
  }
}

/* ---- the op ---- */

static const cpu_op *op_of_step(step s) { return s == LINEAR ? &cpu_linear : &cpu_linear_dx; }

static void bind_gemm(const tsr_task *fused, const place *at, tsr_tile_task *ret) {
  if (at->step == LINEAR) bind_linear(fused, &at->n, &at->l, at->rows, ret);
  else bind_dx(fused, &at->n, &at->l, at->rows, ret);
}

static int64_t fused_items(const tsr_task *t) { return t->tiles.rows; }

static int64_t fused_round_items(const tsr_task *t, int round) {
  place at = place_of(t, round);
  tsr_tile_task part;
  if (at.step == ROWS) return at.rows.rows;
  if (at.step == DW) {
    cpu_gemm_plan p = weight_plan(&at);
    return cpu_gemm_plan_strips(&p);
  }
  bind_gemm(t, &at, &part);
  return op_of_step(at.step)->items(&part.task);
}

static void fused_before(const cpu_call *c, int part, int parts) {
  place at = place_of(c->call.task, c->round);
  tsr_tile_task of;
  if (at.step == ROWS) return;
  if (at.step == DW) {
    cpu_gemm_plan p = weight_plan(&at);
    cpu_call call = weight_call(c, &at, &of);
    cpu_pack_gemm_round(&call, cpu_linear_dw_gemm, &p, part, parts);
    return;
  }
  bind_gemm(c->call.task, &at, &of);
  cpu_call call = call_of(c, &of, at.round);
  op_of_step(at.step)->before(&call, part, parts);
}

static void fused_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  place at = place_of(c->call.task, c->round);
  tsr_tile_task of;
  if (at.step == ROWS) {
    run_rows(c, &at, begin, end, thread);
    return;
  }
  if (at.step == DW) {
    cpu_gemm_plan p = weight_plan(&at);
    cpu_call call = weight_call(c, &at, &of);
    cpu_run_gemm_round(&call, cpu_linear_dw_gemm, &p, begin, end);
    return;
  }
  bind_gemm(c->call.task, &at, &of);
  cpu_call call = call_of(c, &of, at.round);
  op_of_step(at.step)->run(&call, begin, end, thread);
}

/* The losses of all rows, added. */
static void fused_after(const cpu_call *c) {
  nodes n = tsr_linear_cross_entropy_of(c->call.task);
  tsr_tile_task loss;
  if (!n.loss) return;
  tsr_tile_task_bind(c->call.task, n.loss, &loss);
  loss.task.scratch_offset = layout_of(c->call.task, &n).losses;
  cpu_call call = call_of(c, &loss, 0);
  cpu_ce_loss.after(&call);
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* For the GEMMs of a tile of so many rows, beside the stack of the weight's gradient. */
static int64_t packed_bytes(
    const tsr_kernels *k, const tsr_program *program, const tsr_task *t, int threads,
    tsr_row_tile rows) {
  place at = {.n = tsr_linear_cross_entropy_of(t), .rows = rows};
  at.tiles = t->tiles;
  tsr_tile_task part;
  bind_linear(t, &at.n, &at.l, rows, &part);
  int64_t bytes = cpu_linear.scratch(k, program, &part.task, threads);
  if (at.n.dx) {
    bind_dx(t, &at.n, &at.l, rows, &part);
    bytes = most(bytes, cpu_linear_dx.scratch(k, program, &part.task, threads));
  }
  if (!at.n.dw) return bytes;
  cpu_gemm_plan p = weight_plan(&at);
  return most(bytes, cpu_gemm_packed_bytes(k, &p));
}

static int64_t
fused_scratch(const tsr_kernels *k, const tsr_program *program, const tsr_task *t, int threads) {
  nodes n = tsr_linear_cross_entropy_of(t);
  layout l = layout_of(t, &n);
  int64_t whole = packed_bytes(k, program, t, threads, (tsr_row_tile){0, t->tiles.rows}),
          last = packed_bytes(k, program, t, threads, (tsr_row_tile){0, last_rows(&t->tiles)});
  return l.packed - l.losses + most(whole, last);
}

/* The GEMMs read half precision as they pack it; other inputs have none. */
static bool takes_half(const tsr_task *t, int input) { return (void)t, (void)input, true; }

const cpu_op cpu_linear_cross_entropy = {
    .items = fused_items,
    .round_items = fused_round_items,
    .scratch = fused_scratch,
    .rounds = fused_rounds,
    .before = fused_before,
    .run = fused_run,
    .after = fused_after,
    .ranges = CPU_RANGES_MAX,
    .takes_half_input = takes_half};
