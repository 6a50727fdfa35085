/* What the two directions of attention share: where a head lies, its blocks of queries, its scores.
 *
 * A block of queries (Dao et al. 2022) against all keys that it sees: the scores of whole rows are
 * at hand, so the softmax is the plain one and the backward pass needs only each row's maximum and
 * sum. Context-parallel attention (attention_ring.h) does the same with one unit of the keys at a
 * time; there `a` is a sequence of one unit. */
#ifndef TSR_KERNELS_CPU_ATTENTION_H
#define TSR_KERNELS_CPU_ATTENTION_H
#include "kernels/cpu/level.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/tile.h"

enum { QUERIES = 48 }; /* rows of a block, a multiple of TILE_ROWS */

/* One head of one sequence: row t of its queries is at q_start + t * q_stride. */
typedef struct {
  int64_t b, h, q_start, k_start, q_stride, k_stride;
} head;

static inline head head_at(const tsr_attention *a, int64_t b, int64_t h) {
  int64_t g = h / (a->H / a->G), q_stride = a->H * a->D, k_stride = a->G * a->D;
  int64_t q_start = b * a->T * q_stride + h * a->D, k_start = b * a->T * k_stride + g * a->D;
  return (head){b, h, q_start, k_start, q_stride, k_stride};
}

/* The element of dropout's stream for one head's query and key. */
static inline uint64_t
dropout_element(const tsr_attention *a, head at, int64_t length, int64_t query, int64_t key) {
  uint64_t line = (uint64_t)((at.b + a->batch_offset) * a->heads_global + at.h + a->head_offset);
  return (line * (uint64_t)length + (uint64_t)query) * (uint64_t)length + (uint64_t)key;
}

/* A block of queries and the keys that any of them sees; dropout's element for its first row and
 * key, and from one row to the next. */
typedef struct {
  int64_t first, rows, keys;
  uint64_t element, element_step;
} block;

static inline block block_at(const tsr_attention *a, head at, int64_t first) {
  int64_t rows = a->T - first < QUERIES ? a->T - first : QUERIES;
  uint64_t element = dropout_element(a, at, a->T, first, 0);
  return (block){first, rows, a->causal ? first + rows : a->T, element, (uint64_t)a->T};
}

static inline int64_t keys_seen(const tsr_attention *a, block part, int64_t row) {
  return a->causal ? part.first + row + 1 : part.keys;
}

/* A thread's scratch; widths are padded to vectors, rows to tiles. Keys and values lie there in
 * runs of T, one in plain attention. */
typedef struct {
  int64_t head_width;   /* D padded */
  int64_t scores_width; /* of a row of scores; odd in cache lines, so that columns do not collide */
  int64_t columns_run, rows_run; /* floats of a run */
  float *keys_columns;           /* B (D, T) */
  float *values_columns;
  float *keys_rows; /* B (T, D) */
  float *values_rows;
  float *queries; /* A (QUERIES, D), times the scale */
  float *douts;   /* A (QUERIES, D) */
  float *queries_rows;
  float *douts_rows;
  float *scores, *grads; /* (QUERIES, scores_width) */
  float *stats;          /* (QUERIES, 3): a row's maximum, sum and delta */
  float *factors;        /* dropout's, for one row */
  float *sums;           /* what follows: the sums of the pass */
} attention_parts;

/* Lays the parts out from `at`; gives the number of floats before the sums. */
static inline int64_t
attention_layout(const tsr_attention *a, int64_t runs, float *at, attention_parts *p) {
  int64_t D = round_to(a->D, WIDTH), T = round_to(a->T, PANEL > 16 ? PANEL : 16), total = 0;
  p->head_width = D;
  p->scores_width = round_to(T, 32) + 16;
  p->columns_run = round_to(a->D * round_to(a->T, WIDTH), 16);
  p->rows_run = round_to(a->T * D, 16);
#define PART(name, floats) p->name = at ? at + total : NULL, total += round_to(floats, 16)
  PART(keys_columns, runs * p->columns_run);
  PART(values_columns, runs * p->columns_run);
  PART(keys_rows, runs * p->rows_run);
  PART(values_rows, runs * p->rows_run);
  PART(queries, QUERIES * D);
  PART(douts, QUERIES * D);
  PART(queries_rows, QUERIES * D);
  PART(douts_rows, QUERIES * D);
  PART(scores, QUERIES * p->scores_width);
  PART(grads, QUERIES * p->scores_width);
  PART(stats, QUERIES * 3);
  PART(factors, T);
  PART(sums, 0);
#undef PART
  return total;
}

