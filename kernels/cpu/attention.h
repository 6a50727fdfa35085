// SPDX-License-Identifier: Apache-2.0
/* What the two directions of attention share: where a head lies, its blocks of queries, and the
 * forward pass of one of them.
 *
 * A block of queries (Dao et al. 2022) against all keys that it sees: the scores of whole rows are
 * at hand, so the softmax is the plain one and the backward pass needs only each row's maximum and
 * sum. Scores lie transposed, a key's scores of all queries side by side: what a softmax does along
 * the keys it does for a vector of queries at once, and only queries and dout are transposed for
 * GEMMs. Context-parallel attention (attention_ring.h) does the same with one unit of the keys at a
 * time; there `a` is a sequence of one unit. */
#ifndef TSR_KERNELS_CPU_ATTENTION_H
#define TSR_KERNELS_CPU_ATTENTION_H
#include "kernels/cpu/level.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/attention_gemm.h"

/* Keys whose scores and whose part of a panel of values stay in the first cache; a multiple of
 * TILE_ROWS and of 16. */
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

/* A thread's scratch; widths are padded to vectors, rows to tiles, and each part has room for any
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
  float *grads;                   /* (PIECE, QUERIES) */
  float *factors;                 /* dropout's: (PIECE, QUERIES) */
  float *lines;                   /* (WIDTH, PIECE): dropout's before they are transposed */
  float *max, *parts;             /* (QUERIES), (SUMS, QUERIES) */
  float *share, *delta;           /* (QUERIES): 1 / the sum; dout . out */
  float *sums;                    /* what follows: the sums of the pass */
} attention_parts;

/* Lays the parts out from `at`; returns the number of floats before the sums, with those that it
 * takes to begin at a line of the cache. */
static inline int64_t
attention_layout(const tsr_attention *a, int64_t runs, float *at, attention_parts *p) {
  int64_t D = round_to(a->D, WIDEST_PANEL), T = round_to(a->T, TILE_ROWS), total = 0;
  int64_t values = tsr_attention_value_size(a), Dv = round_to(values, WIDEST_PANEL);
  int64_t dropped = a->dropout != 0 ? PIECE : 0;
  if (at) at = (float *)(((uintptr_t)at + 63) / 64 * 64);
  p->head_width = round_to(a->D, WIDTH);
  p->value_width = round_to(values, WIDTH);
  p->panel = a->T * PANEL;
  p->run = round_to(T * a->D, 16);
  p->rows_run = round_to(a->T * D, 16);
  p->values_run = round_to(T * values, 16);
  p->values_rows_run = round_to(a->T * Dv, 16);
#define PART(name, floats) p->name = at ? at + total : NULL, total += round_to(floats, 16)
  PART(keys, runs * p->run);
  PART(values, runs * p->values_run);
  PART(keys_rows, runs * p->rows_run);
  PART(values_rows, runs * p->values_rows_run);
  PART(queries, round_to(QUERIES, WIDEST_PANEL) * a->D);
  PART(douts, round_to(QUERIES, WIDEST_PANEL) * values);
  PART(queries_rows, QUERIES * D);
  PART(douts_rows, QUERIES * Dv);
  PART(scores, (T > PIECE ? T : PIECE) * QUERIES);
  PART(grads, PIECE * QUERIES);
  PART(factors, dropped * QUERIES);
  PART(lines, dropped * WIDEST);
  PART(max, QUERIES);
  PART(parts, SUMS * QUERIES);
  PART(share, QUERIES);
  PART(delta, QUERIES);
  PART(sums, 0);
#undef PART
  return total + 16;
}

/* What is packed of a run: A of the keys and, backward, of the values; B of the values and, where
 * dq is wanted, of the keys. */
typedef enum { PACK_OUT, PACK_DQ, PACK_DKV, PACK_GRADIENTS } packing;

/* Packs the keys and values [begin, end) of a run, of which k and v are the first. `at`: their
 * strides. */
static inline void pack_keys(
    const tsr_attention *a, const attention_parts *p, packing kind, int64_t run, const float *k,
    const float *v, const head *at, int64_t begin, int64_t end) {
  int64_t n = end - begin, D = a->D, Dv = tsr_attention_value_size(a);
  int64_t padded = round_to(end, TILE_ROWS), first = begin * PANEL;
  float *keys = p->keys + run * p->run, *values = p->values + run * p->values_run;
  k += begin * at->k_stride;
  v += begin * at->v_stride;
  pack_lines(keys + begin * D, k, at->k_stride, n, D);
  row_zero(keys, end * D, padded * D);
  if (kind == PACK_OUT) {
    float *rows = p->values_rows + run * p->values_rows_run + first;
    pack_rows(rows, p->panel, v, at->v_stride, 1, n, Dv);
    return;
  }
  pack_lines(values + begin * Dv, v, at->v_stride, n, Dv);
  row_zero(values, end * Dv, padded * Dv);
  if (kind != PACK_DKV)
    pack_rows(p->keys_rows + run * p->rows_run + first, p->panel, k, at->k_stride, 1, n, D);
}

