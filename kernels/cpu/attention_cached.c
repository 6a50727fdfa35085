// SPDX-License-Identifier: Apache-2.0
/* Attention of new tokens to a cache. Every number is the chain that attention.c makes: a score
 * over the head's dimensions, a softmax of a whole row, the output over the keys from the first on.
 * So it does not matter how many tokens are new.
 *
 * Many of them go as blocks of queries against packed keys, as there. Of few, packing would cost
 * more than the products: keys are turned in registers as they are read, and nothing is read twice
 * for the heads of a group. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/transpose.h"
#include <assert.h>
#include <stddef.h>

enum { FEW = 4, HEADS = 8 }; /* heads whose sums are in registers at once */

/* As many running sums as attention.h has. */
typedef float float_sums __attribute__((vector_size(4 * SUMS), aligned(4), may_alias));
enum { SUM_STEP = 16 }; /* a multiple of SUMS and of WIDTH */

/* One group of one sequence. */
typedef struct {
  const tsr_attention_cached *c;
  int64_t b, g, first; /* the first new token's position */
  int64_t heads, rows; /* of the group; real new tokens */
  int64_t q_stride, k_stride, out_stride, v_stride, Dv;
  const float *q, *keys, *values; /* (T, H, D) of the group's first head; (length, G, D), Dv */
  float *out;
} group;

static group group_at(
    const tsr_attention_cached *c, float *out, const float *q, const float *keys,
    const float *values, int64_t item) {
  const tsr_attention *a = &c->a;
  group s = {.c = c, .b = item / a->G, .g = item % a->G, .heads = a->H / a->G};
  int64_t room;
  s.first = c->positions[s.b];
  room = c->length - s.first;
  s.rows = c->counts[s.b];
  if (s.rows > a->T) s.rows = a->T;
  if (s.rows > room) s.rows = room;
  if (s.rows < 0) s.rows = 0;
  s.Dv = tsr_attention_value_size(a);
  s.q_stride = a->H * a->D;
  s.k_stride = a->G * a->D;
  s.out_stride = a->H * s.Dv;
  s.v_stride = a->G * s.Dv;
  s.q = q + s.b * a->T * s.q_stride + s.g * s.heads * a->D;
  s.out = out + s.b * a->T * s.out_stride + s.g * s.heads * s.Dv;
  s.keys = keys + s.b * c->length * s.k_stride + s.g * a->D;
  s.values = values + s.b * c->length * s.v_stride + s.g * s.Dv;
  return s;
}

/* ---- few tokens ---- */

/* A thread's numbers for one token: of each head of the group its query and its scores. */
typedef struct {
  float *queries, *scores;
  int64_t scores_width;
} few;

static int64_t few_layout(const tsr_attention_cached *c, float *at, few *f) {
  int64_t heads = c->a.H / c->a.G, queries = round_to(heads * c->a.D, 16);
  f->scores_width = round_to(c->length, LANES) + 16;
  f->queries = at;
  f->scores = at ? at + queries : NULL;
  return queries + heads * f->scores_width;
}

/* WIDTH keys' scores for `heads` heads, from key j on; keys from `seen` on repeat the last one. */
static inline __attribute__((always_inline)) void
few_scores(const group *s, const few *f, int64_t j, int64_t seen, int64_t from, int heads) {
  int64_t D = s->c->a.D;
  const float *queries = f->queries + from * D;
  vector sums[HEADS];
  for (int h = 0; h < heads; h++) sums[h] = (vector){0};
  for (int64_t d = 0; d < D; d += WIDTH) {
    int64_t wide = D - d < WIDTH ? D - d : WIDTH;
    vector square[WIDTH];
    for (int r = 0; r < WIDTH; r++) {
      int64_t key = j + r < seen ? j + r : seen - 1;
      const float *x = s->keys + key * s->k_stride + d;
      square[r] = wide == WIDTH ? lanes_load(x, 0) : vector_part(x, wide);
    }
    turn_square(square);
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

/* out[0, n) = sum of weights times the values' numbers from `d` on, times the factor, over the keys
 * [begin, seen). */
static inline __attribute__((always_inline)) void few_weigh(
    const group *s, const float *weights, int64_t begin, int64_t seen, float factor, int64_t d,
    int vectors, float *out) {
  vector sums[4];
  _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) sums[v] = (vector){0};
  const float *x = s->values + begin * s->v_stride + d;
  for (int64_t j = begin; j < seen; j++, x += s->v_stride) {
    vector weight = weights[j] - (vector){0};
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) sums[v] =
        vector_fused(weight, lanes_load(x, v), sums[v]);
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
        weights[j] - (vector){0}, vector_part(s->values + j * s->v_stride + d, wide), sum);
  sum *= factor;
  memcpy(out + d, &sum, (size_t)wide * sizeof *out);
}

static void few_out(
    const group *s, const float *weights, int64_t begin, int64_t seen, float factor, float *out) {
  int64_t d = 0, D = s->Dv;
  for (; d + 4 * WIDTH <= D; d += 4 * WIDTH) few_weigh(s, weights, begin, seen, factor, d, 4, out);
  for (; d + WIDTH <= D; d += WIDTH) few_weigh(s, weights, begin, seen, factor, d, 1, out);
  if (d < D) few_weigh_rest(s, weights, begin, seen, factor, d, out);
}

