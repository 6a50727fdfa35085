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
#if defined(TSR_LEVEL_BELOW)
#include "kernels/cpu/attention_bf16.h"
#else
#include "kernels/cpu/attention_f32.h"
#endif

/* What GEMMs leave a score to be multiplied by. */
static inline float scale_left(const tsr_attention *a) { return SCORES_ARE_SCALED ? 1 : a->scale; }

/* Scores of a tile and a vector of queries to soft_cap * tanh(score / soft_cap). */
static inline void tile_cap(float scale, float soft_cap, float *scores) {
  for (int i = 0; i < TILE_ROWS; i++, scores += QUERIES) {
    vector_store(scores, lanes_load(scores, 0) * scale);
    row_cap(scores, soft_cap, WIDTH);
  }
}

/* Scores times `scale`, -INFINITY where a query of vector v does not see a key of the tile, and the
 * maxima. */
static inline void tile_max(
    const tsr_attention *a, const attention_parts *p, block part, int64_t key, int64_t v,
    float scale) {
  float *x = p->scores + key * QUERIES + v * WIDTH;
  vector max = lanes_load(p->max, (int)v);
  for (int i = 0; i < TILE_ROWS; i++, x += QUERIES) {
    vector_mask seen = seen_by(a, part, v, key + i);
    vector_mask score = (vector_mask)(lanes_load(x, 0) * scale) & seen;
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
    bool capped = a->soft_cap != 0;
    bool after = !SCORES_ARE_SCALED || capped ||
                 tile_masked(a, part, from, key); /* the products' maxima are not the scores' */
    tile_scores(
        a, a->D, part, keys, key, p->queries, p->scores + key * QUERIES, after ? NULL : p->max,
        ahead);
    for (int64_t v = from; after && v < vectors; v++) {
      float *scores = p->scores + key * QUERIES + v * WIDTH;
      if (capped) tile_cap(scale_left(a), a->soft_cap, scores);
      tile_max(a, p, part, key, v, capped ? 1 : scale_left(a));
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

/* to (queries, Dv) = the weighted values, not divided by the sums yet; p->max, and the sums in
 * p->parts. A query that sees none of the keys has zeros and the maximum -INFINITY. */
static inline void block_forward(
    const tsr_attention *a, const attention_parts *p, block part, const float *keys,
    const float *values, float *to, int64_t to_stride, fetch *ahead) {
  block_scores(a, p, part, keys, ahead);
  row_zero(p->parts, 0, SUMS * QUERIES);
  weigh_begin(p, part, to, to_stride, p->value_width);
  for (int64_t begin = part.begin; begin < part.keys; begin += PIECE) {
    int64_t end = part.keys - begin < PIECE ? part.keys : begin + PIECE;
    block_softmax(a, p, part, begin, end);
    block_weigh(
        a, p, part, begin, end, to, to_stride, p->value_width, p->scores + begin * QUERIES, values);
  }
  weigh_end(p, part, to, to_stride, p->value_width);
  for (int half = SUMS / 2; half; half /= 2)
    for (int i = 0; i < half * QUERIES; i++) p->parts[i] += p->parts[half * QUERIES + i];
}

#endif
