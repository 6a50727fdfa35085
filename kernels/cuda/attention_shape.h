// SPDX-License-Identifier: Apache-2.0
/* The tiles of attention's passes and their launch geometry (launch_shape.h). A block has a tile of
 * queries, or for dk and dv of keys, and goes over tiles of the other; heads are padded to a width
 * that a pass is compiled for. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_SHAPE_H
#define TSR_KERNELS_CUDA_ATTENTION_SHAPE_H
#include "kernels/cuda/launch_shape.h"

enum { ATTENTION_RUN = 16 }; /* keys of a word of the mask */

/* ---- without tensor cores (attention_simt_passes.cuh): 16 x 16 threads; tiles lie in f32 in
 * shared memory ---- */

enum { SIMT_THREADS = 256, SIMT_SIDE = 16, SIMT_PAD = 4 };

/* Of all heads, the wider of those of queries and those of values. */
static inline int simt_width(const tsr_attention *a) {
  int64_t Dv = tsr_attention_value_size(a), D = a->D > Dv ? a->D : Dv;
  return D <= 64 ? 64 : D <= 128 ? 128 : 256;
}

/* Queries, and keys, of the forward pass. */
LAUNCH_CONSTANT int simt_forward_rows(int W) { return W > 128 ? 32 : 64; }
LAUNCH_CONSTANT int simt_forward_floats(int W) {
  return 2 * simt_forward_rows(W) * (W + SIMT_PAD) +
         simt_forward_rows(W) * (simt_forward_rows(W) + SIMT_PAD);
}
LAUNCH_CONSTANT int simt_mask_bytes(int queries, int keys) {
  return queries * (keys / ATTENTION_RUN) * 2;
}
LAUNCH_CONSTANT int simt_forward_bytes(int W) {
  return simt_forward_floats(W) * 4 + simt_mask_bytes(simt_forward_rows(W), simt_forward_rows(W));
}

LAUNCH_CONSTANT int simt_backward_queries(int W) { return W > 64 ? 32 : 64; }
LAUNCH_CONSTANT int simt_backward_keys(int W) { return W > 128 ? 32 : 64; }
/* With `matrices` of (queries, keys): dS of dq, and P too of dk and dv. */
LAUNCH_CONSTANT int simt_backward_floats(int W, int matrices) {
  return 2 * (simt_backward_queries(W) + simt_backward_keys(W)) * (W + SIMT_PAD) +
         3 * simt_backward_queries(W) +
         matrices * simt_backward_queries(W) * (simt_backward_keys(W) + SIMT_PAD);
}
LAUNCH_CONSTANT int simt_backward_bytes(int W, int matrices) {
  return simt_backward_floats(W, matrices) * 4 +
         simt_mask_bytes(simt_backward_queries(W), simt_backward_keys(W));
}

/* ---- with tensor cores (attention_tensor_passes.cuh): 4 warps; tiles in half precision ---- */

enum { TENSOR_PAD = 8, TENSOR_LANES = 32, TENSOR_HALVES = 8 }; /* halves of 16 bytes */
enum { TENSOR_WARPS = 4, TENSOR_THREADS = TENSOR_WARPS * TENSOR_LANES };
enum { TENSOR_WIDTH_MAX = 256, TENSOR_LATENT_WIDTH = 192, TENSOR_LATENT_VALUES = 128 };

/* Halves whose heads are at most 256 wide, a multiple of 8, in aligned arrays, with a positive
 * scale. */
static inline bool attention_tensor_can(
    tsr_cuda_type type, const tsr_attention *a, const void *const *arrays, int count) {
  int64_t Dv = tsr_attention_value_size(a);
  if (type == TSR_CUDA_F32 || a->D % TENSOR_HALVES || Dv % TENSOR_HALVES) return false;
  if (a->D > TENSOR_WIDTH_MAX || Dv > TENSOR_WIDTH_MAX || !(a->scale > 0)) return false;
  for (int i = 0; i < count; i++)
    if (!is_aligned(arrays[i], 16)) return false;
  return true;
}

/* The same over units: of heads of 192 and values of 128 (as DeepSeek-V2's) the sums of two parts
 * at once do not fit into registers. */
static inline bool attention_ring_tensor_can(
    tsr_cuda_type type, const tsr_attention *a, const void *const *arrays, int count) {
  return attention_tensor_can(type, a, arrays, count) && tsr_attention_value_size(a) == a->D;
}

/* W of queries and keys, and V of values, out and dout. Heads whose values have another width are
 * padded to 192 and 128, or both to 256. */