static inline void row_multiply(float *x, const float *factors, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] *= factors[i];
}

static inline void row_scale(float *to, const float *x, float factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = x[i] * factor;
}

static inline void row_zero(float *x, int64_t begin, int64_t end) {
  memset(x + begin, 0, (size_t)(end - begin) * sizeof *x);
}

/* A block's rows as the A of a product: (QUERIES, D) times a factor, zeros below. */
static inline void
pack_block(float *to, const float *x, int64_t stride, float factor, int64_t rows, int64_t D) {
  for (int64_t r = 0; r < rows; r++) row_scale(to + r * D, x + r * stride, factor, D);
  row_zero(to, rows * D, QUERIES * D);
}

/* to (rows, keys) = packed (rows, D) times columns (D, keys): the scores, or the gradient of P. */
static inline void block_scores(
    const tsr_attention *a, const attention_parts *p, block part, float *to, const float *packed,
    const float *columns) {
  int64_t keys = round_to(a->T, WIDTH);
  if (a->causal && round_to(part.keys, PANEL) < keys) keys = round_to(part.keys, PANEL);
  product scores = {
      .M = round_to(part.rows, TILE_ROWS),
      .N = keys,
      .K = a->D,
      .a = packed,
      .a_rs = a->D,
      .a_cs = 1,
      .b = columns,
      .c = to,
      .c_rs = p->scores_width,
      .band = a->causal ? BAND_COLUMNS : BAND_ALL,
      .first = part.first};
  product_run(&scores);
}

/* to (rows, D) = weights (rows, keys) times values (keys, D): out, or dq. */
static inline void block_weigh(
    const tsr_attention *a, const attention_parts *p, block part, float *to, int64_t to_stride,
    const float *weights, const float *values) {
  product sum = {
      .M = round_to(part.rows, TILE_ROWS),
      .N = p->head_width,
      .K = a->T,
      .a = weights,
      .a_rs = p->scores_width,
      .a_cs = 1,
      .b = values,
      .c = to,
      .c_rs = to_stride,
      .band = a->causal ? BAND_DEPTH : BAND_ALL,
      .first = part.first};
  product_run(&sum);
}

/* As philox_block, but of no more counters than the n elements from `skip` on need: rows are short
 * where a sequence has many units. */
static inline void
dropout_words(uint32_t *words, uint64_t counter, uint64_t key, int64_t skip, int64_t n) {
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  uint32_t low = (uint32_t)counter, high = (uint32_t)(counter >> 32);
  int counters = (int)round_to((skip + n + 3) / 4, 16); /* whole vectors */
#pragma omp simd
  for (int i = 0; i < counters; i++) {
    uint32_t at = low + (uint32_t)i;
    philox_words c = {{at, high + (at < low), 0, 0}};
    c = philox_rounds(c, key0, key1);
    for (int w = 0; w < 4; w++) words[4 * i + w] = c.word[w];
  }
}

/* factors[j] = 0 or 1/(1-p) for a row's first n keys. */
static inline void
dropout_row(float *factors, const tsr_attention *a, block part, int64_t row, int64_t n) {
  uint64_t element = part.element + (uint64_t)row * part.element_step;
  float kept = 1.0f / (1.0f - a->dropout), p = a->dropout;
  uint32_t words[PHILOX_ELEMENTS];
  for (int64_t done = 0; done < n;) {
    int64_t skip = (int64_t)(element % 4);
    int64_t take = n - done < PHILOX_ELEMENTS - skip ? n - done : PHILOX_ELEMENTS - skip;
    dropout_words(words, element / 4, a->key, skip, take);
#pragma omp simd
    for (int64_t i = 0; i < take; i++)
      factors[done + i] = philox_uniform(words[skip + i]) < p ? 0.0f : kept;
    done += take;
    element += (uint64_t)take;
  }
}

/* Scores to exp(score - maximum), times the dropout factors; each row's maximum and sum to stats.
 */
static inline void block_softmax(
    const tsr_attention *a, const attention_parts *p, block part, float *stats,
    int64_t stats_stride) {
  for (int64_t r = 0; r < part.rows; r++, stats += stats_stride) {
    float *row = p->scores + r * p->scores_width;
    int64_t seen = keys_seen(a, part, r);
    stats[0] = row_max(row, seen);
    stats[1] = row_exp_sum(row, row, stats[0], seen);
    row_zero(row, seen, part.keys);
    if (a->dropout == 0) continue;
    dropout_row(p->factors, a, part, r, seen);
    row_multiply(row, p->factors, seen);
  }
}

#endif