/* Scores of the keys [first, seen) to exp(score - maximum), zeros before them from begin on, and
 * their maximum and sum, made of SUMS running ones as attention.h does. */
static void
few_softmax(float *scores, int64_t begin, int64_t first, int64_t seen, float ret_stats[2]) {
  ret_stats[0] = row_max(scores + first, seen - first);
  vector max = vector_all(ret_stats[0]);
  float_sums sums = {0};
  for (int64_t j = begin; j < first; j++) scores[j] = -INFINITY;
  for (int64_t j = seen; j < round_to(seen, SUM_STEP); j++) scores[j] = -INFINITY;
  for (int64_t j = begin; j < seen; j += SUM_STEP) {
    for (int64_t i = j; i < j + SUM_STEP; i += WIDTH)
      vector_store(scores + i, vector_exp(lanes_load(scores + i, 0) - max));
    for (int64_t i = j; i < j + SUM_STEP; i += SUMS) sums += *(const float_sums *)(scores + i);
  }
  for (int half = SUMS / 2; half; half /= 2)
    for (int i = 0; i < half; i++) sums[i] += sums[half + i];
  ret_stats[1] = sums[0];
}

static void few_token(const group *s, const few *f, int64_t row) {
  int64_t D = s->c->a.D, window = s->c->a.window, seen = s->first + row + 1;
  int64_t first = window && seen > window ? seen - window : 0, begin = first / SUM_STEP * SUM_STEP;
  for (int64_t h = 0; h < s->heads; h++)
    row_scale(f->queries + h * D, s->q + row * s->q_stride + h * D, s->c->a.scale, D);
  few_all_scores(s, f, begin, seen);
  for (int64_t h = 0; h < s->heads; h++) {
    float *scores = f->scores + h * f->scores_width, stats[2];
    if (s->c->a.soft_cap != 0) row_cap(scores + begin, s->c->a.soft_cap, seen - begin);
    few_softmax(scores, begin, first, seen, stats);
    float factor = row_complete(&s->c->a, s->g * s->heads + h, stats);
    few_out(s, scores, begin, seen, factor, s->out + row * s->out_stride + h * s->Dv);
  }
}

/* ---- many tokens ---- */

static void many_tokens(const group *s, void *scratch) {
  tsr_attention whole = s->c->a;
  attention_parts p;
  whole.T = s->c->length;
  whole.dropout = 0;
  attention_layout(&whole, 1, scratch, &p);
  whole.T = s->first + s->rows;
  int64_t begin = block_at(&whole, (head){0}, s->first).begin;
  head strides = {.k_stride = s->k_stride, .v_stride = s->v_stride};
  pack_keys(&whole, &p, PACK_OUT, 0, s->keys, s->values, &strides, begin, whole.T);
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t row = 0; row < s->rows; row += QUERIES) {
      block part = block_at(&whole, (head){0}, s->first + row);
      int64_t start = row * s->q_stride + h * whole.D;
      fetch none = {.count = 0};
      pack_columns(p.queries, s->q + start, s->q_stride, whole.scale, whole.D, part.rows);
      block_forward(&whole, &p, part, p.keys, p.values_rows, p.sums, p.value_width, &none);
      float *out = s->out + row * s->out_stride + h * s->Dv;
      for (int64_t r = 0; r < part.rows; r++) {
        float stats[] = {p.max[r], p.parts[r]};
        float factor = row_complete(&whole, s->g * s->heads + h, stats);
        row_scale(out + r * s->out_stride, p.sums + r * p.value_width, factor, s->Dv);
      }
    }
}

int64_t LEVEL(attention_cached_scratch)(const tsr_attention_cached *c) {
  tsr_attention whole = c->a;
  attention_parts p;
  few f;
  whole.T = c->length;
  int64_t floats = few_layout(c, NULL, &f);
  int64_t many = attention_layout(&whole, 1, NULL, &p) +
                 QUERIES * round_to(tsr_attention_value_size(&c->a), WIDEST);
  if (c->a.T > FEW && many > floats) floats = many;
  return floats * (int64_t)sizeof(float);
}

void LEVEL(attention_cached)(
    const tsr_attention_cached *c, float *out, const float *q, const float *keys,
    const float *values, void *scratch, int64_t begin, int64_t end) {
  assert(c->a.H % c->a.G == 0 && c->a.causal);
  few f;
  few_layout(c, scratch, &f);
  for (int64_t item = begin; item < end; item++) {
    group s = group_at(c, out, q, keys, values, item);
    if (s.rows > FEW) many_tokens(&s, scratch);
    for (int64_t row = 0; s.rows <= FEW && row < s.rows; row++) few_token(&s, &f, row);
    for (int64_t row = s.rows; row < c->a.T; row++)
      row_zero(s.out + row * s.out_stride, 0, s.heads * s.Dv);
  }
}
