// SPDX-License-Identifier: Apache-2.0
/* The GEMM of bf16 operands with an instruction that multiplies and adds pairs; a GEMM without any
 * is that of the level below. One operand is packed before, by all threads. A call packs a group of
 * panels of the other one, a span of K at a time, which stays in the second cache, and multiplies
 * all panels of the first by it.
 *
 * Every element is one chain, whatever the split and the shape: the sum of each TSR_GEMM_DEPTH
 * neighbours in K, as dot_tile.h has it, and these sums one after the other. K is filled up with
 * zeros to whole squares. */
#include "kernels/cpu/dot_gemm.h"
#include "kernels/cpu/dot_tile.h"
#include "kernels/cpu/pack_buffer.h"
#include <string.h>

enum {
  DEPTH = TSR_GEMM_DEPTH,
  GROUP = 8 /* tiles beside each other, whose sums stay in the first cache */
};

typedef float tile_sums[DOT_SUMS];

/* The tiles of a group: rows or columns [begin, end) of C, which the call packs; a part of K. */
typedef struct {
  const tsr_gemm *p;
  dot_operand own, packed;
  int64_t begin, end, k, depth;
  const uint32_t *words; /* what is packed */
  tile_sums *sums;       /* of each tile */
} group;

static int64_t tiles_of(const group *g) { return (g->end - g->begin + DOT_TILE - 1) / DOT_TILE; }

/* Words of a tile's two panels, with whole squares, of so much of K. */
static int64_t tile_words(int64_t depth) { return dot_squares(depth) * 2 * DOT_SQUARE; }

static void pack_group(const group *g) {
  uint32_t *to = tsr_pack_buffer.pairs;
  for (int64_t lane = g->begin; lane < g->end; lane += DOT_TILE)
    for (int64_t k = 0; k < g->depth; k += DEPTH) {
      int64_t depth = dot_least(g->depth - k, DEPTH);
      LEVEL(dot_pack_whole)(&g->own, lane, g->end, g->k + k, depth, to);
      to += tile_words(depth);
    }
}

/* Where a tile of C is: rows and columns are those that exist. */
typedef struct {
  float *c;
  const float *bias; /* NULL: none, or not yet */
  int64_t stride, rows, columns;
} tile_place;

static tile_place place_of(const group *g, int64_t packed_lane, int64_t tile) {
  const tsr_gemm *p = g->p;
  int64_t own = g->begin + tile * DOT_TILE, row = p->by_rows ? own : packed_lane,
          column = p->by_rows ? packed_lane : own;
  int64_t rows = (p->by_rows ? g->end : p->M) - row,
          columns = (p->by_rows ? p->N : g->end) - column;
  bool completes = g->k + g->depth == p->K;
  return (tile_place){
      p->c + row * p->c_stride + column, p->bias && completes ? p->bias + column : NULL,
      p->c_stride, dot_least(rows, DOT_TILE), dot_least(columns, DOT_TILE)};
}

/* 16 columns of a row of a tile; `n` are in C. */
static inline void move_row(float *to, const float *from, int64_t n) {
  if (n >= DOT_LANES) memcpy(to, from, DOT_LANES * sizeof *to);
  else if (n > 0) memcpy(to, from, (size_t)n * sizeof *to);
}

static void read_tile(const tile_place *at, float *sums) {
  for (int t = 0; t < 4; t++)
    for (int64_t i = t / 2 * DOT_LANES, r = 0; r < DOT_LANES && i < at->rows; i++, r++)
      move_row(
          sums + t * DOT_SQUARE + r * DOT_LANES, at->c + i * at->stride + t % 2 * DOT_LANES,
          at->columns - t % 2 * DOT_LANES);
}

static void write_tile(const tile_place *at, float *sums) {
  float bias[DOT_TILE] = {0};
  if (at->bias) memcpy(bias, at->bias, (size_t)at->columns * sizeof *bias);
  for (int64_t i = 0; i < at->rows; i++)
    for (int half = 0; half < 2; half++) {
      float *row = sums + (i / DOT_LANES * 2 + half) * DOT_SQUARE + i % DOT_LANES * DOT_LANES;
      for (int j = 0; at->bias && j < DOT_LANES; j++) row[j] += bias[half * DOT_LANES + j];
      move_row(at->c + i * at->stride + half * DOT_LANES, row, at->columns - half * DOT_LANES);
    }
}

/* A block of K of all tiles of the group; `from`: what is packed for all. */
static void run_block(const group *g, const uint32_t *from, int64_t k, bool adds) {
  int64_t depth = dot_least(g->depth - k, DEPTH), words = tile_words(depth);
  const uint32_t *own = tsr_pack_buffer.pairs + tile_words(k);
  tile_sums sums __attribute__((aligned(64)));
  for (int64_t t = 0; t < tiles_of(g); t++, own += tile_words(g->depth)) {
    const uint32_t *a = g->p->by_rows ? own : from, *b = g->p->by_rows ? from : own;
    float *to = g->sums[t];
    dot_tile(a, b, words / (2 * DOT_SQUARE), adds ? sums : to);
    for (int i = 0; adds && i < DOT_SUMS; i++) to[i] += sums[i];
  }
}

