// SPDX-License-Identifier: Apache-2.0
/* What attention's passes with wgmma share: their tiles of keys, copies of tiles and results. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_WGMMA_CUH
#define TSR_KERNELS_CUDA_ATTENTION_WGMMA_CUH
#include "kernels/cuda/attention_tensor_passes.cuh"
#include "kernels/cuda/wgmma.cuh"

#if defined(TSR_EMULATED) || TMA_HAS

/* The n-th use of a stage waits for the parity of the n-th phase; a copy for that of the use before
 * it. */
static __device__ inline uint32_t wgmma_parity(uint32_t n) { return n / WGMMA_STAGES % 2; }

/* The keys that a part's queries see, from the first one of a tile of `size` on. */
typedef struct {
  int64_t begin, end;
} wgmma_range;

static __device__ inline wgmma_range
wgmma_keys(const tsr_attention &a, const attention_part &part, int size) {
  wgmma_range r;
  r.end = attention_keys(a, part.first + part.count);
  r.begin = attention_keys_begin(a, part.first, r.end, size);
  return r;
}

/* A tile: `rows` rows from `row` on of a head, in pieces. */
template <int W>
static __device__ inline void wgmma_tile_load(
    uint32_t to, const tensor_map *map, uint32_t barrier, int rows, int64_t head, int64_t row,
    int64_t sample) {
  mbarrier_expect(barrier, (uint32_t)(rows * W * 2));
#pragma unroll
  for (int i = 0; i < W / TMA_COLUMNS; i++)
    tma_load(
        to + (uint32_t)(i * rows * TMA_ROW_BYTES), map, barrier, i * TMA_COLUMNS, (int)head,
        (int)row, (int)sample);
}

/* Begins d (64, N) = a (64, W) . b (N, W) transposed; tiles in shared memory, `a` with 64 of
 * A_ROWS rows. The thread has fenced d. */
template <tsr_cuda_type TYPE, int W, int A_ROWS, int N8>
static __device__ inline void wgmma_dot_begin(float (&d)[N8][4], uint32_t a_tile, uint32_t b_tile) {
  uint64_t a = wgmma_descriptor(a_tile, 0, WGMMA_ATOM_BYTES);
  uint64_t b = wgmma_descriptor(b_tile, 0, WGMMA_ATOM_BYTES);
#pragma unroll
  for (int k = 0; k < W; k += WGMMA_K) {
    uint32_t piece = (uint32_t)k / TMA_COLUMNS * TMA_ROW_BYTES,
             step = (uint32_t)k % TMA_COLUMNS * 2;
    uint64_t a_at = wgmma_descriptor_at(a, piece * A_ROWS + step);
    uint64_t b_at = wgmma_descriptor_at(b, piece * N8 * 8 + step);
    if (k == 0) wgmma_rows<TYPE, false>(d, a_at, b_at);
    else wgmma_rows<TYPE, true>(d, a_at, b_at);
  }
}

/* Begins d (64, W) += a (64, K) . b (K, W), b in shared memory. The thread has fenced d and a. */
template <tsr_cuda_type TYPE, int W8, int K16>
static __device__ inline void
wgmma_add_begin(float (&d)[W8][4], const uint32_t (&a)[K16][4], uint32_t b_tile) {
  uint64_t b = wgmma_descriptor(b_tile, K16 * WGMMA_K * TMA_ROW_BYTES, WGMMA_ATOM_BYTES);
#pragma unroll
  for (int k = 0; k < K16; k++)
    wgmma_columns<TYPE>(d, a[k], wgmma_descriptor_at(b, (uint32_t)k * WGMMA_K * TMA_ROW_BYTES));
}

/* This warp reads a tile no more. */
static __device__ inline void wgmma_release(uint32_t barrier) {
  if (tensor_lane() == 0) mbarrier_arrive(barrier);
}

/* Writes 16 rows of sums (16, W) times a factor for the upper and one for the lower 8 of them, of
 * which `left` exist. Four lanes of a row exchange words, so that each has 16 neighbouring bytes.
 */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void wgmma_store(
    uint16_t *out, int64_t stride, int64_t left, const float (&sums)[W / 8][4],
    const float (&factor)[2]) {
  int lane = tensor_lane() % 4;
#pragma unroll
  for (int n = 0; n < W / 8; n += 4)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        words[i] =
            tensor_pair<TYPE>(sums[n + i][2 * r] * factor[r], sums[n + i][2 * r + 1] * factor[r]);
#pragma unroll
      for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (i & bit) continue;
          bool upper = lane & bit;
          uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i | bit], bit);
          words[i] = upper ? other : words[i];
          words[i | bit] = upper ? words[i | bit] : other;
        }
      int row = tensor_c_row(2 * r);
      uint4 all = {words[0], words[1], words[2], words[3]};
      if (row < left) *(uint4 *)(out + row * stride + (n + lane) * 8) = all;
    }
}

#endif

/* (samples, rows, heads, W) */
static inline tensor_map
wgmma_map(const void *x, int64_t samples, int64_t rows, int64_t heads, int64_t W, int box_rows) {
  int64_t head = W * 2, row = heads * head;
  const tma_tensor tensor = {x, W, heads, rows, samples, head, row, rows * row, box_rows};
  tensor_map map = {};
  tensor_map_encode(&map, tensor);
  return map;
}

#endif
