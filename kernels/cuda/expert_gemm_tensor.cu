// SPDX-License-Identifier: Apache-2.0
/* GEMMs of experts in half precision, by the tensor cores. An element's chain begins with 0, or
 * with c where the GEMM adds, and continues through steps of 16 elements of the sum; of a sum over
 * rows each batch unit begins a step, and what the last step of a unit lacks are zeros. So it
 * depends on what is summed alone, and not on the tile or on where the operands lie: rows that do
 * not begin at multiples of 16 bytes are read element by element. */
#include "kernels/cuda/expert_gemm.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/number.cuh"

enum { RUNS_M = 4, RUNS_N = 4, STEP = 16 }; /* of a warp: tiles of 16 x 8 */
enum { WARP_M = RUNS_M * 16, WARP_N = RUNS_N * 8, WARPS_M = EXPERT_TILE / WARP_M };
static_assert(
    (int)WARPS_M * (EXPERT_TILE / (int)WARP_N) * TSR_WARP == (int)EXPERT_GEMM_THREADS &&
        (int)EXPERT_PAD == (int)TENSOR_PAD,
    "expert_shape.h");

/* Whether what is summed lies along the rows of the operand: its columns are those of the tile. */
template <tsr_cuda_expert_form FORM> struct layout_of {
  static const bool a_columns = FORM == TSR_CUDA_EXPERT_DW;
  static const bool b_columns = FORM != TSR_CUDA_EXPERT_FORWARD;
};

/* The sums of a warp's tile. */
typedef struct {
  float c[RUNS_M][RUNS_N][4];
} warp_sums;

static __device__ inline int warp_m(void) { return (int)threadIdx.x / TSR_WARP % WARPS_M * WARP_M; }
static __device__ inline int warp_n(void) { return (int)threadIdx.x / TSR_WARP / WARPS_M * WARP_N; }

/* Operands as the kernel reads them: b is the expert's. */
typedef struct {
  const uint16_t *a, *b;
  bool a_aligned, b_aligned;
} operands;

/* ---- shared memory: A's tile, then B's, EXPERT_STAGES times ---- */

static __device__ inline uint16_t *stage_of(uint16_t *shared, int stage) {
  return shared + stage * 2 * EXPERT_OPERAND_HALVES;
}

/* A tile (ROWS, W): the first `rows` rows of `from`, with D columns; the rest are zeros. */
template <int W, int ROWS>
static __device__ inline void fetch_tile(
    uint16_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t D, bool aligned) {
  if (aligned) {
    tensor_load<W, ROWS, EXPERT_GEMM_THREADS>(to, from, stride, rows, D);
    return;
  }
  for (int i = (int)threadIdx.x; i < ROWS * W; i += EXPERT_GEMM_THREADS) {
    int row = i / W, d = i % W;
    to[row * (W + EXPERT_PAD) + d] = row < rows && d < D ? from[row * stride + d] : 0;
  }
}

/* A step's part of an operand whose tile begins at `first` of `size` rows or columns. */
template <bool COLUMNS>
static __device__ inline void fetch_operand(
    uint16_t *to, const uint16_t *x, int64_t stride, int64_t first, int64_t size, const sum_step &s,
    bool aligned) {
  if (COLUMNS)
    fetch_tile<EXPERT_TILE, EXPERT_DEPTH>(
        to, x + s.k * stride + first, stride, s.end - s.k, size - first, aligned);
  else
    fetch_tile<EXPERT_DEPTH, EXPERT_TILE>(
        to, x + first * stride + s.k, stride, size - first, s.end - s.k, aligned);
}

template <tsr_cuda_expert_form FORM>
static __device__ inline void fetch(
    uint16_t *stage, const tsr_cuda_expert_gemm &p, const operands &x, const expert_tile &t,
    const sum_step &s) {
  typedef layout_of<FORM> layout;
  fetch_operand<layout::a_columns>(stage, x.a, p.a_stride, t.m, t.m + t.rows, s, x.a_aligned);
  fetch_operand<layout::b_columns>(
      stage + EXPERT_OPERAND_HALVES, x.b, p.b_stride, t.n, p.N, s, x.b_aligned);
}

/* ---- sums ---- */

/* A of the columns m.. m+15 of x: A[i][j] = x[k+j][m+i]. */
template <int W>
static __device__ inline void a_of_columns(uint32_t a[4], const uint16_t *x, int k, int m) {
  int lane = tensor_lane();
  int row = k + lane % 8 + lane / 16 * 8, column = m + lane / 8 % 2 * 8;
  tensor_read_transposed(a, x + row * (W + TENSOR_PAD) + column);
}

/* Elements [k, k + STEP) of a stage. */
template <tsr_cuda_type TYPE, tsr_cuda_expert_form FORM>
static __device__ inline void add_step(warp_sums *s, const uint16_t *stage, int k) {
  const uint16_t *other = stage + EXPERT_OPERAND_HALVES;
  uint32_t a[RUNS_M][4], b[RUNS_N / 2][4];
#pragma unroll
  for (int m = 0; m < RUNS_M; m++)
    if (layout_of<FORM>::a_columns) a_of_columns<EXPERT_TILE>(a[m], stage, k, warp_m() + 16 * m);
    else tensor_a<EXPERT_DEPTH>(a[m], stage, warp_m() + 16 * m, k);
#pragma unroll
  for (int n = 0; n < RUNS_N / 2; n++)
    if (layout_of<FORM>::b_columns)
      tensor_b_of_columns<EXPERT_TILE>(b[n], other, k, warp_n() + 16 * n);
    else tensor_b_of_rows<EXPERT_DEPTH>(b[n], other, warp_n() + 16 * n, k);
#pragma unroll
  for (int m = 0; m < RUNS_M; m++)
#pragma unroll
    for (int n = 0; n < RUNS_N; n++) tensor_gemm<TYPE>(s->c[m][n], a[m], &b[n / 2][n % 2 * 2]);
}

