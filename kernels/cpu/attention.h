/* What the two directions of attention share: where a head lies, its blocks of queries, its scores.
 *
 * A block of queries (Dao et al. 2022) against all keys that it sees: the scores of whole rows are
 * at hand, so the softmax is the plain one and the backward pass needs only each row's maximum and
 * sum. */
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

/* A block of queries and the keys that any of them sees. */
typedef struct {
  int64_t first, rows, keys;
} block;

static inline block block_at(const tsr_attention *a, int64_t first) {
  int64_t rows = a->T - first < QUERIES ? a->T - first : QUERIES;
  return (block){first, rows, a->causal ? first + rows : a->T};
}

static inline int64_t keys_seen(const tsr_attention *a, block part, int64_t row) {
  return a->causal ? part.first + row + 1 : part.keys;
}

/* A thread's scratch; widths are padded to vectors, rows to tiles. */
typedef struct {
  int64_t head_width;   /* D padded */
  int64_t scores_width; /* of a row of scores; odd in cache lines, so that columns do not collide */
  float *keys_columns;  /* B (D, T) */
  float *values_columns;
  float *keys_rows; /* B (T, D) */
  float *values_rows;
  float *queries; /* A (QUERIES, D), times the scale */
  float *douts;   /* A (QUERIES, D) */
  float *queries_rows;
  float *douts_rows;
  float *scores, *grads; /* (QUERIES, scores_width) */
  float *rows;           /* (QUERIES, head_width): out, or dq */
  float *dk, *dv;        /* (T, head_width) */
  float *factors;        /* dropout's, for one row */
} attention_parts;

/* Lays the parts out from `at`; gives the number of floats. */
static inline int64_t attention_layout(const tsr_attention *a, float *at, attention_parts *p) {
  int64_t D = round_to(a->D, WIDTH), T = round_to(a->T, PANEL > 16 ? PANEL : 16), total = 0;
  int64_t rows = round_to(a->T, TILE_ROWS);
  p->head_width = D;
  p->scores_width = round_to(T, 32) + 16;
#define PART(name, floats) p->name = at ? at + total : NULL, total += round_to(floats, 16)
  PART(keys_columns, a->D * T);
  PART(values_columns, a->D * T);
  PART(keys_rows, T * D);
  PART(values_rows, T * D);
  PART(queries, QUERIES * D);
  PART(douts, QUERIES * D);
  PART(queries_rows, QUERIES * D);
  PART(douts_rows, QUERIES * D);
  PART(scores, QUERIES * p->scores_width);
  PART(grads, QUERIES * p->scores_width);
  PART(rows, QUERIES * D);
  PART(dk, rows * D);
  PART(dv, rows * D);
  PART(factors, T);
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

/* p->rows (rows, D) = weights (rows, keys) times values (keys, D): out, or dq. */
static inline void block_weigh(
    const tsr_attention *a, const attention_parts *p, block part, const float *weights,
    const float *values) {
  product sum = {
      .M = round_to(part.rows, TILE_ROWS),
      .N = p->head_width,
      .K = a->T,
      .a = weights,
      .a_rs = p->scores_width,
      .a_cs = 1,
      .b = values,
      .c = p->rows,
      .c_rs = p->head_width,
      .band = a->causal ? BAND_DEPTH : BAND_ALL,
      .first = part.first};
  product_run(&sum);
}

/* factors[j] = 0 or 1/(1-p) for the query's first n keys. */
static inline void
dropout_row(float *factors, const tsr_attention *a, head at, int64_t query, int64_t n) {
  uint64_t line = (uint64_t)((at.b + a->batch_offset) * a->heads_global + at.h + a->head_offset);
  uint64_t element = (line * (uint64_t)a->T + (uint64_t)query) * (uint64_t)a->T;
  float kept = 1.0f / (1.0f - a->dropout), p = a->dropout;
  uint32_t words[PHILOX_ELEMENTS];
  for (int64_t done = 0; done < n;) {
    int64_t skip = (int64_t)(element % 4);
    int64_t take = n - done < PHILOX_ELEMENTS - skip ? n - done : PHILOX_ELEMENTS - skip;
    philox_block(words, element / 4, a->key);
#pragma omp simd
    for (int64_t i = 0; i < take; i++)
      factors[done + i] = philox_uniform(words[skip + i]) < p ? 0.0f : kept;
    done += take;
    element += (uint64_t)take;
  }
}

#endif
