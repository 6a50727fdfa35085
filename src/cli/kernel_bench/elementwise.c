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

static void run_swiglu(const tsr_bench_call *c) {
  c->k->swiglu(c->x[0], c->x[1], c->x[2], 0, c->size.elements);
}

static void run_swiglu_backward(const tsr_bench_call *c) {
  c->k->swiglu_backward(c->x[0], c->x[1], c->x[2], c->x[3], c->x[4], 0, c->size.elements);
}

static const tsr_bench_case cases[] = {
    {"fill", NULL, run_fill, 1, 1, 1},
    {"copy", NULL, run_copy, 1, 2, 2},
    {"add", NULL, run_add, 1, 3, 3},
    {"sub", NULL, run_sub, 1, 3, 3},
    {"mul", NULL, run_mul, 1, 3, 3},
    {"scale", NULL, run_scale, 1, 2, 2},
    {"unary", "gelu_tanh", run_unary, 1, 2, 2, TSR_UNARY_GELU_TANH},
    {"unary", "gelu_erf", run_unary, 1, 2, 2, TSR_UNARY_GELU_ERF},
    {"unary", "relu", run_unary, 1, 2, 2, TSR_UNARY_RELU},
    {"unary", "silu", run_unary, 1, 2, 2, TSR_UNARY_SILU},
    {"unary", "tanh", run_unary, 1, 2, 2, TSR_UNARY_TANH},
    {"unary", "sigmoid", run_unary, 1, 2, 2, TSR_UNARY_SIGMOID},
    {"unary_backward", "gelu_tanh", run_unary_backward, 1, 3, 3, TSR_UNARY_GELU_TANH},
    {"unary_backward", "gelu_erf", run_unary_backward, 1, 3, 3, TSR_UNARY_GELU_ERF},
    {"unary_backward", "relu", run_unary_backward, 1, 3, 3, TSR_UNARY_RELU},
    {"unary_backward", "silu", run_unary_backward, 1, 3, 3, TSR_UNARY_SILU},
    {"unary_backward", "tanh", run_unary_backward, 1, 3, 3, TSR_UNARY_TANH},
    {"unary_backward", "sigmoid", run_unary_backward, 1, 3, 3, TSR_UNARY_SIGMOID},
    {"swiglu", NULL, run_swiglu, 1, 3, 3},
    {"swiglu_backward", NULL, run_swiglu_backward, 1, 5, 5}};

const tsr_bench_group tsr_bench_elementwise = TSR_BENCH_GROUP("elementwise", cases);
