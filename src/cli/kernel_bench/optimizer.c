// SPDX-License-Identifier: Apache-2.0
/* Updates of weights in f32 and in bf16: x is w, gradient, m or the buffer, v;
 * the last array is the compensation, where there is one. */
#include "cli/kernel_bench/case.h"

enum { WIDTH = 768, W = 0, GRAD, M, V };

static const tsr_adamw adamw = {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, false};
static const tsr_sgd sgd = {1e-4f, 0.9f, 0, 0.1f, true, false};

static bool has_compensation(const tsr_bench_call *c) { return c->what->kind == TSR_ROUND_KAHAN; }

static uint16_t *compensation_of(const tsr_bench_call *c) {
  return has_compensation(c) ? (uint16_t *)c->x[c->what->arrays - 1] : NULL;
}

/* v is a mean of squares. */
static void prepare_adamw(const tsr_bench_call *c) {
  c->k->mul(c->x[V], c->x[V], c->x[V], 0, c->size.elements);
}

static void prepare_bf16(const tsr_bench_call *c) {
  c->k->f32_to_bf16((uint16_t *)c->x[W], c->x[GRAD], 0, c->size.elements);
  if (has_compensation(c)) c->k->fill(c->x[c->what->arrays - 1], 0, 0, c->size.elements);
}

static void prepare_adamw_bf16(const tsr_bench_call *c) {
  prepare_adamw(c);
  prepare_bf16(c);
}

static void run_adamw(const tsr_bench_call *c) {
  c->k->adamw(&adamw, c->x[W], c->x[M], c->x[V], NULL, c->x[GRAD], 1, 0, c->size.elements);
}

/* As a run with a run.lock does it (device/cpu/optimizer.c): what was written is hashed while the
 * caches hold it. The hash is scaled down to a number that is stored. */
static void run_hashed(const tsr_bench_call *c) {
  enum { PIECE = 512 };
  uint64_t hash = 0;
  for (int64_t at = 0, next; at < c->size.elements; at = next) {
    next = c->size.elements - at < PIECE ? c->size.elements : at + PIECE;
    c->k->adamw(&adamw, c->x[W], c->x[M], c->x[V], NULL, c->x[GRAD], 1, at, next);
    hash += c->k->hash(c->x[W] + at, at, next - at);
  }
  c->x[GRAD][0] = (float)(hash >> 40) * 0x1p-24f;
}

static void run_sgd(const tsr_bench_call *c) {
  c->k->sgd(&sgd, c->x[W], c->x[M], c->x[GRAD], 1, 0, c->size.elements);
}

static tsr_rounding rounding_of(const tsr_bench_call *c, const tsr_tensor_slice *slice) {
  return (tsr_rounding){(tsr_rounding_kind)c->what->kind, 7, slice, compensation_of(c)};
}

static void run_adamw_bf16(const tsr_bench_call *c) {
  tsr_tensor_slice slice = {2, {c->size.rows, WIDTH}, {c->size.rows, WIDTH}, {0, 0}};
  tsr_rounding rounding = rounding_of(c, &slice);
  c->k->adamw_bf16(
      &adamw, &rounding, (uint16_t *)c->x[W], c->x[M], c->x[V], NULL, c->x[GRAD], 1, 0,
      c->size.elements);
}

static void run_sgd_bf16(const tsr_bench_call *c) {
  tsr_tensor_slice slice = {2, {c->size.rows, WIDTH}, {c->size.rows, WIDTH}, {0, 0}};
  tsr_rounding rounding = rounding_of(c, &slice);
  c->k->sgd_bf16(&sgd, &rounding, (uint16_t *)c->x[W], c->x[M], c->x[GRAD], 1, 0, c->size.elements);
}

/* A weight in bf16 and its compensation are half a float each. */
static const tsr_bench_case cases[] = {
    {"adamw", NULL, run_adamw, WIDTH, 4, 4, .prepare = prepare_adamw},
    {"adamw", "hashed", run_hashed, WIDTH, 4, 4, .prepare = prepare_adamw},
    {"sgd", NULL, run_sgd, WIDTH, 3, 3},
    {"adamw_bf16", "nearest", run_adamw_bf16, WIDTH, 4, 3.5, TSR_ROUND_NEAREST,
     .prepare = prepare_adamw_bf16},
    {"adamw_bf16", "stochastic", run_adamw_bf16, WIDTH, 4, 3.5, TSR_ROUND_STOCHASTIC,
     .prepare = prepare_adamw_bf16},
    {"adamw_bf16", "kahan", run_adamw_bf16, WIDTH, 5, 4, TSR_ROUND_KAHAN,
     .prepare = prepare_adamw_bf16},
    {"sgd_bf16", "nearest", run_sgd_bf16, WIDTH, 3, 2.5, TSR_ROUND_NEAREST,
     .prepare = prepare_bf16},
    {"sgd_bf16", "stochastic", run_sgd_bf16, WIDTH, 3, 2.5, TSR_ROUND_STOCHASTIC,
     .prepare = prepare_bf16},
    {"sgd_bf16", "kahan", run_sgd_bf16, WIDTH, 4, 3, TSR_ROUND_KAHAN, .prepare = prepare_bf16}};

const tsr_bench_group tsr_bench_optimizer = TSR_BENCH_GROUP("optimizers", cases);