/* Calls use(row, column, numbers) for each two neighbours of the warp's tile; rows are the
 * tile's. */
template <typename USE> static __device__ inline void each_pair(warp_sums *s, const USE &use) {
#pragma unroll
  for (int m = 0; m < RUNS_M; m++)
#pragma unroll
    for (int n = 0; n < RUNS_N; n++)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        float(&pair)[2] = *(float(*)[2]) & s->c[m][n][i];
        use(warp_m() + 16 * m + tensor_c_row(i), warp_n() + 8 * n + tensor_c_column(i), pair);
      }
}

template <tsr_cuda_type TYPE, tsr_cuda_expert_form FORM>
static __device__ inline void add_steps(
    warp_sums *sums, uint16_t *shared, const tsr_cuda_expert_gemm &p, const operands &x,
    const expert_tile &t) {
  bool works = warp_m() < t.rows && t.n + warp_n() < p.N; /* the warp has elements of c */
  sum_step at = first_step<FORM>(p, t.expert);
  if (is_step(at)) fetch<FORM>(stage_of(shared, 0), p, x, t, at);
  for (int stage = 0; is_step(at); stage ^= 1) {
    sum_step next = next_step<FORM>(p, t.expert, at, EXPERT_DEPTH);
    tensor_fetch_wait();
    __syncthreads();
    if (is_step(next)) fetch<FORM>(stage_of(shared, stage ^ 1), p, x, t, next);
#pragma unroll
    for (int k = 0; k < EXPERT_DEPTH; k += STEP)
      if (works && at.k + k < at.end) add_step<TYPE, FORM>(sums, stage_of(shared, stage), k);
    at = next;
  }
}

template <typename T, tsr_cuda_type TYPE, tsr_cuda_expert_form FORM>
static __global__ void __launch_bounds__(EXPERT_GEMM_THREADS, 2)
    expert_gemm_tensor(tsr_cuda_expert_gemm p, operands x, int64_t row_tiles, bool packed) {
  TSR_SHARED(uint16_t, shared);
  expert_tile t;
  if (!find_tile(p, EXPERT_TILE, EXPERT_TILE, row_tiles, &t)) return;
  x.b += t.expert * p.b_expert;
  int64_t first = FORM == TSR_CUDA_EXPERT_DW ? t.expert * p.M + t.m : t.m;
  warp_sums sums = {{{{0}}}};
  if (FORM == TSR_CUDA_EXPERT_DW && p.adds)
    each_pair(&sums, [&](int row, int column, float(&pair)[2]) {
      if (row < t.rows)
        row_load(pair, (const float *)p.c + (first + row) * p.N, t.n + column, p.N, packed);
    });
  add_steps<TYPE, FORM>(&sums, shared, p, x, t);
  each_pair(&sums, [&](int row, int column, float(&pair)[2]) {
    if (row >= t.rows) return;
    int64_t at = (first + row) * p.N;
    if (FORM == TSR_CUDA_EXPERT_DW || p.c_is_f32)
      row_store((float *)p.c + at, pair, t.n + column, p.N, packed);
    else row_store((T *)p.c + at, pair, t.n + column, p.N, packed);
  });
}

/* Whether all fetches of 16 bytes of an operand are aligned and within its rows. */
static bool is_fetchable(const void *x, int64_t stride, int64_t elements, int64_t from_expert) {
  return is_aligned(x, 16) && stride % 8 == 0 && elements % 8 == 0 && from_expert % 8 == 0;
}

template <typename T, tsr_cuda_type TYPE>
static void run(tsr_cuda_stream s, const tsr_cuda_expert_gemm *p) {
  tsr_launch_shape shape = launch_expert_gemm(TYPE, p);
  int64_t row_tiles = expert_row_tiles(p, EXPERT_TILE);
  operands x = {(const uint16_t *)p->a, (const uint16_t *)p->b, false, false};
  bool packed = p->N % 2 == 0 && is_aligned(p->c, p->c_is_f32 ? 8 : 4);
  x.a_aligned = is_fetchable(p->a, p->a_stride, p->form == TSR_CUDA_EXPERT_DW ? p->M : p->K, 0);
  x.b_aligned = is_fetchable(
      p->b, p->b_stride, p->form == TSR_CUDA_EXPERT_FORWARD ? p->K : p->N, p->b_expert);
#define RUN_FORM(FORM)                                                                             \
  TSR_ALLOW_SHARED((expert_gemm_tensor<T, TYPE, FORM>), shape.shared_bytes);                       \
  TSR_LAUNCH((expert_gemm_tensor<T, TYPE, FORM>), shape, s, *p, x, row_tiles, packed)
  BY_EXPERT_FORM(p, RUN_FORM)
#undef RUN_FORM
}

void expert_gemm_tensor(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_gemm *p) {
  if (type == TSR_CUDA_BF16) run<tsr_bf16, TSR_CUDA_BF16>(s, p);
  else run<tsr_f16, TSR_CUDA_F16>(s, p);
}
