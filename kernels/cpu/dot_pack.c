// SPDX-License-Identifier: Apache-2.0
/* Operands of bf16 laid out for instructions that multiply pairs. */
#include "kernels/cpu/dot_epilogue.h"
#include <string.h>

typedef uint32_t words __attribute__((vector_size(4 * DOT_PAIRS)));

/* ---- transposition: each round interleaves the first half of the rows with the second ---- */

#define INTERLEAVE_LOW(a, b)                                                                       \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INTERLEAVE_HIGH(a, b)                                                                      \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

static inline __attribute__((always_inline)) void transpose(words rows[DOT_LANES]) {
  words mixed[DOT_LANES];
  _Pragma("GCC unroll 4") for (int round = 1; round < DOT_LANES; round *= 2) {
    _Pragma("GCC unroll 8") for (int i = 0; i < DOT_LANES / 2; i++) {
      mixed[2 * i] = INTERLEAVE_LOW(rows[i], rows[i + DOT_LANES / 2]);
      mixed[2 * i + 1] = INTERLEAVE_HIGH(rows[i], rows[i + DOT_LANES / 2]);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < DOT_LANES; i++) rows[i] = mixed[i];
  }
}

/* ---- squares ---- */

/* n neighbours from an element on. f32 is rounded to nearest; codes were before. */
static void load_neighbours(const tsr_matrix *m, int64_t element, int64_t n, uint16_t *to) {
  float wide[DOT_SQUARE_DEPTH];
  const float *numbers = wide;
  if (m->type == TSR_ELEMENT_BF16) {
    memcpy(to, (const uint16_t *)m->data + m->first + element, (size_t)n * sizeof *to);
    return;
  }
  if (m->type == TSR_ELEMENT_F32) numbers = (const float *)m->data + m->first + element;
  else BELOW(quantized_to_f32)(wide, &m->quantized, m->first + element, n);
  for (int64_t i = 0; i < n; i++) to[i] = bf16_nearest(numbers[i]);
}

/* 16 neighbours of f32, rounded to nearest. */
static inline dot_halves load_rounded(const tsr_matrix *m, int64_t element) {
  return dot_nearest(dot_load((const float *)m->data + m->first + element));
}

/* Part of a square: `lanes` from `lane` on, `depth` of K from k on. */
typedef struct {
  int64_t lane, lanes, k, depth;
} part;

/* Rows are lanes. What the tile after this one reads is fetched: its lines lie too far apart to be
 * foreseen. */
static inline void load_along_k(const dot_operand *o, part s, words rows[DOT_LANES]) {
  const tsr_matrix *m = o->matrix;
  int64_t first = s.lane * o->lane_stride + s.k;
  if (m->type == TSR_ELEMENT_BF16 && s.lanes == DOT_LANES && s.depth == DOT_SQUARE_DEPTH) {
    const uint16_t *x = (const uint16_t *)m->data + m->first + first;
    _Pragma("GCC unroll 16") for (int l = 0; l < DOT_LANES; l++) {
      __builtin_prefetch(x + (l + DOT_TILE) * o->lane_stride, 0, 2);
      memcpy(&rows[l], x + l * o->lane_stride, sizeof rows[l]);
    }
    return;
  }
  if (m->type == TSR_ELEMENT_F32 && s.lanes == DOT_LANES && s.depth == DOT_SQUARE_DEPTH) {
    _Pragma("GCC unroll 4") for (int l = 0; l < DOT_LANES; l++) {
      dot_halves two[] = {
          load_rounded(m, first + l * o->lane_stride),
          load_rounded(m, first + l * o->lane_stride + DOT_LANES)};
      memcpy(&rows[l], two, sizeof rows[l]);
    }
    return;
  }
  for (int l = 0; l < DOT_LANES; l++) {
    uint16_t half[DOT_SQUARE_DEPTH] = {0};
    if (l < s.lanes) load_neighbours(m, first + l * o->lane_stride, s.depth, half);
    memcpy(&rows[l], half, sizeof rows[l]);
  }
}

