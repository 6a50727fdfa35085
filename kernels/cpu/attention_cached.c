// SPDX-License-Identifier: Apache-2.0
/* Attention of new tokens to a cache. Every number is the chain that attention.c makes: a score
 * over the head's dimensions, a softmax of a whole row, the output over the keys from the first on.
 * So it does not matter how many tokens are new.
 *
 * Many of them go as blocks of queries against packed keys, as there, gathered from their pages. Of
 * few, packing would cost more than the products: keys are turned in registers as they are read, a
 * page at a time, and nothing is read twice for the heads of a group. */
#if defined(TSR_LEVEL_BELOW)
#include "kernels/cpu/attention_few_bf16.h"
#else
#include "kernels/cpu/attention_few_f32.h"
#endif
#include <assert.h>
#include <stddef.h>

_Static_assert(
    (int)PIECE <= (int)TSR_ATTENTION_CACHED_BEFORE, "keys are read from where a piece begins");

enum { FEW = 4 };

/* As many running sums as attention.h has. */
typedef float float_sums __attribute__((vector_size(4 * SUMS), aligned(4), may_alias));
enum { SUM_STEP = 16 }; /* a multiple of SUMS and of WIDTH */
_Static_assert((int)FEW_STEP % (int)SUM_STEP == 0, "a sum begins where weights do");

static group group_at(
    const tsr_attention_cached *c, number *out, const number *q, const number *keys,
    const number *values, int64_t item) {
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

static int64_t few_layout(const tsr_attention_cached *c, float *at, few *f) {
  int64_t heads = c->a.H / c->a.G, D = c->a.bf16 ? room_width(&c->a, c->a.D) : c->a.D,
          queries = round_to(heads * D, 16),
          sums = c->a.bf16 ? round_to(tsr_attention_value_size(&c->a), 16) : 0;
  f->scores_width = round_to(tsr_attention_cached_length(c), LANES) + 16;
  f->queries = at;
  f->sums = at ? at + queries : NULL;
  f->scores = at ? f->sums + sums : NULL;
  return queries + sums + heads * f->scores_width;
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
  int64_t window = s->c->a.window, seen = s->first + row + 1;
  int64_t first = window && seen > window ? seen - window : 0, begin = first / FEW_STEP * FEW_STEP;
  few_queries(s, f, row);
  few_all_scores(s, f, begin, seen);
  for (int64_t h = 0; h < s->heads; h++) {
    float *scores = f->scores + h * f->scores_width, stats[2];
    if (s->c->a.soft_cap != 0) row_cap(scores + begin, s->c->a.soft_cap, seen - begin);
    few_softmax(scores, begin, first, seen, stats);
    float factor = row_complete(&s->c->a, s->g * s->heads + h, stats);
    few_weights(scores, begin, seen);
    few_out(s, f, scores, begin, seen, factor, s->out + row * s->out_stride + h * s->Dv);
  }
}

/* ---- many tokens ---- */

/* What follows the parts of attention: the keys and the values of a head, in their order. */
static int64_t
many_layout(const tsr_attention_cached *c, void *at, attention_parts *p, number **keys) {
  tsr_attention whole = c->a;
  whole.T = tsr_attention_cached_length(c);
  whole.dropout = 0;
  int64_t Dv = tsr_attention_value_size(&whole),
          before =
              attention_layout(&whole, 1, at, p) + room_queries(&whole) * room_width(&whole, Dv);
  *keys = at ? (number *)(void *)((float *)at + before) : NULL;
  return before + whole.T * (whole.D + Dv);
}

/* Rows [begin, end) of a pool, in the order of their positions. */
static void gather(
    const group *s, number *to, const number *pool, int64_t stride, int64_t wide, int64_t begin,
    int64_t end) {
  for (int64_t j = begin; j < end; j++)
    memcpy(to + j * wide, pool + row_at(s, j) * stride, (size_t)wide * sizeof *to);
}

static void many_tokens(const group *s, void *scratch) {
  tsr_attention whole = s->c->a;
  attention_parts p;
  number *keys, *values;
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
      pack_queries(&whole, &p, s->q + start, s->q_stride, part.rows);
      block_forward(&whole, &p, part, p.keys, p.values_rows, p.sums, p.value_width, &none);
      number *out = s->out + row * s->out_stride + h * s->Dv;
      for (int64_t r = 0; r < part.rows; r++) {
        float stats[] = {p.max[r], p.parts[r]};
        float factor = row_complete(&whole, s->g * s->heads + h, stats);
        numbers_store(out + r * s->out_stride, p.sums + r * p.value_width, factor, s->Dv);
      }
    }
}

int64_t LEVEL(attention_cached_scratch)(const tsr_attention_cached *c) {
  attention_parts p;
  number *keys;
  few f;
  int64_t floats = few_layout(c, NULL, &f), many = many_layout(c, NULL, &p, &keys);
  if (c->a.T > FEW && many > floats) floats = many;
  return floats * (int64_t)sizeof(float);
}

void LEVEL(attention_cached)(
    const tsr_attention_cached *c, void *out, const void *q, const void *keys, const void *values,
    void *scratch, int64_t begin, int64_t end) {
  assert(c->a.H % c->a.G == 0 && c->a.causal && c->page % SUM_STEP == 0);
  few f;
  LEAVE_TO_BELOW(&c->a, attention_cached, (c, out, q, keys, values, scratch, begin, end));
  few_layout(c, scratch, &f);
  gemms_begin();
  for (int64_t item = begin; item < end; item++) {
    group s = group_at(c, out, q, keys, values, item);
    if (s.rows > FEW) many_tokens(&s, scratch);
    for (int64_t row = 0; s.rows <= FEW && row < s.rows; row++) few_token(&s, &f, row);
    for (int64_t row = s.rows; row < c->a.T; row++)
      memset(s.out + row * s.out_stride, 0, (size_t)(s.heads * s.Dv) * sizeof *s.out);
  }
  gemms_end();
}
