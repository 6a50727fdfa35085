// SPDX-License-Identifier: Apache-2.0
/* How codes of FP8 (base/fp8_layout.h) lie in a GPU's memory, and the launch geometry of the
 * kernels that write and multiply them (launch_shape.h).
 *
 * The tensor cores read neighbours in K, whatever dimension of the operand the GEMM sums over:
 * codes of an operand whose rows are summed are transposed. In a row of codes a unit of K begins at
 * a multiple of 16 bytes; behind a unit there are zeros. Scales lie as on the CPU.
 *
 * Of rows of experts that are summed, a run of the plan's is a unit of its own size. Runs follow
 * one another, so that room for one more piece each is enough: none needs to know the sizes of
 * those before it. */
#ifndef TSR_KERNELS_CUDA_FP8_SHAPE_H
#define TSR_KERNELS_CUDA_FP8_SHAPE_H
#include "base/fp8_layout.h"
#include "kernels/cuda/launch_shape.h"

enum { FP8_FETCH = 16 }; /* codes that are fetched at once */

/* Bytes of a unit of K in a row of codes. */
TSR_FP8_FUNCTION int64_t tsr_cuda_fp8_unit(int64_t unit) {
  return (unit + FP8_FETCH - 1) / FP8_FETCH * FP8_FETCH;
}
/* Bytes of a row of codes. */
TSR_FP8_FUNCTION int64_t tsr_cuda_fp8_stride(const tsr_fp8_layout *l, bool sums_rows) {
  int64_t size = sums_rows ? l->rows : l->cols, unit = sums_rows ? l->unit_rows : l->unit_cols;
  return size / unit * tsr_cuda_fp8_unit(unit);
}

/* Where run r, which begins at row `first`, begins in a row of codes, and in blocks. */
TSR_FP8_FUNCTION int64_t tsr_cuda_fp8_run_codes(int64_t first, int64_t r) {
  return (first / FP8_FETCH + r) * FP8_FETCH;
}
TSR_FP8_FUNCTION int64_t tsr_cuda_fp8_run_block(int64_t first, int64_t r) {
  return first / TSR_FP8_BLOCK + r;
}

/* Whether blocks begin anew in each run. */
TSR_FP8_FUNCTION bool tsr_cuda_fp8_sums_runs(const tsr_cuda_fp8_operand *o) {
  return o->has_runs && o->sums_rows;
}
/* Bytes of a row of an operand's codes, or of each of its matrices'. */
TSR_FP8_FUNCTION int64_t tsr_cuda_fp8_operand_stride(const tsr_cuda_fp8_operand *o) {
  if (tsr_cuda_fp8_sums_runs(o)) return tsr_cuda_fp8_run_codes(o->layout.rows, o->count);
  return tsr_cuda_fp8_stride(&o->layout, o->sums_rows);
}
/* Bytes of its codes, or of one of its matrices'. */
TSR_FP8_FUNCTION int64_t tsr_cuda_fp8_operand_codes(const tsr_cuda_fp8_operand *o) {
  return (o->sums_rows ? o->layout.cols : o->layout.rows) * tsr_cuda_fp8_operand_stride(o);
}
/* How many scales it has, or one of its matrices. */
TSR_FP8_FUNCTION int64_t tsr_cuda_fp8_operand_scales(const tsr_cuda_fp8_operand *o) {
  if (tsr_cuda_fp8_sums_runs(o))
    return tsr_cuda_fp8_run_block(o->layout.rows, o->count) * o->layout.cols;
  return tsr_fp8_scales(&o->layout);
}

/* ---- quantisation: a block has a tile (tsr_fp8_tile), of which each of its warps has
 * FP8_WARP_ROWS rows and a thread FP8_THREAD_COLS columns ---- */

enum { FP8_WARPS = 16, FP8_WARP_ROWS = 8, FP8_THREAD_COLS = 4 };

/* Tiles of an operand; of rows of experts as many as there can be. */
static inline int64_t tsr_cuda_fp8_operand_tiles(const tsr_cuda_fp8_operand *o) {
  if (tsr_cuda_fp8_sums_runs(o))
    return tsr_cuda_fp8_run_block(o->layout.rows, o->count) *
           launch_pieces(o->layout.cols, TSR_FP8_BLOCK);
  return tsr_fp8_tiles(&o->layout) * (o->has_runs ? 1 : o->count);
}
static inline tsr_launch_shape launch_fp8_quantize(const tsr_cuda_fp8_operand *o) {
  return launch_blocks(tsr_cuda_fp8_operand_tiles(o), FP8_WARPS * TSR_WARP);
}

/* ---- the GEMM: a block has a tile of c, and goes over K by blocks of TSR_FP8_BLOCK codes, of
 * which two are in shared memory, with their scales ---- */

enum { FP8_TILE_M = 128, FP8_TILE_N = 64, FP8_GEMM_THREADS = 128, FP8_STAGES = 2 };
/* Rows of a tile in halves, which is how the tensor cores' registers are loaded (mma.cuh). */
enum { FP8_WIDTH = TSR_FP8_BLOCK / 2, FP8_PAD = 8 };

enum { FP8_STAGE_HALVES = (FP8_TILE_M + FP8_TILE_N) * (FP8_WIDTH + FP8_PAD) };

static inline tsr_launch_shape launch_fp8_tiles(int64_t tiles) {
  tsr_launch_shape s = launch_blocks(tiles, FP8_GEMM_THREADS);
  s.shared_bytes = FP8_STAGES * (FP8_STAGE_HALVES * 2 + (FP8_TILE_M + FP8_TILE_N) * 4);
  return s;
}
static inline tsr_launch_shape launch_fp8_gemm(int64_t M, int64_t N) {
  return launch_fp8_tiles(launch_pieces(M, FP8_TILE_M) * launch_pieces(N, FP8_TILE_N));
}

#endif
