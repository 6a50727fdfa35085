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
  GROUP = 8,       /* tiles beside each other at most, whose sums stay in the first cache */
  SPAN = 4 * DEPTH /* of K, whose panels of a group stay in the second one */
};

_Static_assert(GROUP *DOT_TILE *SPAN / 2 <= TSR_PACK_BUFFER_WORDS, "room for a group");

typedef float tile_sums[DOT_SUMS];

/* The tiles of a group: rows or columns [begin, end) of C, which the call packs; a part of K. */
typedef struct {
  const tsr_gemm *p;
  dot_operand own, packed;
  int64_t begin, end, k, depth;
  const uint32_t *words; /* what is packed */
  tile_sums *sums;       /* of each tile, of the blocks before */
  tile_sums *blocks;     /* of a block: of a tile, and of the tile before it */
  int block;             /* which of the two is the tile's */
  dot_work work;
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

/* ---- a tile ---- */

/* A tile of C over a block of K: tile `tile` of the group and the panels from `lane` on of what is
 * packed; [k, k + depth) of the group's part of K. */
typedef struct {
  int64_t lane, tile, k, depth;
} place;

/* The tile's rows and columns are those that exist. */
static dot_epilogue epilogue_of(const group *g, const place *at, const float *sums) {
  const tsr_gemm *p = g->p;
  int64_t own = g->begin + at->tile * DOT_TILE, row = p->by_rows ? own : at->lane,
          column = p->by_rows ? at->lane : own, in_c = row * p->c_stride + column;
  bool ends = at->k + at->depth == g->depth, completes = ends && g->k + g->depth == p->K;
  dot_epilogue e = {.sums = sums, .to = g->sums[at->tile], .to_stride = DOT_TILE};
  e.rows = dot_least((p->by_rows ? g->end : p->M) - row, DOT_TILE);
  e.columns = dot_least((p->by_rows ? p->N : g->end) - column, DOT_TILE);
  if (at->k) e.before = g->sums[at->tile], e.before_stride = DOT_TILE;
  else if (p->adds || g->k) e.before = p->c + in_c, e.before_stride = p->c_stride;
  if (!ends) return e;
  e.to_stride = p->c_stride;
  if (p->c_bf16 && completes) e.to_bf16 = p->c_bf16 + in_c;
  else e.to = p->c + in_c;
  if (p->bias && completes) e.bias = p->bias + column;
  return e;
}

/* The first block's sums, if there are more, are what the next ones are added to. */
static void run_tile(group *g, const place *at, const uint32_t *from) {
  const uint32_t *own = tsr_pack_buffer.pairs + at->tile * tile_words(g->depth) + tile_words(at->k);
  const uint32_t *a = g->p->by_rows ? own : from, *b = g->p->by_rows ? from : own;
  float *block = g->blocks[g->block ^= 1];
  dot_epilogue next = epilogue_of(g, at, block);
  bool is_first = !next.before && at->k + at->depth < g->depth;
  dot_tile(a, b, dot_squares(at->depth), is_first ? next.to : block, &g->work);
  g->work.epilogue = is_first ? (dot_epilogue){0} : next;
}

/* ---- a group ---- */

/* Where the block is that follows in what is packed. */
static const char *block_after(const group *g, const place *at) {
  place next = {.lane = at->lane, .k = at->k + at->depth};
  if (next.k == g->depth) next.lane += DOT_TILE, next.k = 0;
  next.depth = dot_least(g->depth - next.k, DEPTH);
  return (const char *)(g->words + dot_packed_at(&g->packed, next.lane, g->k + next.k, next.depth));
}

/* The group's panels times those of `lane` of what is packed. */
static void run_panels(group *g, int64_t lane) {
  uint32_t copy[2 * DOT_BLOCK_SQUARES * DOT_SQUARE] __attribute__((aligned(64)));
  place at = {.lane = lane};
  for (at.k = 0; at.k < g->depth; at.k += DEPTH) {
    at.depth = dot_least(g->depth - at.k, DEPTH);
    const uint32_t *from =
        LEVEL(dot_packed_panels)(&g->packed, g->words, lane, g->k + at.k, at.depth, copy);
    g->work.ahead = block_after(g, &at);
    for (at.tile = 0; at.tile < tiles_of(g); at.tile++) run_tile(g, &at, from);
  }
}

/* Groups are alike: one of few tiles would read all that is packed for little. */
static int64_t group_lanes(int64_t lanes) {
  int64_t tiles = (lanes + DOT_TILE - 1) / DOT_TILE, groups = (tiles + GROUP - 1) / GROUP;
  return (tiles + groups - 1) / groups * DOT_TILE;
}

static void run_dot(const tsr_gemm *p, const uint32_t *words, int64_t begin, int64_t end) {
  tile_sums sums[GROUP + 2] __attribute__((aligned(64)));
  dot_operand a = dot_operand_a(p), b = dot_operand_b(p);
  group g = {.p = p, .own = p->by_rows ? a : b, .packed = p->by_rows ? b : a, .words = words};
  int64_t lanes = group_lanes(end - begin);
  g.sums = sums;
  g.blocks = sums + GROUP;
  dot_begin();
  for (g.begin = begin; g.begin < end; g.begin = g.end) {
    g.end = dot_least(end, g.begin + lanes);
    for (g.k = 0; g.k < p->K; g.k += SPAN) {
      g.depth = dot_least(p->K - g.k, SPAN);
      pack_group(&g);
      for (int64_t lane = 0; lane < g.packed.count; lane += DOT_TILE) run_panels(&g, lane);
    }
  }
  dot_work_end(&g.work);
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

tsr_gemm_traits LEVEL(gemm_traits)(const tsr_gemm *p) {
  if (!is_dot(&p->a, &p->b)) return BELOW(gemm_traits)(p);
  return (tsr_gemm_traits){.tile_rows = DOT_TILE, .stores_bf16 = true};
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
