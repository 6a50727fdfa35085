// SPDX-License-Identifier: Apache-2.0
/* GEMMs of experts in FP8: the tiles of fp8_gemm.cuh. Of a gradient of weights a batch unit's rows
 * of an expert are a run of the sum, which begins with a block of its own. */
#include "kernels/cuda/expert_gemm.cuh"
#include "kernels/cuda/fp8_gemm.cuh"

/* What fp8_gemm.cuh needs of the block's step. */
template <tsr_cuda_expert_form FORM>
static __device__ inline fp8_step
step_of(const tsr_cuda_expert_gemm &p, int64_t expert, const sum_step &s) {
  fp8_step step = {0, 0, s.k, s.end};
  if (FORM != TSR_CUDA_EXPERT_DW) return step;
  int64_t run = expert * p.units + s.unit;
  int32_t first = p.starts[run];
  step.codes = tsr_cuda_fp8_run_codes(first, run);
  step.block = (int32_t)tsr_cuda_fp8_run_block(first, run);
  step.k -= first, step.size -= first;
  return step;
}

/* FORWARD is DX, too: codes lie along what is summed. */
template <typename T, tsr_fp8_format FORMAT, tsr_cuda_expert_form FORM>
static __global__ void __launch_bounds__(FP8_GEMM_THREADS, 2)
    expert_gemm_fp8(tsr_cuda_expert_fp8_gemm p, int64_t row_tiles) {
  TSR_SHARED(uint16_t, shared);
  expert_tile t;
  if (!find_tile(p.of, FP8_TILE_M, FP8_TILE_N, row_tiles, &t)) return;
  tsr_cuda_fp8_gemm g = {t.m + t.rows, p.of.N, 0, p.a, p.b, p.a_format, p.of.c, p.of.adds};
  g.b.codes += t.expert * p.b_codes;
  g.b.scales += t.expert * p.b_scales;
  if (FORM == TSR_CUDA_EXPERT_DW) g.c = (T *)p.of.c + t.expert * p.of.M * p.of.N;
  fp8_tile_of_c tile = {t.m, t.n};
  sum_step at = first_step<FORM>(p.of, t.expert);
  compute_tile<T, FORMAT>(
      shared, g, tile, step_of<FORM>(p.of, t.expert, at), [&](const fp8_step &) {
        at = next_step<FORM>(p.of, t.expert, at, TSR_FP8_BLOCK);
        return step_of<FORM>(p.of, t.expert, at);
      });
}

template <typename T, tsr_fp8_format FORMAT, tsr_cuda_expert_form FORM>
static void run(tsr_cuda_stream s, const tsr_cuda_expert_fp8_gemm *p) {
  tsr_launch_shape shape = launch_expert_fp8_gemm(&p->of);
  TSR_ALLOW_SHARED((expert_gemm_fp8<T, FORMAT, FORM>), shape.shared_bytes);
  TSR_LAUNCH(
      (expert_gemm_fp8<T, FORMAT, FORM>), shape, s, *p, expert_row_tiles(&p->of, FP8_TILE_M));
}

template <tsr_fp8_format FORMAT>
static void
run_in_format(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_fp8_gemm *p) {
  if (p->of.form == TSR_CUDA_EXPERT_DW) run<float, FORMAT, TSR_CUDA_EXPERT_DW>(s, p);
  else TSR_BY_TYPE(type, T, (run<T, FORMAT, TSR_CUDA_EXPERT_FORWARD>(s, p)))
}

extern "C" void tsr_cuda_run_expert_fp8_gemm(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_fp8_gemm *p) {
  if (!launch_expert_fp8_gemm(&p->of).grid[0]) return;
  if (p->a_format == TSR_FP8_E5M2) run_in_format<TSR_FP8_E5M2>(s, type, p);
  else run_in_format<TSR_FP8_E4M3>(s, type, p);
}
