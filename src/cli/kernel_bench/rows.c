// SPDX-License-Identifier: Apache-2.0
/* Kernels of rows as wide as GPT-2 124M's, and the sums of arrays. */
#include "cli/kernel_bench/case.h"

enum { WIDTH = 768, HEADS = 12, HEAD = WIDTH / HEADS, POSITIONS = 1024 };

static void run_add_row(const tsr_bench_call *c) {
  c->k->add_row(c->x[0], c->x[1], c->x[2], WIDTH, 0, c->size.rows);
}

static void run_mul_row(const tsr_bench_call *c) {
  c->k->mul_row(c->x[0], c->x[1], c->x[2], WIDTH, 0, c->size.rows);
}

static void run_layernorm(const tsr_bench_call *c) {
  c->k->layernorm(
      c->x[0], c->x[4], c->x[5], c->x[1], c->x[2], c->x[3], WIDTH, 1e-5f, 0, c->size.rows);
}

static void run_layernorm_backward(const tsr_bench_call *c) {
  c->k->layernorm_backward(
      c->x[0], c->x[1], c->x[2], c->x[3], c->x[4], c->x[5], WIDTH, 0, c->size.rows);
}

static void run_rmsnorm(const tsr_bench_call *c) {
  c->k->rmsnorm(c->x[0], c->x[3], c->x[1], c->x[2], 0, WIDTH, 1e-5f, 0, c->size.rows);
}

static void run_rmsnorm_backward(const tsr_bench_call *c) {
  c->k->rmsnorm_backward(c->x[0], c->x[1], c->x[2], c->x[3], 0, c->x[4], WIDTH, 0, c->size.rows);
}

static void run_softmax(const tsr_bench_call *c) {
  c->k->softmax(c->x[0], c->x[1], WIDTH, 0, c->size.rows);
}

static void run_softmax_backward(const tsr_bench_call *c) {
  c->k->softmax_backward(c->x[0], c->x[1], c->x[2], WIDTH, 0, c->size.rows);
}

static void run_sum_rows(const tsr_bench_call *c) {
  c->k->sum_rows(c->x[1], c->x[0], WIDTH, 0, 1, c->size.rows, 0, WIDTH);
}

static void run_norm_dw(const tsr_bench_call *c) {
  const float *mean = c->what->kind ? NULL : c->x[2];
  c->k->norm_dw(c->x[4], c->x[0], c->x[1], mean, c->x[3], WIDTH, 0, 1, c->size.rows, 0, WIDTH);
}

/* of adapters of rank 1 */
static void run_adapted_squares(const tsr_bench_call *c) {
  tsr_matrix w = {c->x[0], WIDTH, 1, TSR_ELEMENT_F32};
  c->k->adapted_squares(c->x[1], &w, c->x[2], c->x[3], WIDTH, 1, 0.5f, 0, WIDTH, 0, c->size.rows);
}

static void run_divide_root(const tsr_bench_call *c) {
  c->k->divide_root(c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_squared_error(const tsr_bench_call *c) {
  c->k->squared_error(c->x[2], c->x[0], c->x[1], WIDTH, 0, c->size.rows);
}

static void run_squared_error_backward(const tsr_bench_call *c) {
  c->k->squared_error_backward(c->x[0], c->x[1], c->x[2], 0.5f, 0, c->size.elements);
}

static void run_sum(const tsr_bench_call *c) { c->k->sum(c->x[0], c->size.rows, WIDTH, WIDTH); }

static void run_sum_squares(const tsr_bench_call *c) {
  c->k->sum_squares(c->x[0], c->size.rows, WIDTH, WIDTH);
}

static int64_t positions_of(const tsr_bench_call *c) {
  return c->size.rows < POSITIONS ? c->size.rows : POSITIONS;
}

static void prepare_rope(const tsr_bench_call *c) {
  c->k->rope_table(c->scratch, positions_of(c), HEAD, 0, 10000, &(tsr_rope_scaling){0});
}

static int64_t scratch_of_rope(const tsr_kernels *k, const tsr_bench_size *s) {
  (void)k;
  return (s->rows < POSITIONS ? s->rows : POSITIONS) * HEAD * 4;
}

static void run_rope(const tsr_bench_call *c) {
  tsr_rope whole = {positions_of(c), HEADS, HEAD, HEAD, .sign = (float)c->what->kind};
  c->k->rope(&whole, c->x[0], c->x[1], c->scratch, 0, c->size.rows);
}

static void run_rope_table(const tsr_bench_call *c) {
  c->k->rope_table(c->x[0], c->size.rows, HEAD, 0, 10000, &(tsr_rope_scaling){0});
}

static const tsr_bench_case cases[] = {
    {"add_row", NULL, run_add_row, WIDTH, 2, 2},
    {"mul_row", NULL, run_mul_row, WIDTH, 2, 2},
    {"layernorm", NULL, run_layernorm, WIDTH, 2, 2},
    {"layernorm_backward", NULL, run_layernorm_backward, WIDTH, 3, 3},
    {"rmsnorm", NULL, run_rmsnorm, WIDTH, 2, 2},
    {"rmsnorm_backward", NULL, run_rmsnorm_backward, WIDTH, 3, 3},
    {"softmax", NULL, run_softmax, WIDTH, 2, 2},
    {"softmax_backward", NULL, run_softmax_backward, WIDTH, 3, 3},
    {"sum_rows", NULL, run_sum_rows, WIDTH, 1, 1},
    {"norm_dw", "layernorm", run_norm_dw, WIDTH, 2, 2, 0},
    {"norm_dw", "rmsnorm", run_norm_dw, WIDTH, 2, 2, 1},
    {"adapted_squares", NULL, run_adapted_squares, WIDTH, 1, 1},
    {"divide_root", NULL, run_divide_root, WIDTH, 3, 3},
    {"squared_error", NULL, run_squared_error, WIDTH, 2, 2},
    {"squared_error_backward", NULL, run_squared_error_backward, WIDTH, 3, 3},
    {"sum", NULL, run_sum, WIDTH, 1, 1},
    {"sum_squares", NULL, run_sum_squares, WIDTH, 1, 1},
    {"rope", NULL, run_rope, WIDTH, 2, 2, 1, .prepare = prepare_rope, .scratch = scratch_of_rope},
    {"rope_table", NULL, run_rope_table, HEAD, 1, 1, .is_small = true}};

const tsr_bench_group tsr_bench_rows = TSR_BENCH_GROUP("rows", cases);
