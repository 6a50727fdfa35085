// SPDX-License-Identifier: Apache-2.0
/* GEMMs of experts: where their rows begin, the GEMMs in f32, and the sums of biases' gradients. In
 * f32 an element's chain is one fused multiplication and addition after the other. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/expert_gemm.cuh"
#include "kernels/cuda/number.cuh"

/* ---- segments ---- */

/* By one block. */
static __global__ void
expert_segments(int32_t *starts, int32_t *tiles, const int32_t *plan, tsr_cuda_expert_segments of) {
  int64_t n = of.count * of.units;
  for (int64_t i = threadIdx.x; i <= n; i += blockDim.x)
    starts[i] = (int32_t)plan_lower_bound(
        plan, of.R, of.first + i / of.units, i % of.units * of.unit_slots);
  __syncthreads();
  if (!tiles) return;
  for (int64_t e = threadIdx.x; e < of.count; e += blockDim.x)
    tiles[e] = (int32_t)tiles_of(starts[(e + 1) * of.units] - starts[e * of.units], of.tile_rows);
  __syncthreads();
  prefix_sums(tiles, of.count);
}

extern "C" void tsr_cuda_find_expert_segments(
    tsr_cuda_stream s, int32_t *starts, int32_t *tiles, const int32_t *plan,
    const tsr_cuda_expert_segments *of) {
  TSR_LAUNCH(expert_segments, launch_scan(), s, starts, tiles, plan, *of);
}

/* ---- f32 ---- */

enum { SIDE = 4, ACROSS = EXPERT_SIMT_TILE / SIDE }; /* a thread has SIDE x SIDE elements of c */
static_assert((int)ACROSS * ACROSS == (int)EXPERT_GEMM_THREADS, "expert_shape.h");

/* Of a step's elements [k, end), those of a tile of rows or columns from `first` of `size` on, by
 * k; zeros where there are none. */
template <bool COLUMNS>
static __device__ inline void load_step(
    float (*to)[EXPERT_SIMT_TILE + 1], const float *x, int64_t stride, int64_t first, int64_t size,
    const sum_step &s) {
  for (int i = (int)threadIdx.x; i < EXPERT_SIMT_DEPTH * EXPERT_SIMT_TILE;
       i += EXPERT_GEMM_THREADS) {
    int k = COLUMNS ? i / EXPERT_SIMT_TILE : i % EXPERT_SIMT_DEPTH;
    int at = COLUMNS ? i % EXPERT_SIMT_TILE : i / EXPERT_SIMT_DEPTH;
    bool real = first + at < size && s.k + k < s.end;
    int64_t from = COLUMNS ? (s.k + k) * stride + first + at : (first + at) * stride + s.k + k;
    to[k][at] = real ? x[from] : 0;
  }
}

template <tsr_cuda_expert_form FORM>
static __global__ void __launch_bounds__(EXPERT_GEMM_THREADS)
    expert_gemm(tsr_cuda_expert_gemm p, int64_t row_tiles) {
  __shared__ float a[EXPERT_SIMT_DEPTH][EXPERT_SIMT_TILE + 1],
      b[EXPERT_SIMT_DEPTH][EXPERT_SIMT_TILE + 1];
  expert_tile t;
  if (!find_tile(p, EXPERT_SIMT_TILE, EXPERT_SIMT_TILE, row_tiles, &t)) return;
  const float *of_b = (const float *)p.b + t.expert * p.b_expert;
  float *c = (float *)p.c + (FORM == TSR_CUDA_EXPERT_DW ? t.expert * p.M : 0) * p.N;
  int row = (int)threadIdx.x / ACROSS, column = (int)threadIdx.x % ACROSS;
  float sums[SIDE][SIDE];
  auto each = [&](auto use) {
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
      for (int j = 0; j < SIDE; j++) {
        int m = row + i * ACROSS;
        int64_t n = t.n + column + j * ACROSS;
        use(sums[i][j], (t.m + m) * p.N + n, m < t.rows && n < p.N);
      }
  };
  each([&](float &x, int64_t at, bool real) {
    x = FORM == TSR_CUDA_EXPERT_DW && p.adds && real ? c[at] : 0;
  });
  for (sum_step s = first_step<FORM>(p, t.expert); is_step(s);
       s = next_step<FORM>(p, t.expert, s, EXPERT_SIMT_DEPTH)) {
    load_step<FORM == TSR_CUDA_EXPERT_DW>(a, (const float *)p.a, p.a_stride, t.m, t.m + t.rows, s);
    load_step<FORM != TSR_CUDA_EXPERT_FORWARD>(b, of_b, p.b_stride, t.n, p.N, s);
    __syncthreads();
    for (int k = 0; k < EXPERT_SIMT_DEPTH && s.k + k < s.end; k++)
#pragma unroll
      for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++)
          sums[i][j] = fmaf(a[k][row + i * ACROSS], b[k][column + j * ACROSS], sums[i][j]);
    __syncthreads();
  }
  each([&](float &x, int64_t at, bool real) {
    if (real) c[at] = x;
  });
}

extern "C" void
tsr_cuda_run_expert_gemm(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_gemm *p) {
  tsr_launch_shape shape = launch_expert_gemm(type, p);
  if (!shape.grid[0]) return;
  if (type != TSR_CUDA_F32) {
    expert_gemm_tensor(s, type, p);
    return;
  }
#define RUN_FORM(FORM)                                                                             \
  TSR_LAUNCH((expert_gemm<FORM>), shape, s, *p, expert_row_tiles(p, EXPERT_SIMT_TILE))
  BY_EXPERT_FORM(p, RUN_FORM)
#undef RUN_FORM
}

/* ---- rows behind the last, and biases ---- */

template <typename T>
static __global__ void clear_rows(T *c, const int32_t *plan, int64_t n, int64_t N) {
  for (int64_t i = map_thread(); i < n; i += map_threads())
    if (plan[i / N * 2] < 0) number_store(c + i, 0);
}

extern "C" void tsr_cuda_clear_expert_rows(
    tsr_cuda_stream s, tsr_cuda_type type, void *c, const int32_t *plan, int64_t R, int64_t N) {
  if (R * N > 0)
    TSR_BY_TYPE(type, T, TSR_LAUNCH(clear_rows<T>, launch_map(R * N), s, (T *)c, plan, R * N, N))
}

/* A thread has a column of an expert. */
template <typename T>
static __global__ void expert_row_sums(
    float *out, const T *dy, const int32_t *starts, int64_t count, int64_t N, int64_t units,
    int64_t first_unit, int64_t end_unit, bool adds) {
  for (int64_t i = map_thread(); i < count * N; i += map_threads()) {
    int64_t expert = i / N, column = i % N, end = starts[expert * units + end_unit];
    float sum = adds ? out[i] : 0;
#pragma unroll 4
    for (int64_t row = starts[expert * units + first_unit]; row < end; row++)
      sum += number_load(dy + row * N + column);
    out[i] = sum;
  }
}

extern "C" void tsr_cuda_expert_row_sums(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *dy, const int32_t *starts,
    int64_t count, int64_t N, int64_t units, int64_t first_unit, int64_t end_unit, bool adds) {
  if (count * N > 0)
    TSR_BY_TYPE(
        type, T,
        TSR_LAUNCH(
            expert_row_sums<T>, launch_map(count * N), s, out, (const T *)dy, starts, count, N,
            units, first_unit, end_unit, adds))
}
