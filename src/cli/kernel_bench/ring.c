// SPDX-License-Identifier: Apache-2.0
/* Attention around a ring of two members, seen by the second: a step over its own part, of which
 * causality leaves a half, and what ends the sums. */
#include "cli/kernel_bench/case.h"
#include <inttypes.h>
#include <stdio.h>

enum { HEADS = 12, HEAD = 64, WIDTH = HEADS * HEAD, MEMBERS = 2 };
enum { Q, K, V, OUT, STATS, ROWS, DOUT, DQ, DK, DV, USED };

/* shape begins with T of a member; kind is a tsr_attention_sum */
static tsr_attention_ring ring_of(const tsr_bench_case *what, int step) {
  int64_t T = what->shape[0];
  tsr_attention a = {
      .B = 1,
      .T = T,
      .H = HEADS,
      .G = HEADS,
      .D = HEAD,
      .scale = 0.125f,
      .causal = true,
      .heads_global = HEADS};
  return (tsr_attention_ring){
      .a = a,
      .length = T * MEMBERS,
      .units = MEMBERS,
      .members = MEMBERS,
      .coord = 1,
      .step = step};
}

/* The sum stands behind the kernels' own scratch. */
static int64_t acc_at(const tsr_kernels *k, const tsr_attention_ring *r) {
  return (k->attention_ring_scratch(r) + 63) / 64 * 64;
}

static float *acc_of(const tsr_bench_call *c, const tsr_attention_ring *r) {
  return (float *)((char *)c->scratch + acc_at(c->k, r));
}

static void fix_ring(const tsr_bench_case *what, const tsr_kernels *k, tsr_bench_size *ret_size) {
  tsr_attention_ring r = ring_of(what, 0);
  tsr_bench_size *s = ret_size;
  *s = (tsr_bench_size){.rows = r.a.T, .cols = WIDTH, .arrays = USED};
  s->elements = s->rows * s->cols;
  s->scratch_bytes = acc_at(k, &r) + k->attention_ring_acc(&r, (tsr_attention_sum)what->kind);
  s->floats = what->touched * (double)s->elements;
  s->flops = (double)what->shape[1] * (double)s->elements * (double)r.a.T;
  snprintf(s->shape, sizeof s->shape, "T%" PRId64 " of %" PRId64, r.a.T, r.length);
}

static void step_out(const tsr_bench_call *c, int step) {
  tsr_attention_ring r = ring_of(c->what, step);
  c->k->attention_ring(&r, acc_of(c, &r), c->x[Q], c->x[K], c->x[V], c->scratch, 0, HEADS);
}

static void step_dq(const tsr_bench_call *c, int step) {
  tsr_attention_ring r = ring_of(c->what, step);
  c->k->attention_ring_dq(
      &r, acc_of(c, &r), c->x[DOUT], c->x[Q], c->x[K], c->x[V], c->x[ROWS], c->scratch, 0, HEADS);
}

static void step_dkv(const tsr_bench_call *c, int step) {
  tsr_attention_ring r = ring_of(c->what, step);
  c->k->attention_ring_dkv(
      &r, acc_of(c, &r), c->x[DOUT], c->x[Q], c->x[ROWS], c->x[K], c->x[V], c->scratch, 0, HEADS);
}

static void run_out(const tsr_bench_call *c) { step_out(c, 0); }
static void run_dq(const tsr_bench_call *c) { step_dq(c, 0); }
static void run_dkv(const tsr_bench_call *c) { step_dkv(c, 0); }

static void run_rows(const tsr_bench_call *c) {
  tsr_attention_ring r = ring_of(c->what, 0);
  c->k->attention_ring_rows(&r, c->x[ROWS], c->x[DOUT], c->x[OUT], c->x[STATS], 0, HEADS);
}

static void run_out_finish(const tsr_bench_call *c) {
  tsr_attention_ring r = ring_of(c->what, 0);
  c->k->attention_ring_finish(&r, c->x[OUT], c->x[STATS], acc_of(c, &r), 0, HEADS);
}

static void run_dq_finish(const tsr_bench_call *c) {
  tsr_attention_ring r = ring_of(c->what, 0);
  c->k->attention_ring_dq_finish(&r, c->x[DQ], acc_of(c, &r), 0, HEADS);
}

static void run_dkv_finish(const tsr_bench_call *c) {
  tsr_attention_ring r = ring_of(c->what, 0);
  c->k->attention_ring_dkv_finish(&r, c->x[DK], c->x[DV], acc_of(c, &r), 0, HEADS);
}

/* ---- what must be there before ---- */

/* A softmax of scores near 0 over the keys before: all that the gradients need of it. */
static void prepare_rows(const tsr_bench_call *c) {
  for (int64_t i = 0; i < HEADS * c->size.rows; i++) {
    float *row = c->x[ROWS] + 3 * i;
    row[0] = 2, row[1] = (float)c->size.rows, row[2] = 0;
  }
}

static void prepare_out(const tsr_bench_call *c) {
  for (int step = 0; step < MEMBERS; step++) step_out(c, step);
}

static void prepare_dq(const tsr_bench_call *c) {
  prepare_rows(c);
  for (int step = 0; step < MEMBERS; step++) step_dq(c, step);
}

static void prepare_dkv(const tsr_bench_call *c) {
  prepare_rows(c);
  for (int step = 0; step < MEMBERS; step++) step_dkv(c, step);
}

/* shape ends with the products, each of which is T operations for an element: 2 · T / 2. */
#define RING(name, run_, touched_, kind_, gemms, prepare_)                                         \
  {                                                                                                \
    name, NULL, run_, .touched = touched_, .kind = kind_, .shape = {512, gemms}, .fix = fix_ring,  \
                      .prepare = prepare_                                                          \
  }

static const tsr_bench_case cases[] = {
    RING("attention_ring", run_out, 4, TSR_ATTENTION_OUT, 2, NULL),
    RING("attention_ring_finish", run_out_finish, 2, TSR_ATTENTION_OUT, 0, prepare_out),
    RING("attention_ring_rows", run_rows, 2, TSR_ATTENTION_OUT, 0, NULL),
    RING("attention_ring_dq", run_dq, 5, TSR_ATTENTION_DQ, 3, prepare_rows),
    RING("attention_ring_dq_finish", run_dq_finish, 2, TSR_ATTENTION_DQ, 0, prepare_dq),
    RING("attention_ring_dkv", run_dkv, 6, TSR_ATTENTION_DKV, 4, prepare_rows),
    RING("attention_ring_dkv_finish", run_dkv_finish, 4, TSR_ATTENTION_DKV, 0, prepare_dkv)};

const tsr_bench_group tsr_bench_ring = TSR_BENCH_GROUP("ring attention", cases);
