// SPDX-License-Identifier: Apache-2.0
/* A warp's matrices for the tensor cores: mma.sync m16n8k16 on halves, with sums in f32.
 *
 * Who holds what (PTX ISA, "Matrix Fragments for mma.m16n8k16"), with row = lane / 4 and
 * pair = 2 * (lane % 4); a word holds two halves, the first one below:
 *   A (16 x 16): words 0..3 hold columns pair, pair+1 of rows row and row+8, then columns pair+8,
 *                pair+9 of the same rows.
 *   B (16 x 8):  words 0, 1 hold rows pair, pair+1, then rows pair+8, pair+9, of column row.
 *   C (16 x 8):  numbers 0..3 hold columns pair, pair+1 of row row, then of row row+8.
 * ldmatrix reads four matrices of 8 x 8 halves, of which lanes 8i..8i+7 give the rows of matrix i;
 * word i holds columns pair, pair+1 of matrix i's row `row`, or, transposed, rows pair, pair+1 of
 * its column `row`.
 *
 * Tiles in shared memory have rows of W + TENSOR_PAD halves: an odd multiple of 16 bytes, so that 8
 * rows of a matrix are in different banks. W is a multiple of 16. */
#ifndef TSR_KERNELS_CUDA_MMA_CUH
#define TSR_KERNELS_CUDA_MMA_CUH
#include "kernels/cuda/attention.cuh"

#ifndef TSR_EMULATED /* tests/cuda/mma.h has these for the CPU */

static __device__ inline uint32_t tensor_address(const void *shared) {
  return (uint32_t)__cvta_generic_to_shared(shared);
}

static __device__ inline void tensor_read(uint32_t words[4], const uint16_t *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(tensor_address(row))
               : "memory");
}

static __device__ inline void tensor_read_transposed(uint32_t words[4], const uint16_t *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(tensor_address(row))
               : "memory");
}

/* c += a b */
template <tsr_cuda_type TYPE>
static __device__ inline void tensor_gemm(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  if (TYPE == TSR_CUDA_BF16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two halves, to nearest even. */
template <tsr_cuda_type TYPE>
static __device__ inline uint32_t tensor_pair(float first, float second) {
  uint32_t word;
  if (TYPE == TSR_CUDA_BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

/* 16 bytes into shared memory, later; zeros where not `real`. */
static __device__ inline void tensor_fetch(uint16_t *to, const uint16_t *from, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tensor_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(real ? 16 : 0)
               : "memory");
}

/* Waits for all that this thread fetches. */
static __device__ inline void tensor_fetch_wait(void) {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/* 2^x */
static __device__ inline float tensor_power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* 1/x, to 1 ulp; of INFINITY 0 */
static __device__ inline float tensor_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

/* The same number, of which the compiler does not know that: what is computed of it in a loop is
 * not computed before the loop and kept, which would spill registers. */
static __device__ inline int tensor_here(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

static __device__ inline int tensor_lane(void) { return (int)threadIdx.x % TENSOR_LANES; }

/* A = x[row.. row+15][column.. column+15] */
template <int W>
static __device__ inline void tensor_a(uint32_t a[4], const uint16_t *x, int row, int column) {
  int lane = tensor_lane();
  tensor_read(a, x + (row + lane % 16) * (W + TENSOR_PAD) + column + lane / 16 * 8);
}

/* Two B side by side, b[0..1] and b[2..3], of the columns n, n+8 of x transposed: B[k][j] =
 * x[n+j][k]. */
template <int W>
static __device__ inline void tensor_b_of_rows(uint32_t b[4], const uint16_t *x, int n, int k) {
  int lane = tensor_lane();
  int row = n + lane % 8 + lane / 16 * 8, column = k + lane / 8 % 2 * 8;
  tensor_read(b, x + row * (W + TENSOR_PAD) + column);
}

/* Two B side by side, of the columns n, n+8 of x: B[i][j] = x[k+i][n+j]. */
template <int W>
static __device__ inline void tensor_b_of_columns(uint32_t b[4], const uint16_t *x, int k, int n) {
  int lane = tensor_lane();
  int row = k + lane % 16, column = n + lane / 16 * 8;
  tensor_read_transposed(b, x + row * (W + TENSOR_PAD) + column);
}

/* A = two C side by side, rounded. */
template <tsr_cuda_type TYPE>
static __device__ inline void
tensor_a_of_sums(uint32_t a[4], const float left[4], const float right[4]) {
  a[0] = tensor_pair<TYPE>(left[0], left[1]);
  a[1] = tensor_pair<TYPE>(left[2], left[3]);
  a[2] = tensor_pair<TYPE>(right[0], right[1]);
  a[3] = tensor_pair<TYPE>(right[2], right[3]);
}

/* Row (0 or 8 more) and column of number i of a lane's C. */
static __device__ inline int tensor_c_row(int i) { return tensor_lane() / 4 + i / 2 * 8; }
static __device__ inline int tensor_c_column(int i) { return tensor_lane() % 4 * 2 + i % 2; }

/* Fetches a tile (ROWS, W) by all THREADS: the first `rows` rows of `from`, with D columns; the
 * rest are zeros. */
template <int W, int ROWS, int THREADS>
static __device__ inline void
tensor_load(uint16_t *to, const uint16_t *from, int64_t stride, int64_t rows, int64_t D) {
  const int in_row = W / TENSOR_HALVES, step = tensor_here((int)stride);
  const int left = rows < ROWS ? (int)rows : ROWS;
#pragma unroll
  for (int n = 0; n < (ROWS * in_row + THREADS - 1) / THREADS; n++) {
    int i = n * THREADS + (int)threadIdx.x, row = i / in_row, d = i % in_row * TENSOR_HALVES;
    if (ROWS * in_row % THREADS && i >= ROWS * in_row) break;
    bool real = row < left && d < (int)D;
    tensor_fetch(to + row * (W + TENSOR_PAD) + d, real ? from + row * step + d : from, real);
  }
}

/* A warp's 16 rows of sums (16, W), times a factor for the upper and one for the lower 8 of them,
 * by way of its rows of a tile in shared memory, which no other warp uses by then. */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void tensor_store(
    uint16_t *out, int64_t stride, int64_t rows, int64_t D, uint16_t *tile,
    const float (&sums)[W / 8][4], float upper, float lower) {
  const int in_row = W / TENSOR_HALVES;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < W / 8; n++) {
    uint16_t *at = tile + tensor_c_row(0) * (W + TENSOR_PAD) + n * 8 + tensor_c_column(0);
    *(uint32_t *)at = tensor_pair<TYPE>(sums[n][0] * upper, sums[n][1] * upper);
    *(uint32_t *)(at + 8 * (W + TENSOR_PAD)) =
        tensor_pair<TYPE>(sums[n][2] * lower, sums[n][3] * lower);
  }
  __syncwarp();
  for (int i = tensor_lane(); i < 16 * in_row; i += TENSOR_LANES) {
    int row = i / in_row, d = i % in_row * TENSOR_HALVES;
    if (row < rows && d < D)
      *(uint4 *)(out + row * stride + d) = *(const uint4 *)(tile + row * (W + TENSOR_PAD) + d);
  }
}

#endif
