// SPDX-License-Identifier: Apache-2.0
/* The GEMMs of a few tokens in f32, with the chains of attention_f32.h. */
#ifndef TSR_KERNELS_CPU_ATTENTION_FEW_F32_H
#define TSR_KERNELS_CPU_ATTENTION_FEW_F32_H
#include "kernels/cpu/attention_few.h"

enum { HEADS = 8 };     /* heads whose sums are in registers at once */
enum { FEW_STEP = 16 }; /* a multiple of SUMS and of WIDTH */

static void few_queries(const group *s, const few *f, int64_t row) {
  int64_t D = s->c->a.D;
  for (int64_t h = 0; h < s->heads; h++)
    row_scale(f->queries + h * D, s->q + row * s->q_stride + h * D, s->c->a.scale, D);
}

/* WIDTH keys' scores for `heads` heads, from key j on, all of one page; keys from `seen` on repeat
 * the last one. */
static inline __attribute__((always_inline)) void
few_scores(const group *s, const few *f, int64_t j, int64_t seen, int64_t from, int heads) {
  int64_t D = s->c->a.D;
  const float *queries = f->queries + from * D, *keys = s->keys + row_at(s, j) * s->k_stride;
  vector sums[HEADS];
  for (int h = 0; h < heads; h++) sums[h] = (vector){0};
  for (int64_t d = 0; d < D; d += WIDTH) {
    int64_t wide = D - d < WIDTH ? D - d : WIDTH;
    vector square[WIDTH];
    for (int r = 0; r < WIDTH; r++) {
      const float *x = keys + (j + r < seen ? r : seen - 1 - j) * s->k_stride + d;
      square[r] = wide == WIDTH ? lanes_load(x, 0) : vector_part(x, wide);
    }
    transpose_square(square);
    for (int i = 0; i < wide; i++)
      for (int h = 0; h < heads; h++)
        sums[h] = vector_fused(queries[h * D + d + i] - (vector){0}, square[i], sums[h]);
  }
  for (int h = 0; h < heads; h++)
    vector_store(f->scores + (from + h) * f->scores_width + j, sums[h]);
}

static void few_all_scores(const group *s, const few *f, int64_t begin, int64_t seen) {
  for (int64_t j = begin; j < seen; j += WIDTH)
    for (int64_t h = 0; h < s->heads; h += HEADS) {
      int64_t heads = s->heads - h < HEADS ? s->heads - h : HEADS;
      if (heads == 1) few_scores(s, f, j, seen, h, 1); /* a number that the compiler knows */
      else if (heads == 4) few_scores(s, f, j, seen, h, 4);
      else if (heads == HEADS) few_scores(s, f, j, seen, h, HEADS);
      else few_scores(s, f, j, seen, h, (int)heads);
    }
}

/* Weights are multiplied as they are. */
static void few_weights(float *weights, int64_t begin, int64_t seen) {
  (void)weights, (void)begin, (void)seen;
}

/* out[0, n) = sum of weights times the values' numbers from `d` on, times the factor, over the keys
 * [begin, seen). */
static inline __attribute__((always_inline)) void few_weigh(
    const group *s, const float *weights, int64_t begin, int64_t seen, float factor, int64_t d,
    int vectors, float *out) {
  vector sums[4];
  _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) sums[v] = (vector){0};
  for (int64_t j = begin; j < seen;) {
    const float *x = s->values + row_at(s, j) * s->v_stride + d;
    for (int64_t end = run_end(s, j, seen); j < end; j++, x += s->v_stride) {
      vector weight = weights[j] - (vector){0};
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) sums[v] =
          vector_fused(weight, lanes_load(x, v), sums[v]);
    }
  }
  _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)
      vector_store(out + d + v * WIDTH, sums[v] * factor);
}

/* The dimensions that do not fill a vector. */
static void few_weigh_rest(
    const group *s, const float *weights, int64_t begin, int64_t seen, float factor, int64_t d,
    float *out) {
  int64_t wide = s->Dv - d;
  vector sum = {0};
  for (int64_t j = begin; j < seen; j++)
    sum = vector_fused(
        weights[j] - (vector){0}, vector_part(s->values + row_at(s, j) * s->v_stride + d, wide),
        sum);
  sum *= factor;
  memcpy(out + d, &sum, (size_t)wide * sizeof *out);
}

static void few_out(
    const group *s, const few *f, const float *weights, int64_t begin, int64_t seen, float factor,
    float *out) {
  (void)f;
  int64_t d = 0, D = s->Dv;
  for (; d + 4 * WIDTH <= D; d += 4 * WIDTH) few_weigh(s, weights, begin, seen, factor, d, 4, out);
  for (; d + WIDTH <= D; d += WIDTH) few_weigh(s, weights, begin, seen, factor, d, 1, out);
  if (d < D) few_weigh_rest(s, weights, begin, seen, factor, d, out);
}

#endif
