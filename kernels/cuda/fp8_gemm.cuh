// SPDX-License-Identifier: Apache-2.0
/* A tile of a GEMM of codes of FP8 with a scale for each block (base/fp8_layout.h): of linear
 * layers (fp8_gemm.cu) and of experts' (expert_gemm_fp8.cu).
 *
 * An element is a chain that the runs of K alone determine: a block of TSR_FP8_BLOCK codes is
 * summed by the tensor cores from zero, 32 of them after 32; the sum is multiplied by the scale of
 * A's block, then by B's, and added to the sum of the blocks before it. Codes that a short block
 * lacks are zeros. */
#ifndef TSR_KERNELS_CUDA_FP8_GEMM_CUH
#define TSR_KERNELS_CUDA_FP8_GEMM_CUH
#include "kernels/cuda/fp8_shape.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma_fp8.cuh"

enum { RUNS_M = 4, RUNS_N = 4, STEP = 32 }; /* of a warp: tiles of 16 x 8; codes of a step of K */
enum { WARP_M = RUNS_M * 16, WARP_N = RUNS_N * 8, WARPS_M = FP8_TILE_M / WARP_M };
enum { ROW_HALVES = FP8_WIDTH + FP8_PAD, TILE_ROWS = FP8_TILE_M + FP8_TILE_N };

/* A stage: rows of A, then of B, and their scales. */
typedef struct {
  uint16_t *codes;
  float *scales;
} fp8_stage;

static __device__ inline fp8_stage stage_at(uint16_t *shared, int i) {
  float *scales = (float *)(shared + FP8_STAGES * FP8_STAGE_HALVES);
  fp8_stage s = {shared + i * FP8_STAGE_HALVES, scales + i * TILE_ROWS};
  return s;
}

/* A block's tile of c. */
typedef struct {
  int64_t m, n;
} fp8_tile_of_c;

/* A block of the sum: codes [k, k + TSR_FP8_BLOCK) of a run of K that has `size` of them, begins at
 * `codes` bytes in a row of codes, and whose first block's scales are those of block `block` of the
 * operands. */
typedef struct {
  int64_t codes;
  int32_t block, k, size;
} fp8_step;

static __device__ inline bool is_step(const fp8_step &s) { return s.k < s.size; }

/* The step's codes of rows of an operand, zeros where it has none. */
template <int ROWS>
static __device__ inline void fetch_rows(
    uint16_t *to, const tsr_cuda_fp8_matrix &x, int64_t row, int64_t rows, const fp8_step &s) {
  const uint16_t *from = (const uint16_t *)(x.codes + row * x.stride + s.codes + s.k);
  tensor_load<FP8_WIDTH, ROWS, FP8_GEMM_THREADS>(
      to, from, x.stride / 2, rows - row, (tsr_cuda_fp8_unit(s.size) - s.k) / 2);
}

static __device__ inline void
fetch(const fp8_stage &to, const tsr_cuda_fp8_gemm &p, const fp8_tile_of_c &t, const fp8_step &s) {
  fetch_rows<FP8_TILE_M>(to.codes, p.a, t.m, p.M, s);
  fetch_rows<FP8_TILE_N>(to.codes + FP8_TILE_M * ROW_HALVES, p.b, t.n, p.N, s);
}

static __device__ inline float
scale_at(const tsr_cuda_fp8_matrix &x, int64_t row, int64_t rows, int64_t block) {
  if (row >= rows) return 0;
  if (x.row_unit) row = tsr_fp8_block_of(row, x.row_unit, TSR_FP8_BLOCK);
  return x.scales[block * x.k_stride + row * x.row_stride];
}

/* The scales of a block of K that a thread brings: of a row of the tile, and of a column. */
typedef struct {
  float a, b;
} fp8_scales;

static __device__ inline fp8_scales
scales_read(const tsr_cuda_fp8_gemm &p, const fp8_tile_of_c &t, const fp8_step &step) {
  int thread = (int)threadIdx.x;
  int64_t block = step.block + step.k / (int32_t)TSR_FP8_BLOCK;
  fp8_scales s = {scale_at(p.a, t.m + thread, p.M, block), 0};
  if (thread < FP8_TILE_N) s.b = scale_at(p.b, t.n + thread, p.N, block);
  return s;
}
static __device__ inline void scales_write(const fp8_stage &to, const fp8_scales &s) {
  to.scales[threadIdx.x] = s.a;
  if (threadIdx.x < FP8_TILE_N) to.scales[FP8_TILE_M + threadIdx.x] = s.b;
}

/* The sums of a warp's tile. */
typedef struct {
  float c[RUNS_M][RUNS_N][4];
} fp8_sums;

