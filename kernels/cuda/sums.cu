// SPDX-License-Identifier: Apache-2.0
/* Sums over rows, over heads and to one number, whose parts base/reduction_tree.h's tree adds. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/summation.cuh"

/* What is summed: rows of x, or of dy * (x - mean) * rstd. */
template <typename T> struct summands {
  const T *x, *dy;
  const float *mean, *rstd;
  int64_t C, first, step, rows;
};

/* A block has one run of rows and one tile of columns. */
template <typename T, bool NORM>
static __global__ void sum_runs(float *sums, summands<T> of, int64_t tiles, bool packed) {
  enum { W = pack_of<T>::width };
  int64_t run = blockIdx.x / tiles, C = of.C;
  int64_t c = (blockIdx.x % tiles * LAUNCH_TILE_THREADS + threadIdx.x) * W;
  int64_t end = (run + 1) * TSR_CUDA_ROWS < of.rows ? (run + 1) * TSR_CUDA_ROWS : of.rows;
  float sum[W], v[W], d[W];
  if (c >= C) return;
  EACH_LANE(k, W) sum[k] = 0;
#pragma unroll 4
  for (int64_t i = run * TSR_CUDA_ROWS; i < end; i++) {
    int64_t row = of.first + i * of.step;
    row_load(v, of.x + row * C, c, C, packed);
    if (NORM) {
      float center = of.mean ? of.mean[row] : 0, factor = of.rstd[row];
      row_load(d, of.dy + row * C, c, C, packed);
      EACH_LANE(k, W) v[k] = d[k] * ((v[k] - center) * factor);
    }
    EACH_LANE(k, W) sum[k] += v[k];
  }
  row_store(sums + run * C, sum, c, C, packed);
}

/* The tree over N neighbours, a power of 2. */
template <int N> static __device__ inline float neighbours_sum(const float *x, int64_t stride) {
  if constexpr (N == 1) return *x;
  else return neighbours_sum<N / 2>(x, stride) + neighbours_sum<N / 2>(x + N / 2 * stride, stride);
}

/* The same where N is not a constant: false where it is none of these. */
static __device__ inline bool
neighbours_sum(float *ret_sum, const float *x, int64_t stride, int64_t N) {
  if (N == 1) *ret_sum = neighbours_sum<1>(x, stride);
  else if (N == 2) *ret_sum = neighbours_sum<2>(x, stride);
  else if (N == 4) *ret_sum = neighbours_sum<4>(x, stride);
  else if (N == 8) *ret_sum = neighbours_sum<8>(x, stride);
  else if (N == 16) *ret_sum = neighbours_sum<16>(x, stride);
  else if (N == 32) *ret_sum = neighbours_sum<32>(x, stride);
  else return false;
  return true;
}

/* The tree over the runs of 32 columns. Where each process can add neighbours that are a whole part
 * of the tree, it does so at once; what is left lies in shared memory. */
static __global__ void add_runs(float *out, float *sums, int64_t runs, int64_t C) {
  __shared__ float near[LAUNCH_RUN_THREADS * TSR_WARP];
  int64_t c = (int64_t)blockIdx.x * TSR_WARP + threadIdx.x, each = runs / blockDim.y;
  bool here = c < C;
  float *column = sums + (here ? c : 0), part;
  if (runs % blockDim.y == 0 && neighbours_sum(&part, column + each * threadIdx.y * C, C, each)) {
    near[threadIdx.y * TSR_WARP + threadIdx.x] = part;
    column = near + threadIdx.x;
    __syncthreads();
    tree_sum(column, (int64_t)blockDim.y, TSR_WARP, (int64_t)threadIdx.y, (int64_t)blockDim.y);
  } else tree_sum(column, runs, C, here ? (int64_t)threadIdx.y : runs, (int64_t)blockDim.y);
  if (here && threadIdx.y == 0) out[c] = column[0];
}

