// SPDX-License-Identifier: Apache-2.0
/* The GEMM of codes of FP8 with a scale for each block: a block of threads has a tile of c. */
#include "kernels/cuda/fp8_gemm.cuh"
#include "kernels/cuda/tile_order.cuh"

template <typename T, tsr_fp8_format FORMAT>
static __global__ void __launch_bounds__(FP8_GEMM_THREADS, 2) fp8_gemm(tsr_cuda_fp8_gemm p) {
  TSR_SHARED(uint16_t, shared);
  tile_index at = tile_of_block(tiles_of(p.M, FP8_TILE_M), tiles_of(p.N, FP8_TILE_N));
  fp8_tile_of_c t = {at.row * FP8_TILE_M, at.column * FP8_TILE_N};
  fp8_step first = {0, 0, 0, (int32_t)p.K};
  compute_tile<T, FORMAT>(shared, p, t, first, [](fp8_step s) {
    s.k += (int32_t)TSR_FP8_BLOCK;
    return s;
  });
}

template <typename T, tsr_fp8_format FORMAT>
static void run(tsr_cuda_stream s, const tsr_cuda_fp8_gemm *p) {
  tsr_launch_shape shape = launch_fp8_gemm(p->M, p->N);
  TSR_ALLOW_SHARED((fp8_gemm<T, FORMAT>), shape.shared_bytes);
  TSR_LAUNCH((fp8_gemm<T, FORMAT>), shape, s, *p);
}

extern "C" void
tsr_cuda_run_fp8_gemm(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_fp8_gemm *p) {
  if (p->M <= 0 || p->N <= 0) return;
  if (p->a_format == TSR_FP8_E5M2) TSR_BY_TYPE(type, T, (run<T, TSR_FP8_E5M2>(s, p)))
  else TSR_BY_TYPE(type, T, (run<T, TSR_FP8_E4M3>(s, p)))
}
