// SPDX-License-Identifier: Apache-2.0
/* Matrix products of a GPT-2 124M step: of a linear y (R,N) = x (R,K) w (N,K)^T, and of its
 * gradients. Packing is part of each, as it is of a step. */
#include "cli/kernel_bench/case.h"
#include <inttypes.h>
#include <stdio.h>

typedef enum { LINEAR, LINEAR_DX, LINEAR_DW, IN_BF16 = 4 } gemm_kind; /* IN_BF16 is added */

/* From shape, which is R, N, K of the linear; x[0] is A, x[1] B and x[2] C. */
static tsr_gemm gemm_of(const tsr_bench_case *what, float *const *x) {
  int64_t R = what->shape[0], N = what->shape[1], K = what->shape[2];
  tsr_gemm p = {.M = R, .N = N, .K = K, .c = x[2]};
  p.a = (tsr_matrix){x[0], K, 1}; /* x w^T */
  p.b = (tsr_matrix){x[1], 1, K};
  int kind = what->kind & ~IN_BF16;
  if (kind == LINEAR_DX) { /* dy w */
    p.N = K, p.K = N;
    p.a = (tsr_matrix){x[0], N, 1};
    p.b = (tsr_matrix){x[1], K, 1};
  } else if (kind == LINEAR_DW) { /* dy^T x */
    p.M = N, p.N = K, p.K = R;
    p.a = (tsr_matrix){x[0], 1, N};
    p.b = (tsr_matrix){x[1], K, 1};
  }
  if (what->kind & IN_BF16) p.a.type = p.b.type = TSR_ELEMENT_BF16;
  p.c_stride = p.N;
  p.by_rows = p.N <= p.M; /* the smaller operand is packed for all */
  return p;
}

