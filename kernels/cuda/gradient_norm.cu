// SPDX-License-Identifier: Apache-2.0
/* The norm of the gradients, and the factor that clips them (PyTorch's clip_grad_norm_). A launch
 * has as many gradients as the 4 KiB of a kernel's parameters describe, as PyTorch's multi-tensor
 * apply. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/summation.cuh"
#include <assert.h>

/* ---- sums of squares ---- */

/* A kernel's parameter. A gradient's rectangles have room for the same number of sums each. */
struct gradient_batch {
  int count;
  unsigned first[TSR_CUDA_GRADIENTS]; /* block of each */
  int room[TSR_CUDA_GRADIENTS];       /* sums of a rectangle: where it is one, it is the result */
  double *sums[TSR_CUDA_GRADIENTS];   /* (rectangles, room) */
  tsr_cuda_gradient of[TSR_CUDA_GRADIENTS];
};
static_assert(sizeof(gradient_batch) <= 4096, "it is a kernel's parameter");

/* The gradient that a block has a part of. */
static __device__ inline int gradient_here(const gradient_batch &b) {
  int at = b.count - 1;
  while (b.first[at] > blockIdx.x) at--;
  return at;
}

static __device__ inline tsr_rectangle rectangle_at(const tsr_norm_grid &g, int64_t index) {
  return tsr_norm_grid_rectangle(&g, index / g.pieces, index % g.pieces);
}

/* A warp has TSR_SUM_BLOCK elements of a rectangle. */
static __global__ void rectangle_squares(const __grid_constant__ gradient_batch b) {
  const int at = gradient_here(b), room = b.room[at];
  const tsr_cuda_gradient &u = b.of[at];
  int64_t item = (int64_t)(blockIdx.x - b.first[at]) * LAUNCH_SUM_WARPS + threadIdx.x / TSR_WARP;
  if (item >= (int64_t)u.grid.units * u.grid.pieces * room) return;
  tsr_rectangle r = rectangle_at(u.grid, item / room);
  double sum = block_elements<true>(u.x + r.start, item % room, r.rows, r.cols, r.stride);
  if (threadIdx.x % TSR_WARP) return;
  if (room == 1) u.out[item] = (float)sum;
  else b.sums[at][item] = sum;
}

/* A block has a rectangle with several sums, or none. */
static __global__ void add_squares(const __grid_constant__ gradient_batch b) {
  const int at = gradient_here(b);
  const tsr_cuda_gradient &u = b.of[at];
  int64_t item = blockIdx.x - b.first[at];
  tsr_rectangle r = rectangle_at(u.grid, item);
  int64_t blocks = (r.rows * r.cols + TSR_SUM_BLOCK - 1) / TSR_SUM_BLOCK;
  if (blocks) add_block_sums(u.out + item, b.sums[at] + item * b.room[at], blocks);
  else if (threadIdx.x == 0) u.out[item] = 0;
}

/* Gradients whose rectangles have several sums each, or all. */
static gradient_batch
batch_of(const tsr_cuda_gradient *gradients, int count, double *sums, bool several) {
  gradient_batch b;
  int64_t blocks = b.count = 0;
  for (int i = 0; i < count; i++) {
    const tsr_norm_grid *g = &gradients[i].grid;
    double *own = sums;
    int64_t room = launch_norm_room(g);
    if (room > 1) sums += launch_norm_sums(g);
    if (several && room == 1) continue;
    b.first[b.count] = (unsigned)blocks;
    b.room[b.count] = (int)room;
    b.sums[b.count] = own;
    b.of[b.count++] = gradients[i];
    blocks += several ? launch_norm_adds(g) : launch_norm_blocks(g);
  }
  return b;
}

extern "C" void tsr_cuda_gradient_squares(
    tsr_cuda_stream s, const tsr_cuda_gradient *gradients, int count, void *scratch) {
  double *sums = (double *)scratch;
  assert(count <= TSR_CUDA_GRADIENTS);
  tsr_launch_shape add = launch_add_squares(gradients, count);
  if (count)
    TSR_LAUNCH(
        rectangle_squares, launch_rectangle_squares(gradients, count), s,
        batch_of(gradients, count, sums, false));
  if (add.grid[0]) TSR_LAUNCH(add_squares, add, s, batch_of(gradients, count, sums, true));
}

/* ---- the gradients' sums side by side ---- */

struct column_batch {
  tsr_cuda_column of[TSR_CUDA_COLUMNS];
};
static_assert(sizeof(column_batch) <= 4032, "it is a kernel's parameter");

static __global__ void join_columns(
    float *out, const __grid_constant__ column_batch b, int count, int64_t units, int64_t rows,
    int64_t n) {
  for (int64_t i = map_thread(); i < units * rows * count; i += map_threads()) {
    const tsr_cuda_column &c = b.of[i % count];
    int64_t row = i / count, unit = row / rows, piece = row % rows;
    out[row * n + i % count] = piece < c.pieces ? c.x[unit * c.pieces + piece] : 0;
  }
}

extern "C" void tsr_cuda_join_columns(
    tsr_cuda_stream s, float *out, const tsr_cuda_column *columns, int count, int64_t units,
    int64_t rows, int64_t n) {
  column_batch b;
  assert(count <= TSR_CUDA_COLUMNS);
  for (int i = 0; i < count; i++) b.of[i] = columns[i];
  if (units * rows * count > 0)
    TSR_LAUNCH(join_columns, launch_map(units * rows * count), s, out, b, count, units, rows, n);
}

/* ---- the norm: a thread has a column, whose pieces it adds by the tree; the columns are added one
 * after the other ---- */

static __global__ void clip_factor(
    float *clip, const float *stats, int64_t pieces, int64_t n, float max_norm,
    const float *loss_scale) {
  __shared__ double columns[LAUNCH_CLIP_THREADS];
  double stack[TSR_TREE_DEPTH_MAX], sum = 0;
  for (int64_t first = 0; first < n; first += LAUNCH_CLIP_THREADS) {
    int64_t c = first + threadIdx.x;
    tsr_tree_stack tree = {};
    for (int64_t i = 0; c < n && i < pieces; i++) {
      stack[tsr_tree_push(&tree, tsr_tree_merges(pieces, i))] = (double)stats[i * n + c];
      for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
    }
    columns[threadIdx.x] = tree.entries ? stack[0] : 0;
    __syncthreads();
    for (int i = 0; threadIdx.x == 0 && i < LAUNCH_CLIP_THREADS && first + i < n; i++)
      sum += columns[i];
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  double scale = loss_scale ? (double)*loss_scale : 1;
  double norm = sqrt(sum) / scale, factor = max_norm > 0 ? (double)max_norm / (norm + 1e-6) : 1;
  clip[0] = (float)norm;
  clip[1] = (float)((factor < 1 ? factor : 1) / scale);
  clip[2] = !loss_scale || norm < INFINITY ? 1 : 0; /* an overflow is no update */
}

extern "C" void tsr_cuda_clip(
    tsr_cuda_stream s, float *clip, const float *stats, int64_t pieces, int64_t n, float max_norm,
    const float *loss_scale) {
  TSR_LAUNCH(clip_factor, launch_clip(), s, clip, stats, pieces, n, max_norm, loss_scale);
}
