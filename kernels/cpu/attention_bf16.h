// SPDX-License-Identifier: Apache-2.0
/* The GEMMs of a block of queries whose operands are stored in bf16: multiplied in pairs
 * (attention_dot_gemm.h). Probabilities and the scores' gradients are rounded to bf16, as in
 * FlashAttention (Dao et al. 2022), before they are multiplied; sums, softmax and statistics are in
 * f32. Queries are not scaled, for that would round them: scores are, and their gradients.
 *
 * Packed, in squares (dot_gemm.h):
 *   keys, values            A (T, D): two panels of 16 keys one behind the other
 *   keys_rows, values_rows  A (D, T): squares of 32 keys, of each all panels of 16 features
 *   queries, douts          B (D, QUERIES): panels of 16 queries
 *   queries_rows, …         B (QUERIES, D): squares of 32 queries, of each all panels of features
 * Out and dq are summed as (D, QUERIES), for so no weights need be transposed. */
#ifndef TSR_KERNELS_CPU_ATTENTION_BF16_H
#define TSR_KERNELS_CPU_ATTENTION_BF16_H
#include "kernels/cpu/attention_block.h"

/* Words of a panel of 16 lanes of so much of K; words of a square of 32 of K of all panels. */
static inline int64_t panel_words(int64_t depth) { return dot_squares(depth) * DOT_SQUARE; }
static inline int64_t square_words(int64_t count) { return round_to(count, DOT_TILE) * DOT_PAIRS; }

static inline tsr_matrix matrix_at(const number *x) {
  return (tsr_matrix){.data = x, .type = TSR_ELEMENT_BF16, .bf16 = true};
}

/* Rows [begin, end) of x (rows, D) as lanes, pairs of features; begin is a multiple of 32. */
static inline void pack_lanes(
    float *to, const number *x, int64_t stride, bool is_a, int64_t begin, int64_t end, int64_t D) {
  tsr_matrix m = matrix_at(x);
  dot_operand o = {&m, stride, 1, end, is_a};
  uint32_t *words = (uint32_t *)(void *)to;
  for (int64_t row = begin; row < end; row += DOT_TILE)
    LEVEL(dot_pack_whole)(&o, row, end, 0, D, words + row / DOT_LANES * panel_words(D));
}

/* The same rows as pairs, features as lanes. */
static inline void pack_pairs(
    float *to, const number *x, int64_t stride, bool is_a, int64_t begin, int64_t end, int64_t D) {
  tsr_matrix m = matrix_at(x);
  dot_operand o = {&m, 1, stride, D, is_a};
  uint32_t *words = (uint32_t *)(void *)to + begin / DOT_TILE * square_words(D);
  for (int64_t row = begin; row < end; row += DOT_TILE, words += square_words(D)) {
    int64_t depth = dot_least(end - row, DOT_TILE);
    for (int64_t d = 0; d < D; d += DOT_TILE)
      LEVEL(dot_pack_whole)(&o, d, D, row, depth, words + d / DOT_LANES * DOT_SQUARE);
  }
}

/* Packs the keys and values [begin, end) of a run, of which k and v are the first. `at`: their
 * strides. */
static inline void pack_keys(
    const tsr_attention *a, const attention_parts *p, packing kind, int64_t run, const number *k,
    const number *v, const head *at, int64_t begin, int64_t end) {
  int64_t D = a->D, Dv = tsr_attention_value_size(a);
  begin = begin / DOT_TILE * DOT_TILE; /* of a tile that was not complete, all of it again */
  pack_lanes(p->keys + run * p->run, k, at->k_stride, true, begin, end, D);
  if (kind == PACK_OUT) {
    float *rows = p->values_rows + run * p->values_rows_run;
    pack_pairs(rows, v, at->v_stride, true, begin, end, Dv);
    return;
  }
  pack_lanes(p->values + run * p->values_run, v, at->v_stride, true, begin, end, Dv);
  if (kind != PACK_DKV)
    pack_pairs(p->keys_rows + run * p->rows_run, k, at->k_stride, true, begin, end, D);
}

static inline void pack_queries(
    const tsr_attention *a, const attention_parts *p, const number *q, int64_t stride,
    int64_t rows) {
  pack_lanes(p->queries, q, stride, false, 0, rows, a->D);
}

/* A block's queries and gradients of out, packed; as rows too where dk and dv are wanted. */
static inline void block_pack(
    const tsr_attention *a, const attention_parts *p, block part, const number *q,
    const number *dout, const head *at, bool rows) {
  int64_t Dv = tsr_attention_value_size(a);
  pack_queries(a, p, q, at->q_stride, part.rows);
  pack_lanes(p->douts, dout, at->out_stride, false, 0, part.rows, Dv);
  if (!rows) return;
  pack_pairs(p->queries_rows, q, at->q_stride, false, 0, part.rows, a->D);
  pack_pairs(p->douts_rows, dout, at->out_stride, false, 0, part.rows, Dv);
}

/* The first tile of queries with one that sees the key; the end of the keys that a tile sees. */
static inline int64_t query_first(const tsr_attention *a, block part, int64_t key) {
  return a->causal && key > part.first ? (key - part.first) / DOT_TILE * DOT_TILE : 0;
}
static inline int64_t
key_end(const tsr_attention *a, block part, int64_t query, int64_t begin, int64_t end) {
  int64_t last = part.first + query + DOT_TILE;
  end = a->causal && last < end ? last : end;
  return end < begin ? begin : end;
}

