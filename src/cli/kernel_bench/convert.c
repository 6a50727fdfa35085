// SPDX-License-Identifier: Apache-2.0
/* Conversions and hashes. x[0] has the floats, x[1] the narrower numbers. */
#include "cli/kernel_bench/case.h"

enum { WIDTH = 768 };

static void run_to_bf16(const tsr_bench_call *c) {
  c->k->f32_to_bf16((uint16_t *)c->x[1], c->x[0], 0, c->size.elements);
}

static void run_from_bf16(const tsr_bench_call *c) {
  c->k->bf16_to_f32(c->x[0], (const uint16_t *)c->x[1], 0, c->size.elements);
}

static void run_stochastic(const tsr_bench_call *c) {
  tsr_tensor_slice slice = {2, {c->size.rows, WIDTH}, {c->size.rows, WIDTH}, {0, 0}};
  c->k->f32_to_bf16_stochastic((uint16_t *)c->x[1], c->x[0], 7, &slice, 0, c->size.elements);
}

static void run_to_fp16(const tsr_bench_call *c) {
  c->k->f32_to_fp16((uint16_t *)c->x[1], c->x[0], 0, c->size.elements);
}

static void run_from_fp16(const tsr_bench_call *c) {
  c->k->fp16_to_f32(c->x[0], (const uint16_t *)c->x[1], 0, c->size.elements);
}

static void run_to_e4m3(const tsr_bench_call *c) {
  c->k->f32_to_e4m3((uint8_t *)c->x[1], c->x[0], 0, c->size.elements);
}

static void run_from_e4m3(const tsr_bench_call *c) {
  c->k->e4m3_to_f32(c->x[0], (const uint8_t *)c->x[1], 0, c->size.elements);
}

static void run_from_e5m2(const tsr_bench_call *c) {
  c->k->e5m2_to_f32(c->x[0], (const uint8_t *)c->x[1], 0, c->size.elements);
}

/* As activations and as weights. */
static void quantize_fp8(const tsr_bench_call *c, int block_rows) {
  tsr_fp8_layout l = {c->size.rows, WIDTH, c->size.rows, WIDTH, block_rows, TSR_FP8_BLOCK};
  uint8_t *codes = (uint8_t *)c->x[1];
  float *scales = (float *)(void *)(codes + (c->size.elements + 63) / 64 * 64);
  c->k->fp8_quantize(&l, codes, scales, c->x[0], TSR_ELEMENT_F32, 0, tsr_fp8_tiles(&l));
}
static void run_quantize_rows(const tsr_bench_call *c) { quantize_fp8(c, 1); }
static void run_quantize_squares(const tsr_bench_call *c) { quantize_fp8(c, TSR_FP8_BLOCK); }

static tsr_quantized nf4_of(const tsr_bench_call *c) {
  return (tsr_quantized){c->scratch, {c->size.rows, WIDTH, c->size.rows, WIDTH}, TSR_ELEMENT_F32};
}

static int64_t bytes_of_nf4(const tsr_kernels *k, const tsr_bench_size *s) {
  (void)k;
  tsr_quantized_layout layout = {s->rows, WIDTH, s->rows, WIDTH};
  return tsr_quantized_bytes(&layout);
}

static void quantize(const tsr_bench_call *c) {
  tsr_quantized to = nf4_of(c);
  tsr_quantize(&to.layout, c->scratch, c->x[0]);
}

static void run_from_nf4(const tsr_bench_call *c) {
  tsr_quantized from = nf4_of(c);
  c->k->quantized_to_f32(c->x[0], &from, 0, c->size.elements);
}

/* The lower half of the hash, as a number that is not tiny. */
static void run_hash(const tsr_bench_call *c) {
  c->x[1][0] = (float)(uint32_t)c->k->hash(c->x[0], 0, c->size.elements);
}

static const tsr_bench_case cases[] = {
    {"f32_to_bf16", NULL, run_to_bf16, 1, 2, 1.5},
    {"bf16_to_f32", NULL, run_from_bf16, 1, 2, 1.5, .prepare = run_to_bf16},
    {"f32_to_bf16_stochastic", NULL, run_stochastic, WIDTH, 2, 1.5},
    {"f32_to_fp16", NULL, run_to_fp16, 1, 2, 1.5},
    {"fp16_to_f32", NULL, run_from_fp16, 1, 2, 1.5, .prepare = run_to_fp16},
    {"f32_to_e4m3", NULL, run_to_e4m3, 1, 2, 1.25},
    {"e4m3_to_f32", NULL, run_from_e4m3, 1, 2, 1.25, .prepare = run_to_e4m3},
    {"e5m2_to_f32", NULL, run_from_e5m2, 1, 2, 1.25, .prepare = run_to_e4m3},
    {"fp8_quantize", "1 x 128", run_quantize_rows, WIDTH, 2, 1.26},
    {"fp8_quantize", "128 x 128", run_quantize_squares, WIDTH, 2, 1.25},
    {"quantized_to_f32", NULL, run_from_nf4, WIDTH, 1, 1.13, .prepare = quantize,
     .scratch = bytes_of_nf4},
    {"hash", NULL, run_hash, WIDTH, 2, 1}};

const tsr_bench_group tsr_bench_convert = TSR_BENCH_GROUP("conversions", cases);
