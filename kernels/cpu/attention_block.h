// SPDX-License-Identifier: Apache-2.0
/* Where a head of attention lies, its blocks of queries, which keys they see, and a thread's
 * scratch. Levels that multiply pairs of bf16 (attention_bf16.h) have blocks and tiles of other
 * sizes than those that compute in f32 (attention_f32.h). */
#ifndef TSR_KERNELS_CPU_ATTENTION_BLOCK_H
#define TSR_KERNELS_CPU_ATTENTION_BLOCK_H
#include "kernels/cpu/level.h"
#include "kernels/cpu/philox.h"
#if defined(TSR_LEVEL_BELOW)
#include "kernels/cpu/attention_dot_gemm.h"
#else
#include "kernels/cpu/attention_gemm.h"
#endif

/* A level that multiplies pairs of bf16 computes nothing else. */
#if defined(TSR_LEVEL_BELOW)
#define LEAVE_TO_BELOW(a, kernel, arguments)                                                       \
  if (!(a)->bf16) {                                                                                \
    BELOW(kernel) arguments;                                                                       \
    return;                                                                                        \
  }
#else
#define LEAVE_TO_BELOW(a, kernel, arguments)
#endif

/* Keys whose scores and whose part of a panel of values stay in the first cache; a multiple of
 * TILE_ROWS and of 32. */
enum { PIECE = 96 };

/* A row's sum of exp(score - maximum): key j is added to running sum j % SUMS, and these are folded
 * in halves. */
enum { SUMS = 8 };
#define EACH_SUM(s) _Pragma("GCC unroll 8") for (int s = 0; s < SUMS; s++)

/* One head of one sequence: row t of its queries is at q_start + t * q_stride; out has its own
 * place, for values may have heads of another width. */
typedef struct {
  int64_t b, h, q_start, k_start, q_stride, k_stride;
  int64_t out_start, v_start, out_stride, v_stride;
} head;

static inline head head_at(const tsr_attention *a, int64_t b, int64_t h) {
  int64_t g = h / (a->H / a->G), q_stride = a->H * a->D, k_stride = a->G * a->D;
  int64_t q_start = b * a->T * q_stride + h * a->D, k_start = b * a->T * k_stride + g * a->D;
  int64_t Dv = tsr_attention_value_size(a), out_stride = a->H * Dv, v_stride = a->G * Dv;
  int64_t out_start = b * a->T * out_stride + h * Dv, v_start = b * a->T * v_stride + g * Dv;
  return (head){b,        h,         q_start, k_start,    q_stride,
                k_stride, out_start, v_start, out_stride, v_stride};
}

/* The element of dropout's stream for one head's query and key. */
static inline uint64_t
dropout_element(const tsr_attention *a, head at, int64_t length, int64_t query, int64_t key) {
  uint64_t line = (uint64_t)((at.b + a->batch_offset) * a->heads_global + at.h + a->head_offset);
  if (2 * at.h >= a->H) line += (uint64_t)a->head_gap;
  return (line * (uint64_t)length + (uint64_t)query) * (uint64_t)length + (uint64_t)key;
}

/* A block of queries and the keys [begin, keys) that any of them sees, where begin is where a piece
 * begins; dropout's element for its first row and key 0, and from one row to the next. */
typedef struct {
  int64_t first, rows, begin, keys;
  uint64_t element, element_step;
} block;

static inline block block_at(const tsr_attention *a, head at, int64_t first) {
  int64_t rows = a->T - first < QUERIES ? a->T - first : QUERIES;
  int64_t hidden = a->window ? first + a->behind - a->window + 1 : 0, keys = a->T;
  if (a->causal) keys = first + rows;
  if (hidden > keys) hidden = keys;
  return (block){
      .first = first,
      .rows = rows,
      .begin = hidden > 0 ? hidden / PIECE * PIECE : 0,
      .keys = keys,
      .element = dropout_element(a, at, a->T, first, 0),
      .element_step = (uint64_t)a->T};
}

/* Vectors of queries: what pads the rows to tiles is computed too. */
static inline int64_t block_vectors(block part) {
  return round_to(round_to(part.rows, TILE_ROWS), WIDTH) / WIDTH;
}

/* Keys before `end` that any query of vector v sees. */
static inline int64_t keys_seen(const tsr_attention *a, block part, int64_t v, int64_t end) {
  int64_t last = part.first + (v + 1) * WIDTH;
  if (end > part.keys) end = part.keys;
  return a->causal && last < end ? last : end;
}