/* Two rows of 16 lanes as one of pairs. */
typedef uint16_t halves __attribute__((vector_size(2 * DOT_LANES)));
#define INTERLEAVE_HALVES(x)                                                                       \
  __builtin_shufflevector(                                                                         \
      x[0], x[1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26,    \
      11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Rows are pairs. */
static inline void load_along_lanes(const dot_operand *o, part s, words rows[DOT_PAIRS]) {
  const tsr_matrix *m = o->matrix;
  int64_t first = s.lane + s.k * o->k_stride;
  bool all = s.lanes == DOT_LANES && s.depth == DOT_SQUARE_DEPTH;
  bool whole = all && m->type == TSR_ELEMENT_BF16, rounds = all && m->type == TSR_ELEMENT_F32;
  _Pragma("GCC unroll 16") for (int i = 0; i < DOT_PAIRS; i++) {
    halves two[2];
    if (whole) {
      const uint16_t *x = (const uint16_t *)m->data + m->first + first + 2 * i * o->k_stride;
      memcpy(&two[0], x, sizeof two[0]);
      memcpy(&two[1], x + o->k_stride, sizeof two[1]);
      __builtin_prefetch(x + DOT_TILE, 0, 2);
      __builtin_prefetch(x + DOT_TILE + o->k_stride, 0, 2);
    } else if (rounds) {
      for (int j = 0; j < 2; j++) {
        dot_halves half = load_rounded(m, first + (2 * i + j) * o->k_stride);
        memcpy(&two[j], &half, sizeof two[j]);
      }
    } else {
      for (int j = 0; j < 2; j++) {
        uint16_t half[DOT_LANES] = {0};
        if (2 * i + j < s.depth)
          load_neighbours(m, first + (2 * i + j) * o->k_stride, s.lanes, half);
        memcpy(&two[j], half, sizeof two[j]);
      }
    }
    rows[i] = (words)INTERLEAVE_HALVES(two);
  }
}

static inline void load_square(const dot_operand *o, part s, words rows[DOT_LANES]) {
  bool along_k = o->k_stride == 1;
  if (along_k) load_along_k(o, s, rows);
  else load_along_lanes(o, s, rows);
  if (along_k != o->is_a) transpose(rows);
}

static inline void store_square(const words rows[DOT_LANES], uint32_t *to) {
  _Pragma("GCC unroll 16") for (int i = 0; i < DOT_LANES; i++)
      memcpy(to + i * DOT_PAIRS, &rows[i], sizeof rows[i]);
}

/* ---- dense ---- */

/* A square of a panel whose lanes are `lanes`, from its lane `first` on. */
static void
pack_dense_square(const dot_operand *o, part s, int64_t first, int64_t lanes, uint32_t *to) {
  words rows[DOT_LANES];
  load_square(o, s, rows);
  int64_t pairs = dot_pairs(s.depth);
  if (s.lanes == DOT_LANES && pairs == DOT_PAIRS) {
    store_square(rows, to);
    return;
  }
  int64_t count = o->is_a ? s.lanes : pairs, wide = o->is_a ? pairs : lanes;
  to += o->is_a ? first * pairs : 0;
  for (int64_t i = 0; i < count; i++) memcpy(to + i * wide, &rows[i], (size_t)wide * sizeof *to);
}

void LEVEL(dot_pack)(const dot_operand *o, int64_t K, uint32_t *to, int64_t begin, int64_t end) {
  for (int64_t k = 0; k < K; k += TSR_GEMM_DEPTH) {
    int64_t depth = dot_least(K - k, TSR_GEMM_DEPTH);
    for (int64_t lane = begin, next; lane < end; lane = next) {
      int64_t panel = lane / DOT_LANES * DOT_LANES, lanes = dot_least(o->count - panel, DOT_LANES);
      next = dot_least(panel + DOT_LANES, end);
      uint32_t *at = to + dot_packed_at(o, panel, k, depth);
      for (int64_t i = 0; i < depth; i += DOT_SQUARE_DEPTH) {
        part s = {lane, next - lane, k + i, dot_least(depth - i, DOT_SQUARE_DEPTH)};
        pack_dense_square(o, s, lane - panel, lanes, at + i / 2 * lanes);
      }
    }
  }
}

/* Of a dense square whole rows. */
static void copy_square(
    const dot_operand *o, const uint32_t *from, int64_t lanes, int64_t pairs, uint32_t *to) {
  int64_t count = o->is_a ? lanes : pairs, wide = o->is_a ? pairs : lanes;
  memset(to, 0, DOT_SQUARE * sizeof *to);
  for (int64_t i = 0; i < count; i++)
    memcpy(to + i * DOT_PAIRS, from + i * wide, (size_t)wide * sizeof *to);
}

const uint32_t *LEVEL(dot_packed_panels)(
    const dot_operand *o, const uint32_t *packed, int64_t lane, int64_t k, int64_t depth,
    uint32_t copy[2 * DOT_BLOCK_SQUARES * DOT_SQUARE]) {
  int64_t pairs = dot_pairs(depth), squares = dot_squares(depth);
  const uint32_t *from = packed + dot_packed_at(o, lane, k, depth);
  if (o->count - lane >= DOT_TILE && pairs % DOT_PAIRS == 0) return from;
  for (int panel = 0; panel < 2; panel++) {
    int64_t left = o->count - lane - panel * DOT_LANES, lanes = dot_least(left, DOT_LANES);
    uint32_t *to = copy + panel * squares * DOT_SQUARE;
    if (left <= 0) memset(to, 0, (size_t)squares * DOT_SQUARE * sizeof *to);
    for (int64_t i = 0; left > 0 && i < squares; i++, to += DOT_SQUARE, from += DOT_PAIRS * lanes)
      copy_square(o, from, lanes, dot_least(pairs - i * DOT_PAIRS, DOT_PAIRS), to);
    from = packed + dot_packed_at(o, lane + DOT_LANES, k, depth);
  }
  return copy;
}

/* ---- whole squares ---- */

void LEVEL(dot_pack_whole)(
    const dot_operand *o, int64_t lane, int64_t end, int64_t k, int64_t depth, uint32_t *to) {
  int64_t words_of_panel = dot_squares(depth) * DOT_SQUARE;
  for (int64_t i = 0; i < depth; i += DOT_SQUARE_DEPTH, to += DOT_SQUARE)
    for (int panel = 0; panel < 2; panel++) {
      words rows[DOT_LANES] = {{0}};
      int64_t first = lane + panel * DOT_LANES;
      part s = {
          first, dot_least(end - first, DOT_LANES), k + i, dot_least(depth - i, DOT_SQUARE_DEPTH)};
      if (s.lanes > 0) load_square(o, s, rows);
      store_square(rows, to + panel * words_of_panel);
    }
}
