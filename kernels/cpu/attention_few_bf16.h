// SPDX-License-Identifier: Apache-2.0
/* The GEMMs of a few tokens whose operands are stored in bf16, with the chains of attention_bf16.h:
 * fused multiplications and additions of f32 make them where denormal numbers count as zeros. */
#ifndef TSR_KERNELS_CPU_ATTENTION_FEW_BF16_H
#define TSR_KERNELS_CPU_ATTENTION_FEW_BF16_H
#include "kernels/cpu/attention_few.h"

enum { HEADS = 4 };                   /* heads whose sums are in registers at once */
enum { FEW_STEP = DOT_SQUARE_DEPTH }; /* keys that are summed together; a multiple of SUMS */
_Static_assert(FEW_STEP % WIDTH == 0 && PIECE % FEW_STEP == 0, "whole vectors and squares");

#if defined(TSR_DOT_EMULATED)
enum { IN_TURN = TSR_DOT_EMULATED == 1 }; /* the order of vdpbf16ps */
static inline unsigned flush_begin(void) { return 0; }
static inline void flush_end(unsigned state) { (void)state; }
static inline vector flush_fused(vector a, vector b, vector c) {
  for (int i = 0; i < WIDTH; i++) c[i] = dot_fused(dot_flush(a[i]), dot_flush(b[i]), c[i]);
  return c;
}
static inline vector flush_sum(vector a, vector b) {
  for (int i = 0; i < WIDTH; i++) a[i] = dot_flush(dot_flush(a[i]) + dot_flush(b[i]));
  return a;
}
#else
#if defined(__AMX_BF16__)
enum { IN_TURN = false };
#else
enum { IN_TURN = true };
#endif
/* Denormal operands and results are zeros. What computes so is not inlined between these calls. */
static inline unsigned flush_begin(void) {
  unsigned state = _mm_getcsr();
  _mm_setcsr(state | _MM_FLUSH_ZERO_ON | 0x0040 /* DAZ */);
  return state;
}
static inline void flush_end(unsigned state) { _mm_setcsr(state); }
static inline vector flush_fused(vector a, vector b, vector c) { return vector_fused(a, b, c); }
static inline vector flush_sum(vector a, vector b) { return a + b; }
#endif

/* The sum over a square: `sum`, and what waits to be added to it at its end. */
typedef struct {
  vector sum, even, odd;
} chain;

static inline __attribute__((always_inline)) void chain_begin(chain *c) {
  c->even = c->odd = (vector){0};
}
static inline __attribute__((always_inline)) void
chain_add(chain *c, vector a0, vector b0, vector a1, vector b1) {
  if (IN_TURN) {
    c->sum = flush_fused(a0, b0, flush_fused(a1, b1, c->sum));
    return;
  }
  c->even = flush_fused(a0, b0, c->even);
  c->odd = flush_fused(a1, b1, c->odd);
}
static inline __attribute__((always_inline)) void chain_end(chain *c) {
  if (!IN_TURN) c->sum = flush_sum(c->sum, flush_sum(c->even, c->odd));
}

/* A row's queries, filled up with zeros to whole squares. */
static inline int64_t few_width(int64_t D) { return round_to(D, FEW_STEP); }
static void few_queries(const group *s, const few *f, int64_t row) {
  int64_t D = s->c->a.D, width = few_width(D);
  for (int64_t h = 0; h < s->heads; h++) {
    const number *x = s->q + row * s->q_stride + h * D;
    float *to = f->queries + h * width;
    for (int64_t d = 0; d < width; d++) to[d] = d < D ? bf16_value(x[d]) : 0;
  }
}

/* WIDTH keys' scores for `heads` heads, from key j on, all of one page; keys from `seen` on repeat
 * the last one. */
static inline __attribute__((always_inline)) void
few_scores(const group *s, const few *f, int64_t j, int64_t seen, int64_t from, int heads) {
  int64_t D = s->c->a.D, width = few_width(D);
  const float *queries = f->queries + from * width;
  const number *keys = s->keys + row_at(s, j) * s->k_stride;
  chain sums[HEADS];
  for (int h = 0; h < heads; h++) sums[h] = (chain){{0}, {0}, {0}};
  for (int64_t d = 0; d < width; d += WIDTH) {
    int64_t wide = D - d < 0 ? 0 : D - d < WIDTH ? D - d : WIDTH;
    vector square[WIDTH];
    for (int r = 0; r < WIDTH; r++) {
      const number *x = keys + (j + r < seen ? r : seen - 1 - j) * s->k_stride;
      square[r] = wide == WIDTH ? numbers_load(x + d, 0) : numbers_part(x + (wide ? d : 0), wide);
    }
    transpose_square(square);
    for (int h = 0; d % FEW_STEP == 0 && h < heads; h++) chain_begin(&sums[h]);
    for (int i = 0; i < WIDTH; i += 2)
      for (int h = 0; h < heads; h++) {
        const float *q = queries + h * width + d + i;
        chain_add(&sums[h], vector_all(q[0]), square[i], vector_all(q[1]), square[i + 1]);
      }
    for (int h = 0; (d + WIDTH) % FEW_STEP == 0 && h < heads; h++) chain_end(&sums[h]);
  }
  for (int h = 0; h < heads; h++)
    vector_store(f->scores + (from + h) * f->scores_width + j, sums[h].sum);
}