/* Completes a row of out with its sum over the keys: `stats`, its maximum and sum of
 * exp(score - maximum), get the sink's term. Returns what the row's weighted values are multiplied
 * by. The sink is the last term, whatever the order of the keys. */
static inline float row_complete(const tsr_attention *a, int64_t h, float stats[2]) {
  if (!a->sinks) return 1.0f / stats[1];
  float sink = a->sinks[h], max = stats[0] > sink ? stats[0] : sink;
  float share = real_exp(stats[0] - max);
  stats[1] = stats[1] * share + real_exp(sink - max);
  stats[0] = max;
  return share / stats[1];
}

/* A thread's scratch; widths are padded to HEAD_UNIT, rows to tiles, and each part has room for any
 * level's. Packed keys and values lie there in runs of T, one in plain attention. */
typedef struct {
  int64_t head_width, value_width; /* D and Dv padded */
  int64_t panel;                   /* floats of a panel (T, PANEL) */
  int64_t run, rows_run;           /* floats of a run of keys */
  int64_t values_run, values_rows_run;
  float *keys, *values;           /* A (T, D), (T, Dv) */
  float *keys_rows, *values_rows; /* B (T, D), (T, Dv) */
  float *queries;                 /* B (D, QUERIES), times the scale */
  float *douts;                   /* B (Dv, QUERIES) */
  float *queries_rows;            /* B (QUERIES, D), times the scale */
  float *douts_rows;              /* B (QUERIES, Dv) */
  float *scores;                  /* (T, QUERIES); backward of a piece */
  float *weights;                 /* of bf16: a piece of scores, or of grads, rounded to pairs */
  float *transposed;              /* of bf16: the sums of out, or dq, (D or Dv, QUERIES) */
  float *grads;                   /* (PIECE, QUERIES) */
  float *factors;                 /* dropout's: (PIECE, QUERIES) */
  float *lines;                   /* (WIDTH, PIECE): dropout's before they are transposed */
  float *max, *parts;             /* (QUERIES), (SUMS, QUERIES) */
  float *share, *delta;           /* (QUERIES): 1 / the sum; dout . out */
  float *sums;                    /* what follows: the sums of the pass */
} attention_parts;

/* Of a matrix that is packed: floats of it in f32, or of pairs in whole squares where its numbers
 * are those of bf16, whichever are more. */
static inline int64_t
packed_room(const tsr_attention *a, int64_t f32, int64_t rows, int64_t columns) {
  int64_t pairs = round_to(rows, BF16_TILE) * round_to(columns, BF16_TILE) / 2;
  return round_to(a->bf16 && pairs > f32 ? pairs : f32, 16);
}

/* n rows of keys, filled up to tiles; queries of a block; to what widths are filled up. */
static inline int64_t room_rows(const tsr_attention *a, int64_t n) {
  int64_t rows = round_to(n, F32_TILE), pairs = round_to(n, BF16_TILE);
  return a->bf16 && pairs > rows ? pairs : rows;
}
static inline int64_t room_queries(const tsr_attention *a) {
  return a->bf16 ? BF16_QUERIES : F32_QUERIES;
}
static inline int64_t room_width(const tsr_attention *a, int64_t n) {
  return round_to(n, a->bf16 ? BF16_TILE : WIDEST);
}

/* Lays the parts out from `at`; returns the number of floats before the sums, with those that it
 * takes to begin at a line of the cache. */