/* Rows of a head that are needed soon, fetched while products run. */
typedef struct {
  const float *at;
  int64_t stride, rows;
} fetch_rows;

enum { FETCHES = 6 };
typedef struct {
  fetch_rows of[FETCHES];
  int64_t count, done, share; /* rows: in all, fetched, and to fetch for each tile */
} fetch;

static inline void
fetch_add(fetch *f, const float *x, int64_t stride, int64_t first, int64_t rows) {
  if (rows > QUERIES) rows = QUERIES;
  if (rows > 0) f->of[f->count++] = (fetch_rows){x + first * stride, stride, rows};
}

static inline void fetch_some(fetch *f, int64_t D) {
  for (int64_t n = 0; n < f->share && f->done < f->count * QUERIES; n++, f->done++) {
    const fetch_rows *of = &f->of[f->done % f->count];
    int64_t row = f->done / f->count;
    if (row < of->rows) row_ahead(of->at + row * of->stride, D);
  }
}

/* The lanes whose number is at least n. */
static inline vector_mask lanes_from(int64_t n) {
  static const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  vector_mask number;
  memcpy(&number, numbers, sizeof number);
  return number >= (int32_t)(n < 0 ? 0 : n > WIDTH ? WIDTH : n);
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

/* to (TILE_ROWS, QUERIES) = packed keys, or values, of a tile times packed columns (D, queries),
 * for the vectors from `from` on; max may be NULL. D: of the keys, or Dv. */
static inline void tile_scores(
    int64_t D, block part, const float *x, int64_t from, const float *columns, float *to,
    float *max, fetch *ahead) {
  int64_t vectors = block_vectors(part);
  for (int64_t v = from; v < vectors;) {
    int64_t in_panel = v % TILE_VECTORS, wide = TILE_VECTORS - in_panel;
    if (wide > vectors - v) wide = vectors - v;
    const float *panel = columns + v / TILE_VECTORS * D * PANEL;
    fetch_some(ahead, D);
    tile_dot(
        (int)wide, x, panel + in_panel * WIDTH, to + v * WIDTH, D, max ? max + v * WIDTH : NULL);
    v += wide;
  }
}

/* Divides what is to be fetched among the tiles of a block. */
static inline void fetch_share(fetch *f, block part) {
  int64_t tiles = (part.keys - part.begin) / TILE_ROWS * (QUERIES / PANEL + 1) / 2 + 1;
  f->share = f->count * QUERIES / tiles + 1;
}

/* Scores of a tile and a vector of queries to soft_cap * tanh(score / soft_cap). */
static inline void tile_cap(float soft_cap, float *scores) {
  for (int i = 0; i < TILE_ROWS; i++, scores += QUERIES) row_cap(scores, soft_cap, WIDTH);
}

/* -INFINITY where a query of vector v does not see a key of the tile, and the maxima. */
static inline void
tile_max(const tsr_attention *a, const attention_parts *p, block part, int64_t key, int64_t v) {
  float *x = p->scores + key * QUERIES + v * WIDTH;
  vector max = lanes_load(p->max, (int)v);
  for (int i = 0; i < TILE_ROWS; i++, x += QUERIES) {
    vector_mask seen = seen_by(a, part, v, key + i);
    vector_mask score = (vector_mask)lanes_load(x, 0) & seen;
    score |= (vector_mask)vector_all(-INFINITY) & ~seen;
    vector_store(x, (vector)score);
    max = vector_max((vector)score, max);
  }
  vector_store(p->max + v * WIDTH, max);
}

/* p->scores (keys, queries) from part.begin on, -INFINITY where a key is not seen but for vectors
 * that do not see any of a tile, and p->max. */
static inline void block_scores(
    const tsr_attention *a, const attention_parts *p, block part, const float *keys, fetch *ahead) {
  int64_t vectors = block_vectors(part);
  fetch_share(ahead, part);
  for (int64_t i = 0; i < QUERIES; i++) p->max[i] = -INFINITY;
  for (int64_t key = part.begin; key < part.keys; key += TILE_ROWS) {
    int64_t from = vector_first(a, part, key);
    bool after = a->soft_cap != 0 ||
                 tile_masked(a, part, from, key); /* the products' maxima are not the scores' */
    tile_scores(
        a->D, part, keys + key * a->D, from, p->queries, p->scores + key * QUERIES,
        after ? NULL : p->max, ahead);
    for (int64_t v = from; after && v < vectors; v++) {
      if (a->soft_cap != 0) tile_cap(a->soft_cap, p->scores + key * QUERIES + v * WIDTH);
      tile_max(a, p, part, key, v);
    }
  }
}

/* factors[j] = 0 or 1/(1-p) for a row's n keys of a piece, from the one of that number on. */
static inline void dropout_row(
    float *factors, const tsr_attention *a, block part, int64_t row, int64_t key, int64_t n) {
  uint64_t element = part.element + (uint64_t)row * part.element_step + (uint64_t)key;
  float kept = 1.0f / (1.0f - a->dropout), p = a->dropout;
  uint32_t words[PHILOX_ELEMENTS];
  int64_t skip = (int64_t)(element % 4);
  philox_run(words, (int)round_to((skip + n + 3) / 4, 16), element / 4, a->key);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) factors[i] = philox_uniform(words[skip + i]) < p ? 0.0f : kept;
}

