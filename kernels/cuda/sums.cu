// SPDX-License-Identifier: Apache-2.0
/* Sums over rows and to one number, in runs that base/reduction_tree.h's tree adds. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduction_tree.cuh"

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

/* The tree over the runs of 32 columns. */
static __global__ void add_runs(float *out, float *sums, int64_t runs, int64_t C) {
  int64_t c = (int64_t)blockIdx.x * TSR_WARP + threadIdx.x;
  bool here = c < C;
  tree_sum(sums + (here ? c : 0), runs, C, here ? (int64_t)threadIdx.y : runs, blockDim.y);
  if (here && threadIdx.y == 0) out[c] = sums[c];
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

/* ---- to one number: with the bits of the CPU's sums, element i of a block goes to running sum
 * i % 32, which is a lane ---- */

/* A warp a block of TSR_SUM_BLOCK elements. */
template <bool SQUARES>
static __global__ void
sum_elements(double *sums, const float *x, int64_t n, int64_t cols, int64_t stride) {
  int64_t block = (int64_t)blockIdx.x * LAUNCH_SUM_WARPS + threadIdx.x / TSR_WARP;
  int64_t i = block * TSR_SUM_BLOCK, end = i + TSR_SUM_BLOCK < n ? i + TSR_SUM_BLOCK : n;
  i += threadIdx.x % TSR_WARP;
  double sum = 0;
  if (stride == cols) {
#pragma unroll 8
    for (; i < end; i += TSR_WARP) sum += SQUARES ? (double)x[i] * (double)x[i] : (double)x[i];
  } else {
    int64_t row = i / cols, col = i % cols;
    for (; i < end; i += TSR_WARP) {
      double v = (double)x[row * stride + col];
      sum += SQUARES ? v * v : v;
      for (col += TSR_WARP; col >= cols; col -= cols) row++;
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % TSR_WARP == 0 && block * TSR_SUM_BLOCK < n) sums[block] = sum;
}

/* The levels of the tree wait for one another: in shared memory, where the sums fit there. */
static __global__ void add_blocks(float *out, double *sums, int64_t blocks) {
  __shared__ double near[LAUNCH_BLOCK_SUMS];
  if (blocks <= LAUNCH_BLOCK_SUMS) {
    for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) near[i] = sums[i];
    sums = near;
    __syncthreads();
  }
  tree_sum(sums, blocks, 1, (int64_t)threadIdx.x, (int64_t)blockDim.x);
  if (threadIdx.x == 0) out[0] = (float)sums[0];
}

template <bool SQUARES>
static void sum_launch(
    tsr_cuda_stream s, float *out, const float *x, void *scratch, int64_t rows, int64_t cols,
    int64_t stride) {
  int64_t n = rows * cols, blocks = launch_sum_blocks(n);
  if (blocks <= 0) {
    tsr_cuda_zero(s, out, sizeof *out);
    return;
  }
  TSR_LAUNCH(
      sum_elements<SQUARES>, launch_sum_elements(n), s, (double *)scratch, x, n, cols, stride);
  TSR_LAUNCH(add_blocks, launch_add_blocks(n), s, out, (double *)scratch, blocks);
}

extern "C" void tsr_cuda_sum(
    tsr_cuda_stream s, float *out, const float *x, void *scratch, int64_t rows, int64_t cols,
    int64_t stride) {
  sum_launch<false>(s, out, x, scratch, rows, cols, stride);
}

extern "C" void tsr_cuda_sum_squares(
    tsr_cuda_stream s, float *out, const float *x, void *scratch, int64_t rows, int64_t cols,
    int64_t stride) {
  sum_launch<true>(s, out, x, scratch, rows, cols, stride);
}
