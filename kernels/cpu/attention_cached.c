// SPDX-License-Identifier: Apache-2.0
/* Attention of new tokens to a cache. Every number is the chain that attention.c makes: a score
 * over the head's dimensions, a softmax of a whole row, the output over the keys from the first on.
 * So it does not matter how many tokens are new.
 *
 * Many of them go as blocks of queries against packed keys, as there, gathered from their pages. Of
 * few, packing would cost more than the products: keys are turned in registers as they are read, a
 * page at a time, and nothing is read twice for the heads of a group. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/transpose.h"
#include <assert.h>
#include <stddef.h>

_Static_assert(
    (int)PIECE <= (int)TSR_ATTENTION_CACHED_BEFORE, "keys are read from where a piece begins");

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
  const float *q, *keys, *values; /* (T, H, D) of the group's first head; pools (rows, G, D), Dv */
  const int32_t *pages;           /* of the sequence */
  float *out;
} group;

/* The row of the pools that has a position. */
static inline int64_t row_at(const group *s, int64_t position) {
  int64_t page = s->c->page;
  return s->pages[position / page] * page + position % page;
}

/* The end of a run of rows that follow each other from this position on, at most `end`. */
static inline int64_t run_end(const group *s, int64_t position, int64_t end) {
  int64_t next = (position / s->c->page + 1) * s->c->page;
  return next < end ? next : end;
}

static group group_at(
    const tsr_attention_cached *c, float *out, const float *q, const float *keys,
    const float *values, int64_t item) {
  const tsr_attention *a = &c->a;
  group s = {.c = c, .b = item / a->G, .g = item % a->G, .heads = a->H / a->G};
  int64_t room;
  s.first = c->positions[s.b];
  room = tsr_attention_cached_length(c) - s.first;
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
  s.keys = keys + s.g * a->D;
  s.values = values + s.g * s.Dv;
  s.pages = c->pages ? c->pages + s.b * c->pages_each : NULL;
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
  f->scores_width = round_to(tsr_attention_cached_length(c), LANES) + 16;
  f->queries = at;
  f->scores = at ? at + queries : NULL;
  return queries + heads * f->scores_width;
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

/* What follows the parts of attention: the keys and the values of a head, in their order. */
static int64_t
many_layout(const tsr_attention_cached *c, void *at, attention_parts *p, float **keys) {
  tsr_attention whole = c->a;
  whole.T = tsr_attention_cached_length(c);
  whole.dropout = 0;
  int64_t Dv = tsr_attention_value_size(&whole),
          before = attention_layout(&whole, 1, at, p) + QUERIES * round_to(Dv, WIDEST);
  *keys = at ? (float *)at + before : NULL;
  return before + whole.T * (whole.D + Dv);
}

/* Rows [begin, end) of a pool, in the order of their positions. */
static void gather(
    const group *s, float *to, const float *pool, int64_t stride, int64_t wide, int64_t begin,
    int64_t end) {
  for (int64_t j = begin; j < end; j++)
    memcpy(to + j * wide, pool + row_at(s, j) * stride, (size_t)wide * sizeof *to);
}

static void many_tokens(const group *s, void *scratch) {
  tsr_attention whole = s->c->a;
  attention_parts p;
  float *keys, *values;
  many_layout(s->c, scratch, &p, &keys);
  values = keys + tsr_attention_cached_length(s->c) * whole.D;
  whole.dropout = 0;
  whole.T = s->first + s->rows;
  int64_t begin = block_at(&whole, (head){0}, s->first).begin;
  head strides = {.k_stride = whole.D, .v_stride = s->Dv};
  gather(s, keys, s->keys, s->k_stride, whole.D, begin, whole.T);
  gather(s, values, s->values, s->v_stride, s->Dv, begin, whole.T);
  pack_keys(&whole, &p, PACK_OUT, 0, keys, values, &strides, begin, whole.T);
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
  attention_parts p;
  float *keys;
  few f;
  int64_t floats = few_layout(c, NULL, &f), many = many_layout(c, NULL, &p, &keys);
  if (c->a.T > FEW && many > floats) floats = many;
  return floats * (int64_t)sizeof(float);
}

void LEVEL(attention_cached)(
    const tsr_attention_cached *c, float *out, const float *q, const float *keys,
    const float *values, void *scratch, int64_t begin, int64_t end) {
  assert(c->a.H % c->a.G == 0 && c->a.causal && c->page % SUM_STEP == 0);
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
