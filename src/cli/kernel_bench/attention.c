// SPDX-License-Identifier: Apache-2.0
/* Attention of GPT-2 124M's heads. Its work are the products that causality leaves: a query looks
 * at T / 2 keys. Forward these are two, scores and weighted values; backward five, the scores being
 * computed again. */
#include "cli/kernel_bench/case.h"
#include <inttypes.h>
#include <stdio.h>

enum { HEADS = 12, HEAD = 64, WIDTH = HEADS * HEAD };
enum { Q, K, V, OUT, STATS, DOUT, DQ, DK, DV, USED };

/* shape begins with B, T */
static tsr_attention attention_of(const tsr_bench_case *what) {
  return (tsr_attention){
      .B = what->shape[0],
      .T = what->shape[1],
      .H = HEADS,
      .G = HEADS,
      .D = HEAD,
      .scale = 0.125f,
      .causal = true,
      .dropout = 0.1f * (float)what->kind,
      .key = 3,
      .heads_global = HEADS};
}

static void
fix_attention(const tsr_bench_case *what, const tsr_kernels *k, tsr_bench_size *ret_size) {
  tsr_attention a = attention_of(what);
  tsr_bench_size *s = ret_size;
  *s = (tsr_bench_size){.rows = a.B * a.T, .cols = WIDTH, .arrays = USED};
  s->elements = s->rows * s->cols;
  s->scratch_bytes = k->attention_scratch(&a);
  s->floats = what->touched * (double)s->elements;
  s->flops = (double)what->shape[2] * (double)s->elements * (double)a.T;
  snprintf(s->shape, sizeof s->shape, "B%" PRId64 " T%" PRId64 " D%d", a.B, a.T, HEAD);
}

static void run_forward(const tsr_bench_call *c) {
  tsr_attention a = attention_of(c->what);
  c->k->attention(
      &a, c->x[OUT], c->x[STATS], c->x[Q], c->x[K], c->x[V], c->scratch, 0, a.B * HEADS);
}

static void run_backward(const tsr_bench_call *c) {
  tsr_attention a = attention_of(c->what);
  c->k->attention_backward(
      &a, c->x[DQ], c->x[DK], c->x[DV], c->x[DOUT], c->x[Q], c->x[K], c->x[V], c->x[OUT],
      c->x[STATS], c->scratch, 0, a.B * HEADS);
}

static void run_sinks_backward(const tsr_bench_call *c) {
  tsr_attention a = attention_of(c->what);
  a.sinks = c->x[Q];
  c->k->attention_sinks_backward(&a, c->x[DQ], c->x[DOUT], c->x[OUT], c->x[STATS], 0, a.B * a.T);
}

/* ---- with a cache: shape is B, new tokens, all of them ---- */

enum {
  CACHED_KEYS,
  CACHED_VALUES,
  CACHED_Q,
  CACHED_OUT,
  POSITIONS,
  COUNTS,
  PAGES,
  CACHED_PAGE = 16
};

static tsr_attention_cached cached_of(const tsr_bench_case *what, float *const *x) {
  return (tsr_attention_cached){attention_of(what),           CACHED_PAGE,
                                what->shape[2] / CACHED_PAGE, (const int32_t *)x[POSITIONS],
                                (const int32_t *)x[COUNTS],   (const int32_t *)x[PAGES]};
}

static void fix_cached(const tsr_bench_case *what, const tsr_kernels *k, tsr_bench_size *ret_size) {
  float *none[TSR_BENCH_ARRAYS] = {NULL};
  tsr_attention_cached c = cached_of(what, none);
  tsr_bench_size *s = ret_size;
  int64_t length = tsr_attention_cached_length(&c);
  *s = (tsr_bench_size){.rows = c.a.B, .cols = WIDTH, .arrays = 2};
  s->elements = c.a.B * length * WIDTH;
  s->few = c.a.B * c.a.T * WIDTH;
  s->scratch_bytes = k->attention_cached_scratch(&c);
  s->floats = 2.0 * (double)(s->elements + s->few);
  s->flops = 4.0 * (double)(c.a.T * s->elements);
  snprintf(
      s->shape, sizeof s->shape, "B%" PRId64 " T%" PRId64 " of %" PRId64, c.a.B, c.a.T, length);
}

static void prepare_cached(const tsr_bench_call *c) {
  int32_t *positions = (int32_t *)c->x[POSITIONS], *counts = (int32_t *)c->x[COUNTS];
  int32_t *pages = (int32_t *)c->x[PAGES];
  for (int32_t i = 0; i < c->what->shape[0] * c->what->shape[2] / CACHED_PAGE; i++) pages[i] = i;
  for (int64_t b = 0; b < c->what->shape[0]; b++) {
    positions[b] = (int32_t)(c->what->shape[2] - c->what->shape[1]);
    counts[b] = (int32_t)c->what->shape[1];
  }
}

static void run_cached(const tsr_bench_call *c) {
  tsr_attention_cached cached = cached_of(c->what, c->x);
  c->k->attention_cached(
      &cached, c->x[CACHED_OUT], c->x[CACHED_Q], c->x[CACHED_KEYS], c->x[CACHED_VALUES], c->scratch,
      0, cached.a.B * HEADS);
}

/* shape ends with the products, each of which is T operations for an element: 2 · T / 2. */
#define FORWARD(name, dropout_, B, T)                                                              \
  {                                                                                                \
    "attention", name, run_forward, .touched = 4, .kind = dropout_, .shape = {B, T, 2},            \
                                    .fix = fix_attention                                           \
  }
#define BACKWARD(name, dropout_, B, T)                                                             \
  {                                                                                                \
    "attention_backward", name, run_backward, .touched = 8, .kind = dropout_, .shape = {B, T, 5},  \
                                              .fix = fix_attention, .prepare = run_forward         \
  }

static const tsr_bench_case cases[] = {
    FORWARD(NULL, 0, 4, 64),
    FORWARD(NULL, 0, 4, 256),
    FORWARD(NULL, 0, 1, 1024),
    FORWARD("dropout", 1, 1, 1024),
    BACKWARD(NULL, 0, 4, 64),
    BACKWARD(NULL, 0, 4, 256),
    BACKWARD(NULL, 0, 1, 1024),
    BACKWARD("dropout", 1, 1, 1024),
    {"attention_sinks_backward", NULL, run_sinks_backward, .touched = 2, .shape = {1, 1024},
     .fix = fix_attention, .prepare = run_forward},
    {"attention_cached", NULL, run_cached, .shape = {32, 1, 1024}, .fix = fix_cached,
     .prepare = prepare_cached}};

const tsr_bench_group tsr_bench_attention = TSR_BENCH_GROUP("attention, its causal half", cases);
