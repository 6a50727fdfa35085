// SPDX-License-Identifier: Apache-2.0
/* Shared by the two halves of the matrix product: how operands are packed. A panel is `lanes` rows
 * of A, or columns of B, laid so that what a micro-kernel reads in one turn of its loop are
 * neighbours: (depth, lanes). Panels of up to TSR_GEMM_DEPTH of K lie behind each other, then
 * those of the next; the last panel is filled up with zeros. Of operands in FP8 these are codes, in
 * pieces of TSR_FP8_BLOCK of K, and a line more with the scale of each lane ends each piece. */
#ifndef TSR_KERNELS_CPU_GEMM_H
#define TSR_KERNELS_CPU_GEMM_H
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/level.h"

/* A tile of C is held in registers: ROWS x COLUMNS sums, of which there are as many as leave room
 * for two vectors of B and one of A. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { ROWS = 12 };
#else
enum { ROWS = 6 };
#endif
enum { COLUMNS = 2 * WIDTH };

/* One operand, seen from K: `lanes` a panel, `count` rows or columns in all. */
typedef struct {
  const void *data;
  int64_t first, lane_stride, k_stride; /* one of the strides is 1 */
  int64_t count, K;
  int lanes;
  tsr_element type;
  tsr_fp8_operand_scales scales;
} operand;

static inline const void *data_of(const tsr_matrix *x) {
  return x->type == TSR_ELEMENT_CODES ? &x->quantized : x->data;
}
static inline operand operand_a(const tsr_gemm *p) {
  const tsr_matrix *a = &p->a;
  return (operand){data_of(a), a->first, a->rs, a->cs, p->M, p->K, ROWS, a->type, a->scales};
}
static inline operand operand_b(const tsr_gemm *p) {
  const tsr_matrix *b = &p->b;
  return (operand){data_of(b), b->first, b->cs, b->rs, p->N, p->K, COLUMNS, b->type, b->scales};
}
static inline int64_t operand_panels(const operand *o) {
  return (o->count + o->lanes - 1) / o->lanes;
}

/* Lines of a panel of so much of K, from the beginning of a piece on. */
static inline int64_t panel_lines(bool scaled, int64_t depth) {
  return scaled ? depth + (depth + TSR_FP8_BLOCK - 1) / TSR_FP8_BLOCK : depth;
}

/* Panels [begin, end) of K's [k, k + depth), one behind the other, in f32. */
void LEVEL(operand_pack)(
    const operand *o, int64_t k, int64_t depth, int64_t begin, int64_t end, float *to);

#endif
