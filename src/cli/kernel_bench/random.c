// SPDX-License-Identifier: Apache-2.0
/* Random numbers. */
#include "cli/kernel_bench/case.h"

enum { WIDTH = 768, KEY = 7 };

static tsr_tensor_slice slice_of(const tsr_bench_call *c) {
  return (tsr_tensor_slice){2, {c->size.rows, WIDTH}, {c->size.rows, WIDTH}, {0, 0}};
}

static void run_uniform(const tsr_bench_call *c) {
  tsr_tensor_slice slice = slice_of(c);
  c->k->random_uniform(c->x[0], 0, 1, KEY, &slice, 0, c->size.rows);
}

static void run_normal(const tsr_bench_call *c) {
  tsr_tensor_slice slice = slice_of(c);
  c->k->random_normal(c->x[0], 0, 1, KEY, &slice, 0, c->size.rows);
}

static void run_dropout(const tsr_bench_call *c) {
  tsr_tensor_slice slice = slice_of(c);
  c->k->dropout(c->x[0], c->x[1], 0.1f, KEY, &slice, 0, c->size.rows);
}

static const tsr_bench_case cases[] = {
    {"random_normal", NULL, run_normal, WIDTH, 1, 1},
    {"random_uniform", NULL, run_uniform, WIDTH, 1, 1},
    {"dropout", NULL, run_dropout, WIDTH, 2, 2}};

const tsr_bench_group tsr_bench_random = TSR_BENCH_GROUP("random numbers", cases);
