// SPDX-License-Identifier: Apache-2.0
/* The launch geometry of the GPU's kernels, from the sizes of a call: blocks, threads and shared
 * memory. Launchers have no other (TSR_LAUNCH of launch.cuh takes such a shape), and `trace --emit
 * tile-ir` prints it (device/cuda/launch_recorder.c), so what is printed is what runs. C and C++;
 * no toolkit. attention_shape.h has that of attention. */
#ifndef TSR_KERNELS_CUDA_LAUNCH_SHAPE_H
#define TSR_KERNELS_CUDA_LAUNCH_SHAPE_H
#include "kernels/cuda/kernels.h"

/* A function whose value may be a constant of a kernel. */
#ifdef __cplusplus
#define LAUNCH_CONSTANT static constexpr
#else
#define LAUNCH_CONSTANT static inline
#endif

enum { TSR_WARP = 32, TSR_MAP_THREADS = 256, TSR_MAP_BLOCKS = 1 << 16 };

typedef struct {
  unsigned grid[3], block[3];
  int64_t shared_bytes; /* dynamic */
} tsr_launch_shape;

static inline tsr_launch_shape launch_blocks(int64_t blocks, int64_t threads) {
  tsr_launch_shape s = {{(unsigned)blocks, 1, 1}, {(unsigned)threads, 1, 1}, 0};
  return s;
}

static inline int64_t launch_pieces(int64_t items, int64_t in_piece) {
  return (items + in_piece - 1) / in_piece;
}

/* Whether packs of `bytes` (at most 16) can be read there; NULL is no hindrance. */
static inline bool is_aligned(const void *p, int bytes) {
  return (uintptr_t)p % (unsigned)(bytes < 16 ? bytes : 16) == 0;
}

/* ---- maps: items, one a thread; a kernel strides by the number of all threads ---- */

static inline tsr_launch_shape launch_map(int64_t items) {
  int64_t blocks = launch_pieces(items, TSR_MAP_THREADS);
  const int64_t most = TSR_MAP_BLOCKS;
  return launch_blocks(blocks < most ? blocks : most, TSR_MAP_THREADS);
}

/* Neighbours that a thread reads at once: 16 bytes. */
static inline int64_t launch_pack(tsr_cuda_type type) { return type == TSR_CUDA_F32 ? 4 : 8; }

static inline tsr_launch_shape launch_elements(int64_t n, tsr_cuda_type type) {
  return launch_map(launch_pieces(n, launch_pack(type)));
}

enum {
  LAUNCH_CAST_WIDTH = 8,
  LAUNCH_DROPOUT_WIDTH = 4,
  LAUNCH_NF4_WIDTH = 8,
  LAUNCH_HASH_WIDTH = 32
}; /* elements of a thread */

static inline tsr_launch_shape launch_cast(int64_t n) {
  return launch_map(launch_pieces(n, LAUNCH_CAST_WIDTH));
}
static inline tsr_launch_shape launch_nf4(int64_t n) {
  return launch_map(launch_pieces(n, LAUNCH_NF4_WIDTH));
}
static inline tsr_launch_shape launch_hash(int64_t n) {
  return launch_map(launch_pieces(n, LAUNCH_HASH_WIDTH));
}
static inline tsr_launch_shape launch_dropout(int64_t n) {
  return launch_map(launch_pieces(n, LAUNCH_DROPOUT_WIDTH));
}

/* Rotary positions of B*T*H heads: where it is packed a thread has a pack of pairs. */
static inline bool
launch_rope_is_packed(const tsr_rope *r, const void *y, const void *x, const void *table) {
  return r->rotary / 2 % 8 == 0 && r->D % 8 == 0 && r->offset % 8 == 0 && is_aligned(y, 16) &&
         is_aligned(x, 16) && is_aligned(table, 16);
}
/* Elements of a head that are copied. */
static inline int64_t launch_rope_kept(const tsr_rope *r, bool in_place) {
  return in_place ? 0 : r->D - r->rotary;
}
static inline int64_t launch_rope_width(tsr_cuda_type type, bool packed) {
  return packed ? launch_pack(type) : 1;
}
static inline tsr_launch_shape
launch_rope(int64_t heads, const tsr_rope *r, tsr_cuda_type type, bool packed, bool in_place) {
  int64_t packs = r->rotary / 2 / launch_rope_width(type, packed);
  return launch_map(heads * (packs + launch_rope_kept(r, in_place)));
}

/* ---- a block a row ---- */

/* Threads for a row of C elements: about 8 of them a thread. */
static inline int64_t launch_row_threads(int64_t C) {
  int64_t threads = TSR_WARP;
  while (threads < 512 && threads * 8 < C) threads *= 2;
  return threads;
}
static inline tsr_launch_shape launch_rows(int64_t R, int64_t C) {
  return launch_blocks(R, launch_row_threads(C));
}

/* ---- rows of norms and softmax: short ones are a warp's, several in a block ---- */

enum { LAUNCH_WARP_ROW = 1024, LAUNCH_WARP_ROWS = 8 };

static inline tsr_launch_shape launch_norm_rows(int64_t R, int64_t C) {
  if (C > LAUNCH_WARP_ROW) return launch_rows(R, C);
  tsr_launch_shape s = launch_blocks(launch_pieces(R, LAUNCH_WARP_ROWS), TSR_WARP);
  s.block[1] = LAUNCH_WARP_ROWS;
  return s;
}