/* A warp's first row and column in the tile. */
static __device__ inline int warp_m(void) { return (int)threadIdx.x / TSR_WARP % WARPS_M * WARP_M; }
static __device__ inline int warp_n(void) { return (int)threadIdx.x / TSR_WARP / WARPS_M * WARP_N; }

/* Adds codes [column, column + STEP / 2) of a stage, in halves. */
template <tsr_fp8_format FORMAT>
static __device__ inline void step_add(fp8_sums *s, const uint16_t *codes, int column) {
  uint32_t a[RUNS_M][4], b[RUNS_N / 2][4];
#pragma unroll
  for (int m = 0; m < RUNS_M; m++) tensor_a<FP8_WIDTH>(a[m], codes, warp_m() + 16 * m, column);
#pragma unroll
  for (int n = 0; n < RUNS_N / 2; n++)
    tensor_b_of_rows<FP8_WIDTH>(b[n], codes, FP8_TILE_M + warp_n() + 16 * n, column);
#pragma unroll
  for (int m = 0; m < RUNS_M; m++)
#pragma unroll
    for (int n = 0; n < RUNS_N; n++)
      tensor_gemm_fp8<FORMAT>(s->c[m][n], a[m], &b[n / 2][n % 2 * 2]);
}

/* Adds a block of K, `left` codes from its first one to the end of its run. */
template <tsr_fp8_format FORMAT>
static __device__ inline void block_add(fp8_sums *sums, const fp8_stage &stage, int32_t left) {
  fp8_sums block = {{{{0}}}};
#pragma unroll
  for (int step = 0; step < TSR_FP8_BLOCK / STEP; step++) {
    if (step * STEP >= left) break;
    step_add<FORMAT>(&block, stage.codes, step * STEP / 2);
  }
#pragma unroll
  for (int m = 0; m < RUNS_M; m++)
#pragma unroll
    for (int n = 0; n < RUNS_N; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float a = stage.scales[warp_m() + 16 * m + tensor_c_row(i)];
        float b = stage.scales[FP8_TILE_M + warp_n() + 8 * n + tensor_c_column(i)];
        sums->c[m][n][i] += block.c[m][n][i] * a * b;
      }
}

/* Calls use(row, column, numbers) for each two neighbours of the warp's tile in c. */
template <typename USE>
static __device__ inline void
each_pair(fp8_sums *s, const fp8_tile_of_c &t, int64_t M, const USE &use) {
#pragma unroll
  for (int m = 0; m < RUNS_M; m++)
#pragma unroll
    for (int n = 0; n < RUNS_N; n++)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        int64_t row = t.m + warp_m() + 16 * m + tensor_c_row(i);
        float(&pair)[2] = *(float(*)[2]) & s->c[m][n][i];
        if (row < M) use(row, t.n + warp_n() + 8 * n + tensor_c_column(i), pair);
      }
}

/* Computes a tile of c: `first` is the first step of its sum, next(step) the one behind a step.
 * p.K is not read. */
template <typename T, tsr_fp8_format FORMAT, typename NEXT>
static __device__ inline void compute_tile(
    uint16_t *shared, const tsr_cuda_fp8_gemm &p, const fp8_tile_of_c &t, fp8_step first,
    const NEXT &next) {
  T *c = (T *)p.c;
  bool packed = p.N % 2 == 0;
  bool works = t.m + warp_m() < p.M && t.n + warp_n() < p.N; /* the warp has elements of c */
  fp8_sums sums = {{{{0}}}};
  if (p.adds)
    each_pair(&sums, t, p.M, [&](int64_t row, int64_t col, float(&x)[2]) {
      row_load(x, c + row * p.N, col, p.N, packed);
    });
  if (is_step(first)) {
    fetch(stage_at(shared, 0), p, t, first);
    scales_write(stage_at(shared, 0), scales_read(p, t, first));
  }
  int stage = 0;
  for (fp8_step at = first; is_step(at); stage ^= 1) {
    fp8_step behind = next(at);
    fp8_scales scales = {0, 0};
    tensor_fetch_wait();
    __syncthreads();
    if (is_step(behind)) {
      fetch(stage_at(shared, stage ^ 1), p, t, behind);
      scales = scales_read(p, t, behind);
    }
    if (works) block_add<FORMAT>(&sums, stage_at(shared, stage), at.size - at.k);
    scales_write(stage_at(shared, stage ^ 1), scales);
    at = behind;
  }
  each_pair(&sums, t, p.M, [&](int64_t row, int64_t col, float(&x)[2]) {
    row_store(c + row * p.N, x, col, p.N, packed);
  });
}

#endif