static inline int tensor_width(const tsr_attention *a) {
  int64_t D = a->D, Dv = tsr_attention_value_size(a);
  if (D > TENSOR_LATENT_WIDTH || Dv > TENSOR_LATENT_VALUES) return TENSOR_WIDTH_MAX;
  if (D != Dv) return TENSOR_LATENT_WIDTH;
  return D <= 64 ? 64 : D <= 80 ? 80 : D <= 96 ? 96 : 128;
}
LAUNCH_CONSTANT int tensor_value_width(int W) {
  return W == TENSOR_LATENT_WIDTH ? TENSOR_LATENT_VALUES : W;
}
/* Halves of a row of keys and of one of values. */
LAUNCH_CONSTANT int tensor_row_halves(int W) {
  return W + TENSOR_PAD + tensor_value_width(W) + TENSOR_PAD;
}
/* Of the tiles that come two lie in shared memory, of which one is fetched while the other is
 * computed with. Of the widest heads there is one: one of its two matrices is fetched while the
 * other is computed with. A block has 99 KiB at most then, which every device of sm_80 and later
 * has. */
LAUNCH_CONSTANT int tensor_tiles(int W) { return W > TENSOR_LATENT_WIDTH ? 1 : 2; }

/* Runs of 16 queries of a warp, forward, and rows of the tile that comes. */
LAUNCH_CONSTANT int tensor_forward_runs(int W) { return W > 64 ? 1 : 2; }
LAUNCH_CONSTANT int tensor_forward_queries(int W) {
  return 16 * tensor_forward_runs(W) * TENSOR_WARPS;
}
LAUNCH_CONSTANT int tensor_forward_keys(int W) { return W > TENSOR_LATENT_WIDTH ? 32 : 64; }
LAUNCH_CONSTANT int tensor_forward_halves(int W) {
  return tensor_forward_queries(W) * (W + TENSOR_PAD) +
         tensor_tiles(W) * tensor_forward_keys(W) * tensor_row_halves(W);
}
LAUNCH_CONSTANT int tensor_forward_bytes(int W) {
  int mask = tensor_forward_queries(W) * (tensor_forward_keys(W) / ATTENTION_RUN);
  return (tensor_forward_halves(W) + mask) * 2;
}
/* Runs of 16 rows of a warp, backward, and rows of the tile that comes. */
LAUNCH_CONSTANT int tensor_backward_runs(int W) { return W > 64 ? 1 : 2; }
LAUNCH_CONSTANT int tensor_backward_own(int W) {
  return 16 * tensor_backward_runs(W) * TENSOR_WARPS;
}
LAUNCH_CONSTANT int tensor_backward_others(int W) { return W > TENSOR_LATENT_WIDTH ? 16 : 32; }
LAUNCH_CONSTANT int tensor_backward_rows(int W) { return 2 * tensor_backward_own(W); }
LAUNCH_CONSTANT int tensor_backward_halves(int W) {
  return (tensor_backward_own(W) + tensor_tiles(W) * tensor_backward_others(W)) *
         tensor_row_halves(W);
}
LAUNCH_CONSTANT int tensor_backward_bytes(int W) {
  return tensor_backward_halves(W) * 2 + 2 * tensor_backward_rows(W) * 4 +
         tensor_backward_own(W) * tensor_backward_others(W) / ATTENTION_RUN * 2;
}
/* Passes over the queries for dk and dv: the widest heads' sums of both do not fit into registers
 * at once. */
LAUNCH_CONSTANT int tensor_dkv_passes(int W) { return W > TENSOR_LATENT_WIDTH ? 2 : 1; }

/* ---- forward with wgmma (attention_wgmma.cu): one warpgroup copies tiles, the others have 64
 * queries each; heads of 64 and 128 ---- */

enum { WGMMA_CONSUMERS = 2, WGMMA_QUERIES = 64 * WGMMA_CONSUMERS, WGMMA_KEYS = 128 };
enum { WGMMA_BLOCK_THREADS = 128 * (1 + WGMMA_CONSUMERS) };
enum { WGMMA_STAGES = 2, WGMMA_BARRIERS = 2 + 4 * WGMMA_STAGES };
/* Of halves: queries, and of each stage keys and values. Barriers lie behind, and tiles begin at a
 * multiple of 1024 bytes. */
LAUNCH_CONSTANT int wgmma_tile_bytes(int W) {
  return (WGMMA_QUERIES + 2 * WGMMA_STAGES * WGMMA_KEYS) * W * 2;
}
LAUNCH_CONSTANT int wgmma_bytes(int W) { return 1024 + wgmma_tile_bytes(W) + WGMMA_BARRIERS * 8; }

/* ---- backward with wgmma (attention_wgmma_backward.cu): a block keeps WGMMA_OWN rows of two
 * matrices, and WGMMA_OTHERS of the other two come at once ---- */

enum { WGMMA_OWN = 64 * WGMMA_CONSUMERS, WGMMA_OTHERS = 64 };
enum { WGMMA_BACKWARD_BARRIERS = 2 + 2 * WGMMA_STAGES };
/* Statistics, two floats each, of the queries that the block keeps, or of those of all stages. */
enum { WGMMA_ROWS_BYTES = 2 * 4 * WGMMA_STAGES * WGMMA_OTHERS };
LAUNCH_CONSTANT int wgmma_backward_tile_bytes(int W) {
  return 2 * (WGMMA_OWN + WGMMA_STAGES * WGMMA_OTHERS) * W * 2;
}
LAUNCH_CONSTANT int wgmma_backward_bytes(int W) {
  return WGMMA_ROWS_BYTES + 1024 + wgmma_backward_tile_bytes(W) + WGMMA_BACKWARD_BARRIERS * 8;
}