/* ---- sums over rows: a block has one run of TSR_CUDA_ROWS rows and one tile of columns, of which
 * a thread has a pack; then the tree over the runs, 32 columns a block ---- */

enum { LAUNCH_TILE_THREADS = 32, LAUNCH_RUN_THREADS = 32 };

static inline int64_t launch_runs(int64_t rows) { return launch_pieces(rows, TSR_CUDA_ROWS); }
static inline int64_t launch_column_tiles(int64_t C, tsr_cuda_type type) {
  return launch_pieces(C, launch_pack(type) * LAUNCH_TILE_THREADS);
}
static inline tsr_launch_shape launch_sum_runs(int64_t rows, int64_t C, tsr_cuda_type type) {
  return launch_blocks(launch_column_tiles(C, type) * launch_runs(rows), LAUNCH_TILE_THREADS);
}
static inline tsr_launch_shape launch_add_runs(int64_t rows, int64_t C) {
  int64_t runs = launch_runs(rows);
  tsr_launch_shape s = launch_blocks(launch_pieces(C, TSR_WARP), TSR_WARP);
  s.block[1] = runs <= 2 ? 1 : runs <= 16 ? 8 : LAUNCH_RUN_THREADS;
  return s;
}

/* ---- sums to one number: a warp a block of TSR_SUM_BLOCK elements; then the tree ---- */

enum {
  LAUNCH_SUM_THREADS = 128,
  LAUNCH_SUM_WARPS = LAUNCH_SUM_THREADS / TSR_WARP,
  LAUNCH_BLOCK_SUMS = 4096 /* that the tree adds in shared memory */
};

static inline int64_t launch_sum_blocks(int64_t n) { return launch_pieces(n, TSR_SUM_BLOCK); }
static inline tsr_launch_shape launch_sum_elements(int64_t n) {
  return launch_blocks(launch_pieces(launch_sum_blocks(n), LAUNCH_SUM_WARPS), LAUNCH_SUM_THREADS);
}
static inline tsr_launch_shape launch_add_blocks(int64_t n) {
  int64_t blocks = launch_sum_blocks(n);
  return launch_blocks(1, blocks <= 64 ? TSR_WARP : blocks <= 512 ? 256 : 1024);
}

/* ---- an embedding's gradient: one block scans the tokens' counts; then a block a token ---- */

enum { LAUNCH_SCAN_THREADS = 1024 };

static inline tsr_launch_shape launch_scan(void) { return launch_blocks(1, LAUNCH_SCAN_THREADS); }
static inline tsr_launch_shape launch_tokens(int64_t V, int64_t C) {
  return launch_blocks(V, C <= 64 ? TSR_WARP : C <= 512 ? 128 : 256);
}

/* ---- updates: many weights in one launch, whose blocks have pieces of them in turn ---- */

enum { LAUNCH_UPDATE_PIECE = 32 * TSR_MAP_THREADS }; /* elements of a block */

/* Weights of a launch: a kernel has 4 KiB of parameters. */
LAUNCH_CONSTANT int launch_weights_max(bool rounded) {
  return rounded ? TSR_CUDA_WEIGHTS / 3 : TSR_CUDA_WEIGHTS;
}
static inline int64_t launch_update_blocks(int64_t n) {
  return launch_pieces(n, LAUNCH_UPDATE_PIECE);
}
static inline tsr_launch_shape launch_updates(int64_t blocks) {
  return launch_blocks(blocks, TSR_MAP_THREADS);
}

/* ---- the gradients' norm: of each gradient a warp has a block of TSR_SUM_BLOCK elements of a
 * rectangle; then a block of threads a rectangle, where they have several ---- */

static inline int64_t launch_norm_room(const tsr_norm_grid *g) {
  int64_t blocks = launch_sum_blocks(tsr_norm_grid_most(g));
  return blocks > 1 ? blocks : 1;
}
static inline int64_t launch_norm_sums(const tsr_norm_grid *g) {
  return (int64_t)g->units * g->pieces * launch_norm_room(g);
}
static inline int64_t launch_norm_blocks(const tsr_norm_grid *g) {
  return launch_pieces(launch_norm_sums(g), LAUNCH_SUM_WARPS);
}
static inline int64_t launch_norm_adds(const tsr_norm_grid *g) {
  return launch_norm_room(g) > 1 ? (int64_t)g->units * g->pieces : 0;
}
static inline tsr_launch_shape
launch_rectangle_squares(const tsr_cuda_gradient *gradients, int count) {
  int64_t blocks = 0;
  for (int i = 0; i < count; i++) blocks += launch_norm_blocks(&gradients[i].grid);
  return launch_blocks(blocks, LAUNCH_SUM_THREADS);
}
/* No blocks: there is nothing to add. */
static inline tsr_launch_shape launch_add_squares(const tsr_cuda_gradient *gradients, int count) {
  int64_t blocks = 0, most = 0;
  for (int i = 0; i < count; i++) {
    int64_t elements = tsr_norm_grid_most(&gradients[i].grid);
    blocks += launch_norm_adds(&gradients[i].grid);
    most = elements > most ? elements : most;
  }
  return launch_blocks(blocks, launch_add_blocks(most).block[0]);
}

/* The norm, by one block: a thread has a column. */
enum { LAUNCH_CLIP_THREADS = 256 };
static inline tsr_launch_shape launch_clip(void) { return launch_blocks(1, LAUNCH_CLIP_THREADS); }

#endif
