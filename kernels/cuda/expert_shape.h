// SPDX-License-Identifier: Apache-2.0
/* The launch geometry of the kernels of a mixture of experts (launch_shape.h). */
#ifndef TSR_KERNELS_CUDA_EXPERT_SHAPE_H
#define TSR_KERNELS_CUDA_EXPERT_SHAPE_H
#include "kernels/cuda/experts.h"
#include "kernels/cuda/fp8_shape.h"
#include "kernels/cuda/launch_shape.h"

/* ---- routing: a warp chooses for a token, and has a key for each group, of many groups in the
 * scratch; a block counts an expert in a run; one block updates what is kept of all experts ---- */

enum {
  EXPERT_CHOICE_WARPS = 4,
  EXPERT_SHARED_GROUPS = 1024, /* whose keys lie in shared memory */
  EXPERT_COUNT_THREADS = 128,
  EXPERT_UPDATE_THREADS = 256
};

static inline tsr_launch_shape launch_choose_experts(int64_t S, int64_t groups) {
  tsr_launch_shape s = launch_blocks(launch_pieces(S, EXPERT_CHOICE_WARPS), TSR_WARP);
  s.block[1] = EXPERT_CHOICE_WARPS;
  if (groups <= EXPERT_SHARED_GROUPS) s.shared_bytes = EXPERT_CHOICE_WARPS * groups * 4;
  return s;
}
static inline tsr_launch_shape launch_expert_counts(const tsr_cuda_expert_counting *of) {
  return launch_blocks(of->runs * of->E, EXPERT_COUNT_THREADS);
}
static inline tsr_launch_shape launch_expert_update(void) {
  return launch_blocks(1, EXPERT_UPDATE_THREADS);
}

/* ---- the plan: a block has a chunk of slots ---- */

enum { EXPERT_CHUNK = 256 };

static inline tsr_launch_shape launch_expert_chunks(int64_t slots) {
  return launch_blocks(launch_pieces(slots, EXPERT_CHUNK), EXPERT_CHUNK);
}

/* ---- rows: a block sums a token's rows, and has four words of each of so many of its choices at
 * once; 16 threads have a row backward ---- */

enum { EXPERT_ROW_LANES = 16, EXPERT_CHOICE_BYTES = 16, EXPERT_CHOICES_AT_ONCE = 1024 };

static inline tsr_launch_shape launch_combine_rows(int64_t S, int64_t k, int64_t C) {
  tsr_launch_shape s = launch_rows(S, C);
  const int64_t most = EXPERT_CHOICES_AT_ONCE;
  s.shared_bytes = (k < most ? k : most) * EXPERT_CHOICE_BYTES;
  return s;
}
/* Each row's threads are there: none of them strides. */
static inline tsr_launch_shape launch_combine_backward(int64_t R) {
  return launch_blocks(launch_pieces(R * EXPERT_ROW_LANES, TSR_MAP_THREADS), TSR_MAP_THREADS);
}

/* ---- GEMMs: a block has a tile of c. In half precision two steps of EXPERT_DEPTH elements of the
 * sum are in shared memory; rows of a tile there are padded as mma.cuh has them ---- */

enum {
  EXPERT_TILE = 128, /* rows and columns */
  EXPERT_DEPTH = 64,
  EXPERT_GEMM_THREADS = 256,
  EXPERT_STAGES = 2,
  EXPERT_PAD = 8,
  EXPERT_OPERAND_HALVES =
      EXPERT_TILE * (EXPERT_DEPTH + EXPERT_PAD), /* the larger of both layouts */
  EXPERT_SIMT_TILE = 64,
  EXPERT_SIMT_DEPTH = 16
};

static inline int64_t expert_tile_rows(tsr_cuda_type type) {
  return type == TSR_CUDA_F32 ? EXPERT_SIMT_TILE : EXPERT_TILE;
}
/* FORWARD, DX: of rows as many as there can be, the last ones of each expert in a tile of their
 * own. */
static inline int64_t expert_row_tiles(const tsr_cuda_expert_gemm *p, int64_t tile) {
  if (p->form == TSR_CUDA_EXPERT_DW) return p->count * launch_pieces(p->M, tile);
  int64_t whole = p->R / tile, parts = p->R < p->count ? p->R : p->count;
  return whole + parts;
}
static inline tsr_launch_shape
launch_expert_gemm(tsr_cuda_type type, const tsr_cuda_expert_gemm *p) {
  int64_t tile = expert_tile_rows(type);
  tsr_launch_shape s =
      launch_blocks(expert_row_tiles(p, tile) * launch_pieces(p->N, tile), EXPERT_GEMM_THREADS);
  if (type != TSR_CUDA_F32) s.shared_bytes = EXPERT_STAGES * 2 * EXPERT_OPERAND_HALVES * 2;
  return s;
}
/* In FP8 tiles are those of fp8_shape.h. */
static inline tsr_launch_shape launch_expert_fp8_gemm(const tsr_cuda_expert_gemm *p) {
  int64_t tiles = expert_row_tiles(p, FP8_TILE_M) * launch_pieces(p->N, FP8_TILE_N);
  return launch_fp8_tiles(tiles);
}

#endif
