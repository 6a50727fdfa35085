// SPDX-License-Identifier: Apache-2.0
/* Shared by the parts of the GEMM of two bf16 operands at levels with an instruction that
 * multiplies and adds pairs of bf16 (vdpbf16ps, tdpbf16ps): how operands are packed.
 *
 * A word is a pair of neighbours in K, the first one in its lower half. A square is 16 lanes (rows
 * of A, or columns of B) of 16 pairs; of A lanes are its rows, (16 lanes, 16 pairs), of B pairs are
 * (16 pairs, 16 lanes), which is the layout that Intel calls VNNI. A panel is 16 lanes: the squares
 * of up to TSR_GEMM_DEPTH of K, one behind the other.
 *
 * What all threads read is packed densely: blocks of TSR_GEMM_DEPTH of K, each of which has all
 * panels. The last panel has as many lanes, and the last square of a block as many pairs, as there
 * are; an odd K ends with a zero. So it takes no more memory than f32 does. What a call packs for
 * itself is filled up to whole squares with zeros. */
#ifndef TSR_KERNELS_CPU_DOT_GEMM_H
#define TSR_KERNELS_CPU_DOT_GEMM_H
#include "kernels/cpu/level.h"

enum {
  DOT_LANES = 16,
  DOT_PAIRS = 16,
  DOT_SQUARE = DOT_LANES * DOT_PAIRS,
  DOT_SQUARE_DEPTH = 2 * DOT_PAIRS,
  DOT_BLOCK_SQUARES = TSR_GEMM_DEPTH / DOT_SQUARE_DEPTH,
  DOT_TILE = 2 * DOT_LANES /* rows and columns of C that are computed at once */
};
_Static_assert(TSR_GEMM_DEPTH % DOT_SQUARE_DEPTH == 0, "whole squares");

/* One operand, seen from K; one of the strides is 1. */
typedef struct {
  const tsr_matrix *matrix;
  int64_t lane_stride, k_stride, count;
  bool is_a;
} dot_operand;

static inline dot_operand dot_operand_a(const tsr_gemm *p) {
  return (dot_operand){&p->a, p->a.rs, p->a.cs, p->M, true};
}
static inline dot_operand dot_operand_b(const tsr_gemm *p) {
  return (dot_operand){&p->b, p->b.cs, p->b.rs, p->N, false};
}

static inline int64_t dot_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t dot_pairs(int64_t depth) { return (depth + 1) / 2; }
static inline int64_t dot_squares(int64_t depth) {
  return (depth + DOT_SQUARE_DEPTH - 1) / DOT_SQUARE_DEPTH;
}

/* Where dot_pack puts the panel from `lane` on, of the block [k, k + depth) of K. */
static inline int64_t dot_packed_at(const dot_operand *o, int64_t lane, int64_t k, int64_t depth) {
  return k / 2 * o->count + lane * dot_pairs(depth);
}

/* Lanes [begin, end) of all of K, densely; begin is a multiple of DOT_LANES if the operand is B. */
void LEVEL(dot_pack)(const dot_operand *o, int64_t K, uint32_t *to, int64_t begin, int64_t end);

/* [k, k + depth), of one block, of two panels from `lane` on, whose lanes end at `end`: whole
 * squares, zeros where nothing is. */
void LEVEL(dot_pack_whole)(
    const dot_operand *o, int64_t lane, int64_t end, int64_t k, int64_t depth, uint32_t *to);

/* The same of lanes that dot_pack has packed, of block k of K: where the two panels are, which is
 * in `packed` if their squares are whole, else in `copy`. */
const uint32_t *LEVEL(dot_packed_panels)(
    const dot_operand *o, const uint32_t *packed, int64_t lane, int64_t k, int64_t depth,
    uint32_t copy[2 * DOT_BLOCK_SQUARES * DOT_SQUARE]);

#endif