/* What the kernels with wgmma compute of what attention_tensor_can: by the recipe's shapes alone,
 * with strides that a tensor map has, and positions that the backward pass counts in int. */
static inline bool attention_wgmma_can(
    tsr_cuda_type type, const tsr_attention *a, const void *const *arrays, int count) {
  int64_t rows = a->T > tsr_attention_own(a) ? a->T : tsr_attention_own(a);
  if (!attention_tensor_can(type, a, arrays, count) || a->dropout != 0) return false;
  if ((a->D != 64 && a->D != 128) || tsr_attention_value_size(a) != a->D) return false;
  return rows < 1 << 29 && a->B < INT32_MAX && rows * a->H * a->D < (int64_t)1 << 38;
}

/* ---- a pass ---- */

typedef struct {
  int own, others, width; /* rows of a block's tile and of those that come, and their columns */
  int threads;
  int64_t shared_bytes;
} attention_tile;

static inline attention_tile simt_tile(tsr_attention_sum pass, int W) {
  int queries = simt_backward_queries(W), keys = simt_backward_keys(W), rows = simt_forward_rows(W);
  attention_tile out = {rows, rows, W, SIMT_THREADS, simt_forward_bytes(W)};
  attention_tile dq = {queries, keys, W, SIMT_THREADS, simt_backward_bytes(W, 1)};
  attention_tile dkv = {keys, queries, W, SIMT_THREADS, simt_backward_bytes(W, 2)};
  return pass == TSR_ATTENTION_OUT ? out : pass == TSR_ATTENTION_DQ ? dq : dkv;
}

static inline attention_tile tensor_tile(tsr_attention_sum pass, int W) {
  attention_tile out = {
      tensor_forward_queries(W), tensor_forward_keys(W), W, TENSOR_THREADS,
      tensor_forward_bytes(W)};
  attention_tile backward = {
      tensor_backward_own(W), tensor_backward_others(W), W, TENSOR_THREADS,
      tensor_backward_bytes(W)};
  return pass == TSR_ATTENTION_OUT ? out : backward;
}

static inline attention_tile wgmma_tile(int W) {
  attention_tile out = {WGMMA_QUERIES, WGMMA_KEYS, W, WGMMA_BLOCK_THREADS, wgmma_bytes(W)};
  return out;
}

static inline attention_tile wgmma_backward_tile(int W) {
  attention_tile tile = {WGMMA_OWN, WGMMA_OTHERS, W, WGMMA_BLOCK_THREADS, wgmma_backward_bytes(W)};
  return tile;
}

/* A block a tile of each line; lines are (b,h), or of tiles of keys (b,g). */
static inline tsr_launch_shape
launch_attention(const attention_tile *tile, int64_t T, int64_t lines) {
  tsr_launch_shape s = launch_blocks(launch_pieces(T, tile->own) * lines, tile->threads);
  s.shared_bytes = tile->shared_bytes;
  return s;
}

/* dout . out of rows of (B,H,T): neighbouring lanes a row. */
enum { ATTENTION_DELTA_THREADS = 256, ATTENTION_ROW_LANES = 8 };
static inline tsr_launch_shape launch_attention_rows(int64_t rows) {
  return launch_blocks(
      launch_pieces(rows, ATTENTION_DELTA_THREADS / ATTENTION_ROW_LANES), ATTENTION_DELTA_THREADS);
}

/* ---- new tokens to a cache (attention_cached.cu): a block has one token and up to 4 heads of one
 * group; CACHED_WARPS warps take splits of CACHED_SPLIT keys in turn ---- */

enum { CACHED_WARPS = 8, CACHED_SPLIT = 64, CACHED_WIDTH = 256 };

static inline int cached_heads_of(const tsr_attention *a) {
  int64_t heads = a->H / a->G;
  return heads == 1 ? 1 : heads == 2 ? 2 : 4;
}
/* A head's queries, and of each warp its scores, a maximum, a sum and the weighted values. */
LAUNCH_CONSTANT int cached_shared_bytes(int heads) {
  return 4 * heads * (CACHED_WIDTH + CACHED_WARPS * (CACHED_SPLIT + 2 + CACHED_WIDTH));
}
static inline tsr_launch_shape launch_attention_cached(const tsr_attention *a) {
  int heads = cached_heads_of(a);
  int64_t chunks = launch_pieces(a->H / a->G, heads);
  tsr_launch_shape s = launch_blocks(a->B * a->T * a->G * chunks, CACHED_WARPS * TSR_WARP);
  s.shared_bytes = cached_shared_bytes(heads);
  return s;
}

#endif