static inline int64_t
attention_layout(const tsr_attention *a, int64_t runs, float *at, attention_parts *p) {
  int64_t D = round_to(a->D, WIDEST_PANEL), T = round_to(a->T, F32_TILE), total = 0;
  int64_t values = tsr_attention_value_size(a), Dv = round_to(values, WIDEST_PANEL);
  int64_t dropped = a->dropout != 0 ? PIECE : 0, queries = room_queries(a);
  int64_t keys = room_rows(a, a->T), widest = room_width(a, a->D > values ? a->D : values);
  if (at) at = (float *)(((uintptr_t)at + 63) / 64 * 64);
  p->head_width = round_to(a->D, HEAD_UNIT);
  p->value_width = round_to(values, HEAD_UNIT);
  p->panel = a->T * PANEL;
  p->run = packed_room(a, T * a->D, a->T, a->D);
  p->rows_run = packed_room(a, a->T * D, a->T, a->D);
  p->values_run = packed_room(a, T * values, a->T, values);
  p->values_rows_run = packed_room(a, a->T * Dv, a->T, values);
#define PART(name, floats) p->name = at ? at + total : NULL, total += round_to(floats, 16)
  PART(keys, runs * p->run);
  PART(values, runs * p->values_run);
  PART(keys_rows, runs * p->rows_run);
  PART(values_rows, runs * p->values_rows_run);
  PART(queries, packed_room(a, round_to(F32_QUERIES, WIDEST_PANEL) * a->D, BF16_QUERIES, a->D));
  PART(douts, packed_room(a, round_to(F32_QUERIES, WIDEST_PANEL) * values, BF16_QUERIES, values));
  PART(queries_rows, packed_room(a, F32_QUERIES * D, BF16_QUERIES, a->D));
  PART(douts_rows, packed_room(a, F32_QUERIES * Dv, BF16_QUERIES, values));
  PART(scores, (keys > PIECE ? keys : PIECE) * queries);
  PART(weights, a->bf16 ? PIECE * queries / 2 : 0);
  PART(transposed, a->bf16 ? widest * queries : 0);
  PART(grads, PIECE * queries);
  PART(factors, dropped * queries);
  PART(lines, dropped * WIDEST);
  PART(max, queries);
  PART(parts, SUMS * queries);
  PART(share, queries);
  PART(delta, queries);
  PART(sums, 0);
#undef PART
  return total + 16;
}

/* What is packed of a run: A of the keys and, backward, of the values; B of the values and, where
 * dq is wanted, of the keys. */
typedef enum { PACK_OUT, PACK_DQ, PACK_DKV, PACK_GRADIENTS } packing;

/* Rows of a head that are needed soon, fetched while products run. */
typedef struct {
  const number *at;
  int64_t stride, rows;
} fetch_rows;

enum { FETCHES = 6 };
typedef struct {
  fetch_rows of[FETCHES];
  int64_t count, done, share; /* rows: in all, fetched, and to fetch for each tile */
} fetch;

static inline void
fetch_add(fetch *f, const number *x, int64_t stride, int64_t first, int64_t rows) {
  if (rows > QUERIES) rows = QUERIES;
  if (rows > 0) f->of[f->count++] = (fetch_rows){x + first * stride, stride, rows};
}

static inline void fetch_some(fetch *f, int64_t D) {
  for (int64_t n = 0; n < f->share && f->done < f->count * QUERIES; n++, f->done++) {
    const fetch_rows *of = &f->of[f->done % f->count];
    int64_t row = f->done / f->count;
    if (row < of->rows) row_ahead(of->at + row * of->stride, D * (int64_t)sizeof *of->at);
  }
}

/* The lanes whose number is at least n. */
static inline vector_mask lanes_from(int64_t n) {
  static const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  vector_mask lane;
  memcpy(&lane, numbers, sizeof lane);
  return lane >= (int32_t)(n < 0 ? 0 : n > WIDTH ? WIDTH : n);
}

/* The queries of vector v that see the key. */
static inline vector_mask seen_by(const tsr_attention *a, block part, int64_t v, int64_t key) {
  int64_t query = part.first + v * WIDTH;
  if (key >= part.keys) return lanes_from(WIDTH);
  vector_mask seen = lanes_from(a->causal ? key - query : 0);
  if (a->window) seen &= ~lanes_from(key + a->window - a->behind - query);
  return seen;
}

/* Whether some query of the vectors from v on does not see some key of the tile. */
static inline bool tile_masked(const tsr_attention *a, block part, int64_t v, int64_t key) {
  int64_t last = part.first + QUERIES - 1 + a->behind;
  return key + TILE_ROWS > part.keys ||
         (a->causal && key + TILE_ROWS - 1 > part.first + v * WIDTH) ||
         (a->window && last - key >= a->window);
}

/* The first vector with a query that sees the key. */
static inline int64_t vector_first(const tsr_attention *a, block part, int64_t key) {
  return a->causal && key > part.first ? (key - part.first) / WIDTH : 0;
}

/* Divides what is to be fetched among the tiles of a block. */
static inline void fetch_share(fetch *f, block part) {
  int64_t tiles = (part.keys - part.begin) / TILE_ROWS * (QUERIES / PANEL + 1) / 2 + 1;
  f->share = f->count * QUERIES / tiles + 1;
}

#endif
