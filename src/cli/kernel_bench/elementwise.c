// SPDX-License-Identifier: Apache-2.0
/* Kernels of elements. x[0] is the output. */
#include "cli/kernel_bench/case.h"

static void run_fill(const tsr_bench_call *c) { c->k->fill(c->x[0], 1.5f, 0, c->size.elements); }

static void run_copy(const tsr_bench_call *c) { c->k->copy(c->x[0], c->x[1], 0, c->size.elements); }

static void run_add(const tsr_bench_call *c) {
  c->k->add(c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_sub(const tsr_bench_call *c) {
  c->k->sub(c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_mul(const tsr_bench_call *c) {
  c->k->mul(c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_scale(const tsr_bench_call *c) {
  c->k->scale(c->x[0], c->x[1], 0.75f, 0, c->size.elements);
}

static void run_unary(const tsr_bench_call *c) {
  c->k->unary((tsr_unary)c->what->kind, c->x[0], c->x[1], 0, c->size.elements);
}

static void run_unary_backward(const tsr_bench_call *c) {
  tsr_unary kind = (tsr_unary)c->what->kind;
  c->k->unary_backward(kind, c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_gated(const tsr_bench_call *c) {
  tsr_unary kind = (tsr_unary)c->what->kind;
  c->k->gated(kind, c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_gated_backward(const tsr_bench_call *c) {
  tsr_unary kind = (tsr_unary)c->what->kind;
  c->k->gated_backward(kind, c->x[0], c->x[1], c->x[2], c->x[3], c->x[4], 0, c->size.elements);
}

static const float alpha = 1.702f, limit = 1;

static void run_clamped_swiglu(const tsr_bench_call *c) {
  c->k->clamped_swiglu(alpha, limit, c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_clamped_swiglu_backward(const tsr_bench_call *c) {
  c->k->clamped_swiglu_backward(
      alpha, limit, c->x[0], c->x[1], c->x[2], c->x[3], c->x[4], 0, c->size.elements);
}

#define UNARY(ID, name) {"unary", #name, run_unary, 1, 2, 2, TSR_UNARY_##ID},
#define UNARY_BACKWARD(ID, name)                                                                   \
  {"unary_backward", #name, run_unary_backward, 1, 3, 3, TSR_UNARY_##ID},

/* clang-format off */
static const tsr_bench_case cases[] = {
    {"fill", NULL, run_fill, 1, 1, 1},
    {"copy", NULL, run_copy, 1, 2, 2},
    {"add", NULL, run_add, 1, 3, 3},
    {"sub", NULL, run_sub, 1, 3, 3},
    {"mul", NULL, run_mul, 1, 3, 3},
    {"scale", NULL, run_scale, 1, 2, 2},
    TSR_UNARY_LIST(UNARY)
    TSR_UNARY_LIST(UNARY_BACKWARD)
    {"gated", "silu", run_gated, 1, 3, 3, TSR_UNARY_SILU},
    {"gated_backward", "silu", run_gated_backward, 1, 5, 5, TSR_UNARY_SILU},
    {"clamped_swiglu", NULL, run_clamped_swiglu, 1, 3, 3},
    {"clamped_swiglu_backward", NULL, run_clamped_swiglu_backward, 1, 5, 5}};
/* clang-format on */

const tsr_bench_group tsr_bench_elementwise = TSR_BENCH_GROUP("elementwise", cases);