/* Of activations, as a step has them; the gradient of a weight is f32. */
static bool stores_bf16(const tsr_bench_case *what, const tsr_kernels *k, const tsr_gemm *p) {
  return what->kind & IN_BF16 && (what->kind & ~IN_BF16) != LINEAR_DW &&
         k->gemm_traits(p).stores_bf16;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void fix_gemm(const tsr_bench_case *what, const tsr_kernels *k, tsr_bench_size *ret_size) {
  float *none[3] = {NULL, NULL, NULL};
  tsr_gemm p = gemm_of(what, none);
  tsr_bench_size *s = ret_size;
  *s = (tsr_bench_size){.rows = p.M, .cols = p.N, .arrays = 3};
  s->elements = larger(p.M * p.N, larger(p.M, p.N) * p.K);
  s->scratch_bytes = k->gemm_bytes(&p);
  s->is_dot = what->kind & IN_BF16;
  s->floats = (double)(p.M * p.K + p.N * p.K) / (s->is_dot ? 2 : 1) +
              (double)(p.M * p.N) / (stores_bf16(what, k, &p) ? 2 : 1);
  s->flops = 2.0 * (double)p.M * (double)p.N * (double)p.K;
  snprintf(s->shape, sizeof s->shape, "%" PRId64 "x%" PRId64 "x%" PRId64, p.M, p.N, p.K);
}

/* The upper halves of f32: bf16, rounded towards zero. */
static void prepare_bf16(const tsr_bench_call *c) {
  for (int i = 0; i < 2; i++) {
    const uint16_t *from = (const uint16_t *)(const void *)c->x[i];
    uint16_t *to = (uint16_t *)(void *)c->x[i];
    for (int64_t j = 0; j < c->size.elements; j++) to[j] = from[2 * j + 1];
  }
}

static void run_gemm(const tsr_bench_call *c) {
  tsr_gemm p = gemm_of(c->what, c->x);
  /* behind the elements in bf16 as many are free */
  if (stores_bf16(c->what, c->k, &p)) p.c_bf16 = (uint16_t *)(void *)c->x[0] + c->size.elements;
  c->k->gemm_pack(&p, c->scratch, 0, p.by_rows ? p.N : p.M);
  c->k->gemm(&p, c->scratch, 0, p.by_rows ? p.M : p.N);
}

/* ---- packing by itself: rows of A, or the columns of what is A transposed ---- */

static tsr_gemm packing_of(const tsr_bench_case *what, const tsr_bench_size *s, float *x) {
  tsr_gemm p = {.M = s->rows, .N = 2 * s->rows, .K = s->cols};
  p.a = what->kind ? (tsr_matrix){x, 1, p.M} : (tsr_matrix){x, p.K, 1};
  return p;
}

static int64_t scratch_of_pack(const tsr_kernels *k, const tsr_bench_size *s) {
  tsr_gemm p = {.M = s->rows, .N = 2 * s->rows, .K = s->cols};
  return k->gemm_bytes(&p);
}

static void run_pack(const tsr_bench_call *c) {
  tsr_gemm p = packing_of(c->what, &c->size, c->x[0]);
  c->k->gemm_pack(&p, c->scratch, 0, p.M);
}

/* ---- few rows, as generating has them: R, N, K ---- */

static void fix_few(const tsr_bench_case *what, const tsr_kernels *k, tsr_bench_size *ret_size) {
  int64_t R = what->shape[0], N = what->shape[1], K = what->shape[2];
  (void)k;
  *ret_size =
      (tsr_bench_size){.rows = R, .cols = N, .elements = N * K, .arrays = 1, .few = R * (N + K)};
  ret_size->floats = (double)(N * K + R * K + R * N);
  ret_size->flops = 2.0 * (double)(R * N * K);
  snprintf(ret_size->shape, sizeof ret_size->shape, "%" PRId64 "x%" PRId64 "x%" PRId64, R, N, K);
}

static void run_few(const tsr_bench_call *c) {
  int64_t R = c->what->shape[0], N = c->what->shape[1], K = c->what->shape[2];
  tsr_skinny_gemm p = {R, K, K, N, .w = {c->x[0], 1, K}};
  c->k->skinny_gemm(&p, c->x[2], c->x[1], 0, N);
}

#define PRODUCT(name, kind_, ...)                                                                  \
  { "gemm", name, run_gemm, .kind = kind_, .shape = {__VA_ARGS__}, .fix = fix_gemm }
#define LAYER(R, N, K)                                                                             \
  PRODUCT("linear", LINEAR, R, N, K), PRODUCT("linear_dx", LINEAR_DX, R, N, K),                    \
      PRODUCT("linear_dw", LINEAR_DW, R, N, K)

#define PRODUCT_BF16(name, kind_, ...)                                                             \
  {                                                                                                \
    "gemm", "bf16 " name, run_gemm, .kind = (kind_) + IN_BF16, .shape = {__VA_ARGS__},             \
                                    .fix = fix_gemm, .prepare = prepare_bf16                       \
  }
#define LAYER_BF16(R, N, K)                                                                        \
  PRODUCT_BF16("linear", LINEAR, R, N, K), PRODUCT_BF16("linear_dx", LINEAR_DX, R, N, K),          \
      PRODUCT_BF16("linear_dw", LINEAR_DW, R, N, K)

static const tsr_bench_case cases[] = {
    {"gemm_pack", "rows", run_pack, 768, 2, 2, 0, .scratch = scratch_of_pack},
    {"gemm_pack", "transposed", run_pack, 768, 2, 2, 1, .scratch = scratch_of_pack},
    LAYER(1024, 768, 768),
    LAYER(1024, 3072, 768),
    LAYER(1024, 768, 3072),
    LAYER(256, 768, 768),
    LAYER(256, 3072, 768),
    LAYER(256, 768, 3072),
    LAYER_BF16(1024, 768, 768),
    LAYER_BF16(1024, 3072, 768),
    LAYER_BF16(1024, 768, 3072),
    LAYER_BF16(256, 768, 768),
    LAYER_BF16(256, 3072, 768),
    LAYER_BF16(256, 768, 3072),
    {"skinny_gemm", NULL, run_few, .shape = {1, 50257, 768}, .fix = fix_few},
    {"skinny_gemm", NULL, run_few, .shape = {4, 50257, 768}, .fix = fix_few},
    {"skinny_gemm", NULL, run_few, .shape = {16, 50257, 768}, .fix = fix_few}};

const tsr_bench_group tsr_bench_gemms = TSR_BENCH_GROUP("GEMMs, packing included", cases);