/* to (TILE_ROWS, QUERIES) = packed keys, or values, of a tile times packed columns (D, queries),
 * for the vectors that see it. D: of the keys, or Dv. */
static inline void tile_scores(
    const tsr_attention *a, int64_t D, block part, const float *keys, int64_t key,
    const float *columns, float *to, float *max, fetch *ahead) {
  const uint32_t *x = (const uint32_t *)(const void *)keys + key / DOT_LANES * panel_words(D);
  const uint32_t *y = (const uint32_t *)(const void *)columns;
  int64_t panel = panel_words(D), queries = block_vectors(part) * WIDTH;
  (void)max;
  for (int64_t query = query_first(a, part, key); query < queries; query += DOT_TILE) {
    dot_panels own = {x, panel, DOT_SQUARE};
    dot_panels others = {y + query / DOT_LANES * panel, panel, DOT_SQUARE};
    fetch_some(ahead, D);
    dot_tile_add(own, others, dot_squares(D), false, to + query, QUERIES);
  }
}

/* The sums of block_weigh. */
static inline void
weigh_begin(const attention_parts *p, block part, float *to, int64_t to_stride, int64_t width) {
  (void)part, (void)to, (void)to_stride;
  row_zero(p->transposed, 0, width * QUERIES);
}

/* The sums (width, queries) += packed rows (width, keys) times weights (keys, queries), of the keys
 * [begin, end): out, or dq. */
static inline void block_weigh(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end,
    float *to, int64_t to_stride, int64_t width, const float *weights, const float *rows) {
  enum { PIECE_WORDS = PIECE / DOT_TILE * DOT_SQUARE }; /* of a panel of 16 queries */
  uint32_t *pairs = (uint32_t *)(void *)p->weights;
  int64_t step = square_words(width), queries = block_vectors(part) * WIDTH;
  const uint32_t *x = (const uint32_t *)(const void *)rows + begin / DOT_TILE * step;
  (void)to, (void)to_stride;
  for (int64_t query = 0; query < queries; query += DOT_TILE) {
    int64_t keys = key_end(a, part, query, begin, end) - begin;
    for (int64_t lane = query; lane < query + DOT_TILE; lane += DOT_LANES)
      for (int64_t k = 0; k < keys; k += DOT_TILE)
        round_pairs_of_rows(
            pairs + lane / DOT_LANES * PIECE_WORDS + k / DOT_TILE * DOT_SQUARE,
            weights + k * QUERIES + lane, keys - k);
    for (int64_t d = 0; d < width; d += DOT_TILE) {
      dot_panels own = {x + d / DOT_LANES * DOT_SQUARE, DOT_SQUARE, step};
      dot_panels others = {pairs + query / DOT_LANES * PIECE_WORDS, PIECE_WORDS, DOT_SQUARE};
      float *sums = p->transposed + d * QUERIES + query;
      dot_tile_add(own, others, dot_squares(keys), true, sums, QUERIES);
    }
  }
}

/* to (queries, width) = the sums. A zero is positive, however many squares of zeros were added. */
static inline void
weigh_end(const attention_parts *p, block part, float *to, int64_t to_stride, int64_t width) {
  for (int64_t d = 0; d < width; d += WIDTH)
    for (int64_t first = 0; first < part.rows; first += WIDTH) {
      vector square[WIDTH];
      _Pragma("GCC unroll 16") for (int i = 0; i < WIDTH; i++) square[i] =
          lanes_load(p->transposed + (d + i) * QUERIES + first, 0) + 0.0f;
      transpose_square(square);
      for (int i = 0; i < WIDTH && first + i < part.rows; i++)
        vector_store(to + (first + i) * to_stride + d, square[i]);
    }
}

/* to (keys, width) += weights (keys, queries) times packed rows (queries, width), for the keys
 * [begin, end): dk, or dv. */
static inline void block_spread(
    const tsr_attention *a, const attention_parts *p, block part, int64_t begin, int64_t end,
    float *to, int64_t to_stride, int64_t width, const float *weights, const float *rows) {
  enum { PANEL_WORDS = QUERIES / DOT_TILE * DOT_SQUARE }; /* of 16 keys */
  uint32_t *pairs = (uint32_t *)(void *)p->weights;
  const uint32_t *y = (const uint32_t *)(const void *)rows;
  int64_t step = square_words(width), queries = block_vectors(part) * WIDTH;
  for (int64_t key = begin; key < end; key += DOT_TILE) {
    int64_t from = query_first(a, part, key), squares = dot_squares(queries - from);
    if (from >= queries) break;
    for (int64_t lane = 0; lane < DOT_TILE; lane += DOT_LANES)
      for (int64_t query = from; query < queries; query += DOT_TILE)
        round_pairs_of_columns(
            pairs + lane / DOT_LANES * PANEL_WORDS + query / DOT_TILE * DOT_SQUARE,
            weights + (key - begin + lane) * QUERIES + query);
    for (int64_t d = 0; d < width; d += DOT_TILE) {
      dot_panels own = {pairs + from / DOT_TILE * DOT_SQUARE, PANEL_WORDS, DOT_SQUARE};
      dot_panels others = {
          y + from / DOT_TILE * step + d / DOT_LANES * DOT_SQUARE, DOT_SQUARE, step};
      dot_tile_add(own, others, squares, true, to + key * to_stride + d, to_stride);
    }
  }
}

#endif
