// SPDX-License-Identifier: Apache-2.0
/* How codes of FP8 (base/fp8_layout.h) lie in a GPU's memory, and the launch geometry of the
 * kernels that write and multiply them (launch_shape.h).
 *
 * The tensor cores read neighbours in K, whatever dimension of the operand the GEMM sums over:
 * codes of an operand whose rows are summed are transposed. In a row of codes a unit of K begins at
 * a multiple of 16 bytes; behind a unit there are zeros. Scales lie as on the CPU. */
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
static inline int64_t tsr_cuda_fp8_bytes(const tsr_fp8_layout *l, bool sums_rows) {
  return (sums_rows ? l->cols : l->rows) * tsr_cuda_fp8_stride(l, sums_rows);
}

/* ---- quantisation: a block has a tile (tsr_fp8_tile), of which each of its warps has
 * FP8_WARP_ROWS rows and a thread FP8_THREAD_COLS columns ---- */

enum { FP8_WARPS = 16, FP8_WARP_ROWS = 8, FP8_THREAD_COLS = 4 };

static inline tsr_launch_shape launch_fp8_quantize(const tsr_fp8_layout *l) {
  return launch_blocks(tsr_fp8_tiles(l), FP8_WARPS * TSR_WARP);
}

/* ---- the GEMM: a block has a tile of c, and goes over K by blocks of TSR_FP8_BLOCK codes, of
 * which two are in shared memory, with their scales ---- */

enum { FP8_TILE_M = 128, FP8_TILE_N = 64, FP8_GEMM_THREADS = 128, FP8_STAGES = 2 };
/* Rows of a tile in halves, which is how the tensor cores' registers are loaded (mma.cuh). */
enum { FP8_WIDTH = TSR_FP8_BLOCK / 2, FP8_PAD = 8 };

enum { FP8_STAGE_HALVES = (FP8_TILE_M + FP8_TILE_N) * (FP8_WIDTH + FP8_PAD) };

static inline tsr_launch_shape launch_fp8_gemm(int64_t M, int64_t N) {
  tsr_launch_shape s =
      launch_blocks(launch_pieces(M, FP8_TILE_M) * launch_pieces(N, FP8_TILE_N), FP8_GEMM_THREADS);
  s.shared_bytes = FP8_STAGES * (FP8_STAGE_HALVES * 2 + (FP8_TILE_M + FP8_TILE_N) * 4);
  return s;
}

#endif