template <typename T, bool NORM>
static void rows_launch(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, void *scratch, const summands<T> &of) {
  int64_t runs = launch_runs(of.rows), tiles = launch_column_tiles(of.C, type);
  if (of.C <= 0) return;
  if (runs <= 0) {
    tsr_cuda_zero(s, out, of.C * (int64_t)sizeof *out);
    return;
  }
  bool packed =
      of.C % 8 == 0 && is_aligned(of.x, 16) && is_aligned(of.dy, 16) && is_aligned(scratch, 16);
  TSR_LAUNCH(
      (sum_runs<T, NORM>), launch_sum_runs(of.rows, of.C, type), s, (float *)scratch, of, tiles,
      packed);
  TSR_LAUNCH(add_runs, launch_add_runs(of.rows, of.C), s, out, (float *)scratch, runs, of.C);
}

extern "C" void tsr_cuda_sum_rows(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *x, void *scratch, int64_t C,
    int64_t row_first, int64_t row_step, int64_t rows) {
  TSR_BY_TYPE(
      type, T,
      rows_launch<T, false>(
          s, type, out, scratch, {(const T *)x, NULL, NULL, NULL, C, row_first, row_step, rows}))
}

extern "C" void tsr_cuda_norm_dw(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *dy, const void *x,
    const float *mean, const float *rstd, void *scratch, int64_t C, int64_t row_first,
    int64_t row_step, int64_t rows) {
  TSR_BY_TYPE(
      type, T,
      rows_launch<T, true>(
          s, type, out, scratch,
          {(const T *)x, (const T *)dy, mean, rstd, C, row_first, row_step, rows}))
}

/* ---- over heads ---- */

/* A thread has one element of a row's sum: neighbours read neighbours. */
template <typename T>
static __global__ void sum_heads(
    T *out, const T *x, int64_t n, int64_t D, int64_t heads, tsr_tree_shape shape, int64_t units) {
  for (int64_t i = map_thread(); i < n; i += map_threads()) {
    const T *head = x + i / D * (units * heads * D) + i % D;
    float stack[TSR_TREE_DEPTH_MAX];
    tsr_tree_stack tree = {};
    for (int64_t unit = 0; unit < units; unit++) {
      float sum = number_load(head);
      head += D;
#pragma unroll 4
      for (int64_t h = 1; h < heads; h++, head += D) sum += number_load(head);
      stack[tsr_tree_push(&tree, tsr_tree_of_merges(shape, units, unit))] = sum;
      for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
    }
    number_store(out + i, stack[0]);
  }
}

extern "C" void tsr_cuda_sum_heads(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *x, int64_t R, int64_t D,
    int64_t heads, tsr_tree_shape tree, int64_t units) {
  if (R * D <= 0) return;
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          sum_heads<T>, launch_map(R * D), s, (T *)out, (const T *)x, R * D, D, heads, tree, units))
}

/* ---- to one number ---- */

/* A warp a block of TSR_SUM_BLOCK elements. */
static __global__ void sum_elements(double *sums, const float *x, int64_t n) {
  int64_t block = (int64_t)blockIdx.x * LAUNCH_SUM_WARPS + threadIdx.x / TSR_WARP;
  double sum = block_elements<false>(x, block, 1, n, n);
  if (threadIdx.x % TSR_WARP == 0 && block * TSR_SUM_BLOCK < n) sums[block] = sum;
}

static __global__ void add_blocks(float *out, double *sums, int64_t blocks) {
  add_block_sums(out, sums, blocks);
}

extern "C" void
tsr_cuda_sum(tsr_cuda_stream s, float *out, const float *x, void *scratch, int64_t n) {
  int64_t blocks = launch_sum_blocks(n);
  if (blocks <= 0) {
    tsr_cuda_zero(s, out, sizeof *out);
    return;
  }
  TSR_LAUNCH(sum_elements, launch_sum_elements(n), s, (double *)scratch, x, n);
  TSR_LAUNCH(add_blocks, launch_add_blocks(n), s, out, (double *)scratch, blocks);
}
