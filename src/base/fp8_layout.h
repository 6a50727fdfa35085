// SPDX-License-Identifier: Apache-2.0
/* Matrices in FP8 with a scale for each block: what a GEMM reads with training_config.precision
 * fp8.
 *
 * Formats (Micikevicius et al. 2022, "FP8 formats for deep learning"; the OCP's specification of
 * 8-bit floating point): E4M3 has 3 bits of fraction and finite numbers up to 448, E5M2 has 2 and
 * numbers up to 57344. Both have subnormal numbers, down to 2^-9 and 2^-16. A code is a byte.
 *
 * Blocks (DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 3.3; Transformer Engine's
 * Float8BlockScaling): activations and gradients have one scale for 128 neighbours along the
 * dimension that the GEMM sums over, weights one for a square of 128 x 128.
 *
 *   amax  = the largest magnitude in the block
 *   scale = max(amax / largest finite number of the format, 2^-126), in f32; with power_of_two
 *           rounded up to a power of two
 *   code  = x / scale in f32, rounded to the nearest number of the format, of two the even one;
 *           what is beyond the largest finite number becomes that number
 *   value = code * scale
 *
 * A block with an infinity or a NaN has the scale NaN, so that each of its values is NaN. amax is
 * the same in any order, and each operation is IEEE's, so codes and scales have the same bits on
 * every instruction-set level and on GPUs. With power_of_two a value is exact in bf16.
 *
 * A matrix is split into equal rectangles (units: a unit of tp, the rows that a call of a GEMM
 * sums), in each of which blocks begin anew; the last block of a unit is short. So no axis of the
 * mesh cuts a block, as none cuts a unit.
 *
 * The GEMM (kernels/matrix.h) computes of operands a (M, K) and b (K, N)
 *   c[m,n] = sum over blocks i of K of (sum over k in i of code_a[m,k] code_b[k,n])
 *            * scale_a[m,i] * scale_b[i,n]
 * in f32: on the CPU the inner sum is one chain from zero, in which each product is exact; it is
 * multiplied by a's scale, then by b's, and added to the sum of the blocks before it. Where nothing
 * underflows, the error against the same codes and scales in exact arithmetic is at most
 *   (128 + 3 + blocks) 2^-24 * sum over k of |value_a[m,k] value_b[k,n]|.
 * On GPUs the tensor cores compute the inner sum (kernels/cuda/kernels.h has that bound). */
#ifndef TSR_BASE_FP8_LAYOUT_H
#define TSR_BASE_FP8_LAYOUT_H
#include <stdbool.h>
#include <stdint.h>

/* In CUDA C for the device, too. */
#ifdef __CUDACC__
#define TSR_FP8_FUNCTION static inline __host__ __device__
#else
#define TSR_FP8_FUNCTION static inline
#endif

#define TSR_FP8_BLOCK ((int64_t)128)

typedef enum { TSR_FP8_E4M3, TSR_FP8_E5M2 } tsr_fp8_format;
TSR_FP8_FUNCTION float tsr_fp8_largest(tsr_fp8_format format) {
  return format == TSR_FP8_E5M2 ? 57344.0f : 448.0f;
}

/* (rows, cols), row-major, of units of (unit_rows, unit_cols), which divide these. A block has
 * TSR_FP8_BLOCK or 1 of each dimension. Codes lie as the elements do. Scales are row-major: a row
 * of them for each row of blocks. */
typedef struct {
  int64_t rows, cols, unit_rows, unit_cols;
  int block_rows, block_cols;
  tsr_fp8_format format;
  bool power_of_two;
} tsr_fp8_layout;

/* The block of an index of a dimension that is split into units. */
TSR_FP8_FUNCTION int64_t tsr_fp8_block_of(int64_t i, int64_t unit, int64_t block) {
  return i / unit * ((unit + block - 1) / block) + i % unit / block;
}
/* Blocks along a dimension of `size`. */
TSR_FP8_FUNCTION int64_t tsr_fp8_blocks(int64_t size, int64_t unit, int64_t block) {
  return size / unit * ((unit + block - 1) / block);
}
TSR_FP8_FUNCTION int64_t tsr_fp8_scale_rows(const tsr_fp8_layout *l) {
  return tsr_fp8_blocks(l->rows, l->unit_rows, l->block_rows);
}
TSR_FP8_FUNCTION int64_t tsr_fp8_scale_cols(const tsr_fp8_layout *l) {
  return tsr_fp8_blocks(l->cols, l->unit_cols, l->block_cols);
}
TSR_FP8_FUNCTION int64_t tsr_fp8_scales(const tsr_fp8_layout *l) {
  return tsr_fp8_scale_rows(l) * tsr_fp8_scale_cols(l);
}

/* A matrix is quantised by tiles of up to TSR_FP8_BLOCK x TSR_FP8_BLOCK, of whole blocks and inside
 * a unit. */
TSR_FP8_FUNCTION int64_t tsr_fp8_tiles(const tsr_fp8_layout *l) {
  return tsr_fp8_blocks(l->rows, l->unit_rows, TSR_FP8_BLOCK) *
         tsr_fp8_blocks(l->cols, l->unit_cols, TSR_FP8_BLOCK);
}

typedef struct {
  int64_t row, col, rows, cols; /* the first element; how many */
  int64_t scale;                /* its first scale; the next row's is scale_cols later */
} tsr_fp8_tile;

/* The i-th run of TSR_FP8_BLOCK indices of a dimension that is split into units. */
TSR_FP8_FUNCTION int64_t tsr_fp8_run(int64_t unit, int64_t i, int64_t *ret_first) {
  int64_t each = (unit + TSR_FP8_BLOCK - 1) / TSR_FP8_BLOCK, at = i % each * TSR_FP8_BLOCK;
  *ret_first = i / each * unit + at;
  return unit - at < TSR_FP8_BLOCK ? unit - at : TSR_FP8_BLOCK;
}

TSR_FP8_FUNCTION tsr_fp8_tile tsr_fp8_tile_at(const tsr_fp8_layout *l, int64_t i) {
  int64_t across = tsr_fp8_blocks(l->cols, l->unit_cols, TSR_FP8_BLOCK);
  int64_t down = i / across, along = i % across;
  tsr_fp8_tile t;
  t.rows = tsr_fp8_run(l->unit_rows, down, &t.row);
  t.cols = tsr_fp8_run(l->unit_cols, along, &t.col);
  t.scale = (l->block_rows == 1 ? t.row : down) * tsr_fp8_scale_cols(l) +
            (l->block_cols == 1 ? t.col : along);
  return t;
}

#endif
