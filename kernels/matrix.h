// SPDX-License-Identifier: Apache-2.0
/* Matrices as GEMMs have them: of which type, where elements are, and what is multiplied. */
#ifndef TSR_KERNELS_MATRIX_H
#define TSR_KERNELS_MATRIX_H
#include "base/fp8_layout.h"
#include "kernels/quantize.h"
#include <stdbool.h>
#include <stdint.h>

/* The type of an operand's elements. Those of 16 bits and the codes of quantised ones are cast to
 * f32 as they are packed or read; the former is exact. */
typedef enum {
  TSR_ELEMENT_F32,
  TSR_ELEMENT_BF16,
  TSR_ELEMENT_F16,
  TSR_ELEMENT_CODES,
  TSR_ELEMENT_E4M3, /* bytes, with the scales of a tsr_matrix */
  TSR_ELEMENT_E5M2
} tsr_element;

/* Not of codes. */
static inline int64_t tsr_element_bytes(tsr_element type) {
  if (type == TSR_ELEMENT_E4M3 || type == TSR_ELEMENT_E5M2) return 1;
  return type == TSR_ELEMENT_F32 ? 4 : 2;
}
static inline const void *tsr_element_at(const void *data, tsr_element type, int64_t i) {
  return (const char *)data + i * tsr_element_bytes(type);
}

/* A quantised matrix, whose elements are rounded to the type `rounds` as they are read. */
typedef struct {
  const void *data;
  tsr_quantized_layout layout;
  tsr_element rounds;
} tsr_quantized;

/* The scales of an operand of a GEMM in FP8: of block i of K, and of a row of A or column of B, the
 * one at i * k_stride + block * lane_stride. Rows and columns have one block each, or (lane_unit >
 * 0) one for TSR_FP8_BLOCK of them, counted in each unit of so many. */
typedef struct {
  const float *data; /* NULL: no scales */
  int64_t k_stride, lane_stride, lane_unit;
} tsr_fp8_operand_scales;

/* A matrix seen by strides: element (i,j) is the one at first + i*rs + j*cs of the data, and one of
 * the strides is 1. Quantised elements count row-major. */
typedef struct {
  const void *data;
  int64_t rs, cs;
  tsr_element type;
  int64_t first;
  tsr_quantized quantized; /* of that type, in place of data */
  tsr_fp8_operand_scales scales;
  bool bf16; /* of f32: its numbers are those of bf16 */
} tsr_matrix;

/* Whether a matrix has numbers of bf16, however they are stored. */
static inline bool tsr_matrix_is_bf16(const tsr_matrix *m) {
  tsr_element type = m->type == TSR_ELEMENT_CODES ? m->quantized.rounds : m->type;
  return type == TSR_ELEMENT_BF16 || (type == TSR_ELEMENT_F32 && m->bf16);
}

/* Where element (0, 0) is; not of codes. */
static inline const void *tsr_matrix_begin(const tsr_matrix *m) {
  return tsr_element_at(m->data, m->type, m->first);
}

/* C (M,N) = A (M,K) B (K,N), added to C where `adds`; c's rows are c_stride apart. To each row of
 * the complete sum `bias` (N) is then added, with the bits of add_row behind the product; NULL:
 * none. One operand is packed before by gemm_pack, for all: B where `by_rows`, else A. The other is
 * dealt out. `scaled`: both operands are codes of FP8 with scales, whose blocks of K begin at 0,
 * and the sum is that of base/fp8_layout.h. With c_bf16, where gemm_traits allow it, the
 * result is rounded to nearest and stored there, with the same stride; c has sums of parts of K. */
typedef struct {
  int64_t M, N, K;
  tsr_matrix a, b;
  float *c;
  uint16_t *c_bf16; /* NULL: c */
  int64_t c_stride;
  bool adds, by_rows;
  const float *bias;
  bool scaled;
} tsr_gemm;

/* How a level computes a GEMM. */
typedef struct {
  int64_t tile_rows; /* ranges of rows that are multiples of it cost the least */
  bool stores_bf16;  /* c_bf16 may be set */
} tsr_gemm_traits;

enum { TSR_GEMM_ROWS = 12, TSR_GEMM_COLUMNS = 32 }; /* of both, panels are divisors */

/* Every element of a product is one chain: TSR_GEMM_DEPTH neighbours in K are added one after
 * the other to zero, and such sums to one another, so that its bits depend on no shape and no
 * split. Scaled ones have TSR_FP8_BLOCK neighbours, which divides it. Operands with numbers of
 * bf16 are multiplied by an instruction of their own at the levels v4-bf16 and amx-bf16, which
 * round an f32 operand beside one of bf16 to bf16; its order inside such a sum, and what it flushes
 * to zero, is in kernels/cpu/dot_tile.h. */
enum { TSR_GEMM_DEPTH = 384 };

/* y (R,N) = x (R,K) w (N,K)^T for few rows, from strided rows, and bias (N) as in tsr_gemm. w is
 * seen as tsr_gemm's b is: (K,N), rs 1. */
typedef struct {
  int64_t R, K, x_stride, y_stride;
  const float *bias;
  tsr_matrix w;
  bool x_bf16; /* the numbers of x are those of bf16, as in tsr_matrix */
} tsr_skinny_gemm;

#endif