/* The group's panels times those of `lane` of what is packed. */
static void run_panels(const group *g, int64_t lane) {
  uint32_t copy[2 * DOT_BLOCK_SQUARES * DOT_SQUARE] __attribute__((aligned(64)));
  bool adds = g->p->adds || g->k;
  for (int64_t t = 0; adds && t < tiles_of(g); t++) {
    tile_place at = place_of(g, lane, t);
    read_tile(&at, g->sums[t]);
  }
  for (int64_t k = 0; k < g->depth; k += DEPTH)
    run_block(
        g,
        LEVEL(dot_packed_panels)(
            &g->packed, g->words, lane, g->k + k, dot_least(g->depth - k, DEPTH), copy),
        k, adds || k);
  for (int64_t t = 0; t < tiles_of(g); t++) {
    tile_place at = place_of(g, lane, t);
    write_tile(&at, g->sums[t]);
  }
}

/* So much of K, whole blocks, that the panels of a group fit into the buffer. */
static int64_t span_of(int64_t lanes) {
  int64_t tiles = dot_least((lanes + DOT_TILE - 1) / DOT_TILE, GROUP);
  return TSR_PACK_BUFFER_WORDS / (tile_words(DEPTH) * tiles) * DEPTH;
}

static void run_dot(const tsr_gemm *p, const uint32_t *words, int64_t begin, int64_t end) {
  tile_sums sums[GROUP] __attribute__((aligned(64)));
  dot_operand a = dot_operand_a(p), b = dot_operand_b(p);
  group g = {.p = p, .own = p->by_rows ? a : b, .packed = p->by_rows ? b : a, .words = words};
  int64_t span = span_of(end - begin);
  g.sums = sums;
  dot_begin();
  for (g.k = 0; g.k < p->K; g.k += span) {
    g.depth = dot_least(p->K - g.k, span);
    for (g.begin = begin; g.begin < end; g.begin = g.end) {
      g.end = dot_least(end, g.begin + GROUP * DOT_TILE);
      pack_group(&g);
      for (int64_t lane = 0; lane < g.packed.count; lane += DOT_TILE) run_panels(&g, lane);
    }
  }
  dot_end();
}

/* ---- which GEMMs ---- */

/* An f32 operand, as the gradient of logits is one, is rounded to bf16 if the other is of bf16. */
static bool is_dot(const tsr_matrix *a, const tsr_matrix *b) {
  bool a_is = tsr_matrix_is_bf16(a), b_is = tsr_matrix_is_bf16(b);
  return (a_is || b_is) && (a_is || a->type == TSR_ELEMENT_F32) &&
         (b_is || b->type == TSR_ELEMENT_F32);
}

void LEVEL(gemm_pack)(const tsr_gemm *p, float *packed, int64_t begin, int64_t end) {
  dot_operand o = p->by_rows ? dot_operand_b(p) : dot_operand_a(p);
  if (is_dot(&p->a, &p->b)) LEVEL(dot_pack)(&o, p->K, (uint32_t *)(void *)packed, begin, end);
  else BELOW(gemm_pack)(p, packed, begin, end);
}

void LEVEL(gemm)(const tsr_gemm *p, const float *packed, int64_t begin, int64_t end) {
  if (begin >= end) return;
  if (is_dot(&p->a, &p->b)) run_dot(p, (const uint32_t *)(const void *)packed, begin, end);
  else BELOW(gemm)(p, packed, begin, end);
}

/* ---- few rows: x is packed a part of K at a time ---- */

enum { SKINNY_DEPTH = 2 * DEPTH };

void LEVEL(skinny_gemm)(
    const tsr_skinny_gemm *p, float *y, const float *x, int64_t begin, int64_t end) {
  uint32_t packed[DOT_TILE * SKINNY_DEPTH / 2] __attribute__((aligned(64)));
  tsr_matrix rows = {.data = x, .rs = p->x_stride, .cs = 1, .bf16 = p->x_bf16};
  if (!is_dot(&rows, &p->w)) {
    BELOW(skinny_gemm)(p, y, x, begin, end);
    return;
  }
  for (int64_t row = 0; row < p->R; row += DOT_TILE)
    for (int64_t k = 0; k < p->K; k += SKINNY_DEPTH) {
      tsr_gemm part = {.M = dot_least(p->R - row, DOT_TILE), .N = end, .b = p->w};
      part.K = dot_least(p->K - k, SKINNY_DEPTH);
      part.a = rows;
      part.a.first = row * p->x_stride + k;
      part.b.first += k;
      part.c = y + row * p->y_stride;
      part.c_stride = p->y_stride;
      part.adds = k > 0;
      part.bias = k + part.K == p->K ? p->bias : NULL;
      dot_operand a = dot_operand_a(&part);
      LEVEL(dot_pack)(&a, part.K, packed, 0, part.M);
      run_dot(&part, packed, begin, end);
    }
}
