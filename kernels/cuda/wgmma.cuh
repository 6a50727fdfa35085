// SPDX-License-Identifier: Apache-2.0
/* GEMMs of a warpgroup, 4 warps whose first one's number is a multiple of 4, on halves with sums in
 * f32 (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", sm_90a):
 * d (64, N) = or += a (64, 16) b (16, N).
 *
 * Warp w has rows 16 w to 16 w + 15 of d, and of an a in registers; who holds what of them is what
 * mma.cuh says of C and A. A matrix in shared memory is named by a descriptor ("Matrix Descriptor
 * Format"): its address, and two strides, in units of 16 bytes. Both layouts here are swizzled by
 * 128 bytes, as tma.cuh's tiles ("Shared Memory Matrix Layout", "Strides"):
 *   K-major: a row has 64 neighbours in K, 128 bytes; 8 rows, 1024 bytes, are an atom, and the
 *     stride of the stride dimension leads to the next 8 rows. A step of 16 in K is 32 bytes. So
 *     lie a and the keys, of which b is the transpose.
 *   N-major: a row has 64 neighbours in N; 8 rows, of K, are an atom, the stride dimension's stride
 *     leads to the next 8 rows, and the leading dimension's to the next 64 columns. A step of 16 in
 *     K is 2048 bytes. So lie the values.
 *
 * GEMMs run behind the calls that begin them. wgmma_fence orders what the thread did to the arrays
 * before GEMMs that read or write them: it stands before the first one, and again wherever the
 * thread touched an array. wgmma_commit makes a group of all that was begun since the last one, and
 * wgmma_wait waits until at most PENDING of the latest groups are left. In between the arrays of a
 * GEMM, d and a, belong to it. All warps of the warpgroup make the same calls, with all lanes. */
#ifndef TSR_KERNELS_CUDA_WGMMA_CUH
#define TSR_KERNELS_CUDA_WGMMA_CUH
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tma.cuh"

enum { WGMMA_ROWS = 64, WGMMA_K = 16, WGMMA_THREADS = 128, WGMMA_ATOM_BYTES = 1024 };

/* `leading` and `stride` in bytes; of a K-major matrix `leading` does not matter. */
static __device__ inline uint64_t
wgmma_descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  const uint64_t swizzle_128 = 1;
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(leading >> 4) << 16 |
         (uint64_t)(stride >> 4) << 32 | swizzle_128 << 62;
}
/* The same matrix from `bytes` behind on. */
static __device__ inline uint64_t wgmma_descriptor_at(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

#if !defined(TSR_EMULATED) && TMA_HAS /* tests/cuda/wgmma.h has these for the CPU */

/* The compiler moves no use of the array across. */
template <int N> static __device__ inline void wgmma_hold(float (&x)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) asm volatile("" : "+f"(x[n][i])::"memory");
}
template <int N> static __device__ inline void wgmma_hold(uint32_t (&x)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) asm volatile("" : "+r"(x[n][i])::"memory");
}

template <typename... ARRAYS> static __device__ inline void wgmma_fence(ARRAYS &...arrays) {
  (wgmma_hold(arrays), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ inline void wgmma_commit(void) {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* From now on the arrays, of groups that are over, are the thread's. */
template <int PENDING, typename... ARRAYS>
static __device__ inline void wgmma_wait(ARRAYS &...arrays) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
  (wgmma_hold(arrays), ...);
}

#define WGMMA_D(d, n)                                                                              \
  "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]), "+f"(d[n + 1][0]),                   \
      "+f"(d[n + 1][1]), "+f"(d[n + 1][2]), "+f"(d[n + 1][3])
#define WGMMA_D_64(d) WGMMA_D(d, 0), WGMMA_D(d, 2), WGMMA_D(d, 4), WGMMA_D(d, 6)
#define WGMMA_D_128(d) WGMMA_D_64(d), WGMMA_D(d, 8), WGMMA_D(d, 10), WGMMA_D(d, 12), WGMMA_D(d, 14)
#define WGMMA_NAMES_32                                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                         \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_64                                                                             \
  WGMMA_NAMES_32                                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_OF(N, HALF) "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." HALF "." HALF " "

/* d = a b, or where ADDS d += a b; a and b^T in shared memory, K-major. */
template <tsr_cuda_type TYPE, bool ADDS>
static __device__ inline void wgmma_rows(float (&d)[16][4], uint64_t a, uint64_t b) {
#define WGMMA_ROWS_OF(HALF)                                                                        \
  asm volatile("{.reg .pred adds; setp.ne.b32 adds, %66, 0; " WGMMA_OF(                            \
                   128, HALF) "{" WGMMA_NAMES_64 "}, %64, %65, adds, 1, 1, 0, 0;}"                 \
               : WGMMA_D_128(d)                                                                    \
               : "l"(a), "l"(b), "n"(ADDS ? 1 : 0)                                                 \
               : "memory")
  if (TYPE == TSR_CUDA_BF16) WGMMA_ROWS_OF("bf16");
  else WGMMA_ROWS_OF("f16");
#undef WGMMA_ROWS_OF
}
template <tsr_cuda_type TYPE, bool ADDS>
static __device__ inline void wgmma_rows(float (&d)[8][4], uint64_t a, uint64_t b) {
#define WGMMA_ROWS_OF(HALF)                                                                        \
  asm volatile("{.reg .pred adds; setp.ne.b32 adds, %34, 0; " WGMMA_OF(                            \
                   64, HALF) "{" WGMMA_NAMES_32 "}, %32, %33, adds, 1, 1, 0, 0;}"                  \
               : WGMMA_D_64(d)                                                                     \
               : "l"(a), "l"(b), "n"(ADDS ? 1 : 0)                                                 \
               : "memory")
  if (TYPE == TSR_CUDA_BF16) WGMMA_ROWS_OF("bf16");
  else WGMMA_ROWS_OF("f16");
#undef WGMMA_ROWS_OF
}

/* d += a b; a in registers, b in shared memory, N-major. */
template <tsr_cuda_type TYPE>
static __device__ inline void wgmma_columns(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
#define WGMMA_COLUMNS_OF(HALF)                                                                     \
  asm volatile(WGMMA_OF(128, HALF) "{" WGMMA_NAMES_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"  \
               : WGMMA_D_128(d)                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                \
               : "memory")
  if (TYPE == TSR_CUDA_BF16) WGMMA_COLUMNS_OF("bf16");
  else WGMMA_COLUMNS_OF("f16");
#undef WGMMA_COLUMNS_OF
}
template <tsr_cuda_type TYPE>
static __device__ inline void wgmma_columns(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
#define WGMMA_COLUMNS_OF(HALF)                                                                     \
  asm volatile(WGMMA_OF(64, HALF) "{" WGMMA_NAMES_32 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"   \
               : WGMMA_D_64(d)                                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                \
               : "memory")
  if (TYPE == TSR_CUDA_BF16) WGMMA_COLUMNS_OF("bf16");
  else WGMMA_COLUMNS_OF("f16");
#undef WGMMA_COLUMNS_OF
}

#endif
#endif