static __attribute__((noinline)) void
few_flushed_scores(const group *s, const few *f, int64_t begin, int64_t seen) {
  for (int64_t j = begin; j < seen; j += WIDTH)
    for (int64_t h = 0; h < s->heads; h += HEADS) {
      int64_t heads = s->heads - h < HEADS ? s->heads - h : HEADS;
      if (heads == 1) few_scores(s, f, j, seen, h, 1); /* a number that the compiler knows */
      else if (heads == HEADS) few_scores(s, f, j, seen, h, HEADS);
      else few_scores(s, f, j, seen, h, (int)heads);
    }
}

static void few_all_scores(const group *s, const few *f, int64_t begin, int64_t seen) {
  unsigned state = flush_begin();
  few_flushed_scores(s, f, begin, seen);
  flush_end(state);
  for (int64_t h = 0; h < s->heads; h++) {
    float *scores = f->scores + h * f->scores_width;
    row_scale(scores + begin, scores + begin, s->c->a.scale, seen - begin);
  }
}

/* Weights of the keys [begin, seen) rounded to bf16, and zeros to the end of a square. */
static void few_weights(float *weights, int64_t begin, int64_t seen) {
  for (int64_t j = begin; j < seen; j++) weights[j] = bf16_value(bf16_nearest(weights[j]));
  row_zero(weights, seen, round_to(seen, FEW_STEP));
}

/* Numbers of the values of a key from `d` on; zeros of one that is not seen. */
static inline vector few_value(const number *x, bool seen, int v, int64_t wide) {
  if (!seen) return (vector){0};
  return wide == WIDTH ? numbers_load(x, v) : numbers_part(x, wide);
}

/* out[d, …) = sum of weights times the values' numbers over the keys [begin, seen), in `vectors`
 * vectors, or in one of which `wide` numbers exist. A page has a multiple of 16 keys. */
static inline __attribute__((always_inline)) void few_weigh(
    const group *s, const float *weights, int64_t begin, int64_t seen, int64_t d, const int vectors,
    int64_t wide, float *out) {
  chain sums[4];
  for (int v = 0; v < vectors; v++) sums[v] = (chain){{0}, {0}, {0}};
  for (int64_t j = begin; j < seen; j += FEW_STEP) {
    for (int v = 0; v < vectors; v++) chain_begin(&sums[v]);
    for (int64_t part = j; part < j + FEW_STEP; part += 16) {
      const number *x = part < seen ? s->values + row_at(s, part) * s->v_stride + d : s->values;
      for (int64_t i = part; i < part + 16; i += 2, x += 2 * s->v_stride)
        for (int v = 0; v < vectors; v++) {
          vector a0 = few_value(x, i < seen, v, wide);
          vector a1 = few_value(x + s->v_stride, i + 1 < seen, v, wide);
          chain_add(&sums[v], a0, vector_all(weights[i]), a1, vector_all(weights[i + 1]));
        }
    }
    for (int v = 0; v < vectors; v++) chain_end(&sums[v]);
  }
  for (int v = 0; v < vectors; v++)
    memcpy(out + d + v * WIDTH, &sums[v].sum, (size_t)wide * sizeof *out);
}

static __attribute__((noinline)) void
few_flushed_out(const group *s, const float *weights, int64_t begin, int64_t seen, float *out) {
  int64_t d = 0, D = s->Dv;
  for (; d + 4 * WIDTH <= D; d += 4 * WIDTH) few_weigh(s, weights, begin, seen, d, 4, WIDTH, out);
  for (; d + WIDTH <= D; d += WIDTH) few_weigh(s, weights, begin, seen, d, 1, WIDTH, out);
  if (d < D) few_weigh(s, weights, begin, seen, d, 1, D - d, out);
}

static void few_out(
    const group *s, const few *f, const float *weights, int64_t begin, int64_t seen, float factor,
    number *out) {
  unsigned state = flush_begin();
  few_flushed_out(s, weights, begin, seen, f->sums);
  flush_end(state);
  for (int64_t d = 0; d < s->Dv; d++) f->sums[d] += 0.0f; /* as weigh_end does */
  numbers_store(out, f->sums, factor, s->Dv);
}

#endif