/* p->factors of the keys [begin, end), of each vector as far as it sees keys. */
static inline void block_dropout(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end) {
  for (int64_t v = 0; v < block_vectors(part); v++) {
    int64_t n = keys_seen(a, part, v, end) - begin;
    for (int64_t r = 0; n > 0 && r < WIDTH; r++)
      dropout_row(p->lines + r * PIECE, a, part, v * WIDTH + r, begin, n);
    for (int64_t j = 0; j < n; j += WIDTH) {
      vector square[WIDTH];
      for (int r = 0; r < WIDTH; r++) square[r] = lanes_load(p->lines + r * PIECE + j, 0);
      transpose_square(square);
      for (int r = 0; r < WIDTH; r++)
        vector_store(p->factors + (j + r) * QUERIES + v * WIDTH, square[r]);
    }
  }
}

/* Scores of vector v and the keys [begin, end) to exp(score - maximum), the rest of the piece to
 * zeros; added to p->parts. */
static inline void
vector_softmax(const attention_parts *p, int64_t v, int64_t begin, int64_t end, int64_t piece_end) {
  float *x = p->scores + begin * QUERIES + v * WIDTH, *parts = p->parts + v * WIDTH;
  vector max = lanes_load(p->max, (int)v), sums[SUMS];
  vector_mask none = max == vector_all(-INFINITY); /* a window shows the query nothing here */
  int64_t j = begin;
  max = (vector)((vector_mask)max & ~none);
  EACH_SUM(s) sums[s] = lanes_load(parts + s * QUERIES, 0);
  for (; j + SUMS <= end; j += SUMS, x += SUMS * QUERIES) EACH_SUM(s) {
      vector y = vector_exp(lanes_load(x + s * QUERIES, 0) - max);
      vector_store(x + s * QUERIES, y);
      sums[s] += y;
    }
  EACH_SUM(s) vector_store(parts + s * QUERIES, sums[s]);
  for (; j < end; j++, x += QUERIES, parts += QUERIES) {
    vector y = vector_exp(lanes_load(x, 0) - max);
    vector_store(x, y);
    vector_store(parts, lanes_load(parts, 0) + y);
  }
  for (; j < piece_end; j++, x += QUERIES) vector_store(x, (vector){0});
}

/* The same for all vectors; then times the dropout factors. */
static inline void block_softmax(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end) {
  int64_t vectors = block_vectors(part);
  for (int64_t v = 0; v < vectors; v++) {
    int64_t seen = keys_seen(a, part, v, end);
    vector_softmax(p, v, begin, seen > begin ? seen : begin, end);
  }
  if (a->dropout == 0) return;
  block_dropout(a, p, part, begin, end);
  for (int64_t v = 0; v < vectors; v++)
    for (int64_t j = begin; j < keys_seen(a, part, v, end); j++) {
      float *x = p->scores + j * QUERIES + v * WIDTH;
      vector_store(x, lanes_load(x, 0) * lanes_load(p->factors + (j - begin) * QUERIES, (int)v));
    }
}

/* to (queries, width) += weights (keys, queries) turned, times packed rows (keys, width) of the
 * keys [begin, end): out, or dq. */
static inline void block_weigh(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end,
    float *to, int64_t to_stride, int64_t width, const float *weights, const float *rows) {
  gemm sum = {
      .M = round_to(part.rows, TILE_ROWS),
      .N = width,
      .K = end - begin,
      .a = weights,
      .b = rows + begin * PANEL,
      .panel = p->panel,
      .c = to,
      .c_rs = to_stride,
      .causal = a->causal,
      .shift = part.first - begin};
  gemm_weigh(&sum);
}

static inline void block_zero(block part, float *to, int64_t to_stride, int64_t width) {
  for (int64_t r = 0; r < round_to(part.rows, TILE_ROWS); r++)
    row_zero(to + r * to_stride, 0, width);
}

/* to (queries, Dv) = the weighted values, not divided by the sums yet; p->max, and the sums in
 * p->parts. A query that sees none of the keys has zeros and the maximum -INFINITY. */
static inline void block_forward(
    const tsr_attention *a, const attention_parts *p, block part, const float *keys,
    const float *values, float *to, int64_t to_stride, fetch *ahead) {
  block_scores(a, p, part, keys, ahead);
  row_zero(p->parts, 0, SUMS * QUERIES);
  block_zero(part, to, to_stride, p->value_width);
  for (int64_t begin = part.begin; begin < part.keys; begin += PIECE) {
    int64_t end = part.keys - begin < PIECE ? part.keys : begin + PIECE;
    block_softmax(a, p, part, begin, end);
    block_weigh(
        a, p, part, begin, end, to, to_stride, p->value_width, p->scores + begin * QUERIES, values);
  }
  for (int half = SUMS / 2; half; half /= 2)
    for (int i = 0; i < half * QUERIES; i++) p->parts[i] += p->parts[half * QUERIES + i];
}

#endif
