// SPDX-License-Identifier: Apache-2.0
/* A warp's matrices of FP8 for the tensor cores: mma.sync m16n8k32, with sums in f32. A word has
 * four codes that are neighbours in K, and stands where a word of two halves stands in mma.cuh: as
 * A (16 x 32) is loaded as 16 x 16 halves, and so is B.
 *
 * Hardware has the instruction on sm_89 and sm_12x. For sm_90 and sm_100 ptxas makes it of casts to
 * f16, two mma.sync m16n8k16 from zero and additions; here, and on sm_80, codes are cast to f16 and
 * mma.sync m16n8k16 adds to c. */
#ifndef TSR_KERNELS_CUDA_MMA_FP8_CUH
#define TSR_KERNELS_CUDA_MMA_FP8_CUH
#include "base/fp8_layout.h"
#include "kernels/cuda/mma.cuh"

#ifndef TSR_EMULATED /* tests/cuda/mma.h has these for the CPU */

#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
#define TENSOR_HAS_FP8 1
#else
#define TENSOR_HAS_FP8 0
#endif
static __device__ inline bool tensor_has_fp8(void) { return TENSOR_HAS_FP8; }

/* c += a b, where tensor_has_fp8; a is in FORMAT, b in E4M3. */
template <tsr_fp8_format FORMAT>
static __device__ inline void
tensor_gemm_codes(float c[4], const uint32_t a[4], const uint32_t b[2]) {
#if TENSOR_HAS_FP8
  if (FORMAT == TSR_FP8_E4M3)
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  (void)c, (void)a, (void)b;
#endif
}

/* Two halves times two. */
static __device__ inline uint32_t tensor_pair_times(uint32_t x, uint32_t y) {
  uint32_t word;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(word) : "r"(x), "r"(y));
  return word;
}

#endif

/* The four codes of a word in f16, which has all their numbers. By arithmetic: E5M2 is its upper
 * byte, and E4M3 has a bias that is 8 less. What a code of NaN becomes does not matter: its block's
 * scale is NaN. */
template <tsr_fp8_format FORMAT>
static __device__ inline void tensor_halves_of_codes(uint32_t halves[2], uint32_t word) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (FORMAT == TSR_FP8_E4M3)
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; "
        "cvt.rn.f16x2.e4m3x2 %1, high;}"
        : "=r"(halves[0]), "=r"(halves[1])
        : "r"(word));
  else
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e5m2x2 %0, low; "
        "cvt.rn.f16x2.e5m2x2 %1, high;}"
        : "=r"(halves[0]), "=r"(halves[1])
        : "r"(word));
#else
  halves[0] = (word & 0xFF) << 8 | (word & 0xFF00) << 16;
  halves[1] = (word >> 16 & 0xFF) << 8 | (word >> 16 & 0xFF00) << 16;
#pragma unroll
  for (int i = 0; FORMAT == TSR_FP8_E4M3 && i < 2; i++) {
    uint32_t moved = (halves[i] & 0x80008000) | (halves[i] & 0x7F007F00) >> 1;
    halves[i] = tensor_pair_times(moved, 0x5C005C00); /* 2^8 */
  }
#endif
}

/* The same by halves. The words of 16 columns of A, and rows of B, are four neighbours of each
 * lane; in which order K is numbered, sums of products do not depend on. */
template <tsr_fp8_format FORMAT>
static __device__ inline void
tensor_gemm_halves(float c[4], const uint32_t a[4], const uint32_t b[2]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    uint32_t upper[2], lower[2], columns[2];
    tensor_halves_of_codes<FORMAT>(upper, a[2 * i]);
    tensor_halves_of_codes<FORMAT>(lower, a[2 * i + 1]);
    tensor_halves_of_codes<TSR_FP8_E4M3>(columns, b[i]);
    uint32_t halves[4] = {upper[0], lower[0], upper[1], lower[1]};
    tensor_gemm<TSR_CUDA_F16>(c, halves, columns);
  }
}

/* c (16 x 8) += a (16 x 32) b (32 x 8); a is in FORMAT, b in E4M3. */
template <tsr_fp8_format FORMAT>
static __device__ inline void
tensor_gemm_fp8(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  if (tensor_has_fp8()) tensor_gemm_codes<FORMAT>(c, a, b);
  else tensor_gemm_halves<FORMAT>(c, a, b);
}

#endif
