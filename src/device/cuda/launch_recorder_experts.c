// SPDX-License-Identifier: Apache-2.0
/* The recorder's kernels of a mixture of experts. */
#include "device/cuda/launch_recorder.h"
#include "kernels/cuda/copy_walk.h"
#include "kernels/cuda/expert_shape.h"

/* ---- router.cu ---- */

void tsr_cuda_choose_experts(
    tsr_cuda_stream s, const tsr_choice *r, int32_t *experts, const float *scores,
    const float *bias, int64_t S, uint64_t place, uint64_t *nan_place, void *scratch) {
  UNUSED(experts, scores, bias, &place, nan_place, scratch);
  if (S > 0) record(s, "choose_experts", launch_choose_experts(S, r->groups));
}
void tsr_cuda_expert_weights(
    tsr_cuda_stream s, const tsr_choice_weights *w, float *weights, const float *scores,
    const int32_t *experts, int64_t S) {
  UNUSED(w, weights, scores, experts);
  if (S > 0) record(s, "expert_weights", launch_map(S));
}
void tsr_cuda_expert_weights_backward(
    tsr_cuda_stream s, const tsr_choice_weights *w, float *dscores, const float *dweights,
    const float *scores, const int32_t *experts, int64_t S) {
  UNUSED(dweights, scores, experts);
  if (S <= 0) return;
  tsr_cuda_zero(s, dscores, S * w->E * (int64_t)sizeof *dscores);
  record(s, "expert_weights_backward", launch_map(S));
}
void tsr_cuda_expert_counts(
    tsr_cuda_stream s, float *counts, const int32_t *experts, const tsr_cuda_expert_counting *of) {
  UNUSED(counts, experts);
  record(s, "expert_counts", launch_expert_counts(of));
}
void tsr_cuda_balance_backward(
    tsr_cuda_stream s, float *dscores, const float *counts, const float *scores, int64_t S,
    int64_t E, const tsr_cuda_balance *b) {
  UNUSED(dscores, counts, scores, &E, b);
  if (S > 0) record(s, "balance_backward", launch_map(S));
}
void tsr_cuda_router_z_backward(
    tsr_cuda_stream s, float *dlogits, const float *logits, int64_t S, int64_t E, float factor,
    const float *more) {
  UNUSED(dlogits, logits, &E, &factor, more);
  if (S > 0) record(s, "router_z_backward", launch_map(S));
}
void tsr_cuda_expert_bias(
    tsr_cuda_stream s, float *bias, const float *counts, int64_t E, int digit, double rate,
    bool centre, const float *clip) {
  UNUSED(bias, counts, &E, &digit, &rate, &centre, clip);
  record(s, "expert_bias", launch_expert_update());
}
void tsr_cuda_expert_load(
    tsr_cuda_stream s, float *load, const float *counts, int64_t E, int digit, const float *clip) {
  UNUSED(load, counts, &E, &digit, clip);
  record(s, "expert_load", launch_expert_update());
}

/* ---- expert_plan.cu ---- */

void tsr_cuda_expert_plan(
    tsr_cuda_stream s, const tsr_experts *e, const tsr_capacity *capacity, int32_t *plan,
    const int32_t *experts, const float *priority, int64_t S, int64_t R, void *scratch) {
  int64_t slots = S * e->k, counts = e->count * launch_pieces(slots, EXPERT_CHUNK);
  UNUSED(plan, experts, priority, scratch);
  record(s, "plan_clear", launch_map(2 * R + counts));
  record(s, "plan_count", launch_expert_chunks(slots));
  record(s, "plan_scan", launch_scan());
  record(s, "plan_sort", launch_expert_chunks(slots));
  if (!capacity->slots) return;
  record(s, "plan_units", launch_map(e->count * (S / capacity->unit_tokens) + 1));
  record(s, "plan_scan", launch_scan());
  record(s, "plan_keep", launch_map(slots));
  record(s, "plan_place", launch_map(slots));
}

/* ---- expert_rows.cu ---- */

void tsr_cuda_permute_rows(
    tsr_cuda_stream s, void *rows, const void *x, const int32_t *plan, int64_t R, int64_t k,
    int64_t bytes) {
  int64_t elements = bytes / copy_row_element(rows, x, bytes);
  UNUSED(plan, &k);
  if (R * elements > 0) record(s, "permute_rows", launch_map(R * elements));
}
void tsr_cuda_expert_add(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *rows, const void *bias,
    const int32_t *plan, int64_t first, int64_t R, int64_t C) {
  UNUSED(&type, out, rows, bias, plan, &first);
  if (R > 0 && C > 0) record(s, "expert_add", launch_rows(R, C));
}
void tsr_cuda_expert_row_of(
    tsr_cuda_stream s, int32_t *row_of, const int32_t *plan, int64_t slots, int64_t R) {
  UNUSED(row_of, plan);
  if (slots > 0) record(s, "slots_clear", launch_map(slots));
  if (R > 0) record(s, "slots_find", launch_map(R));
}
void tsr_cuda_combine_rows(
    tsr_cuda_stream s, const tsr_experts *e, tsr_cuda_type tokens, void *y, tsr_cuda_type type,
    const void *rows, const float *weights, const int32_t *plan, const int32_t *row_of, int64_t S,
    int64_t C) {
  UNUSED(&tokens, y, &type, rows, weights, plan, row_of);
  if (S > 0 && C > 0) record(s, "combine_rows", launch_combine_rows(S, e->k, C));
}
void tsr_cuda_combine_rows_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *drows, float *dweights, tsr_cuda_type tokens,
    const void *dy, const void *rows, const float *weights, const int32_t *plan, int64_t S,
    int64_t k, int64_t R, int64_t C) {
  UNUSED(&type, drows, &tokens, dy, rows, weights, plan, &C);
  tsr_cuda_zero(s, dweights, S * k * (int64_t)sizeof *dweights);
  if (R > 0) record(s, "combine_rows_backward", launch_combine_backward(R));
}

/* ---- expert_gemm.cu, expert_gemm_tensor.cu, expert_gemm_fp8.cu ---- */

void tsr_cuda_find_expert_segments(
    tsr_cuda_stream s, int32_t *starts, int32_t *tiles, const int32_t *plan,
    const tsr_cuda_expert_segments *of) {
  UNUSED(starts, tiles, plan, of);
  record(s, "expert_segments", launch_scan());
}
void tsr_cuda_run_expert_gemm(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_gemm *p) {
  tsr_launch_shape shape = launch_expert_gemm(type, p);
  bool dw = p->form == TSR_CUDA_EXPERT_DW;
  if (!shape.grid[0]) return;
  record_tile(
      s, type == TSR_CUDA_F32 ? "expert_gemm" : "expert_gemm_tensor", shape,
      product(s, dw ? p->M : p->R, p->N, dw ? p->R : p->K));
}
void tsr_cuda_run_expert_fp8_gemm(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_fp8_gemm *p) {
  const tsr_cuda_expert_gemm *of = &p->of;
  tsr_launch_shape shape = launch_expert_fp8_gemm(of);
  bool dw = of->form == TSR_CUDA_EXPERT_DW;
  UNUSED(&type);
  if (shape.grid[0])
    record_tile(
        s, "expert_gemm_fp8", shape, product(s, dw ? of->M : of->R, of->N, dw ? of->R : of->K));
}
void tsr_cuda_clear_expert_rows(
    tsr_cuda_stream s, tsr_cuda_type type, void *c, const int32_t *plan, int64_t R, int64_t N) {
  UNUSED(&type, c, plan);
  if (R * N > 0) record(s, "clear_rows", launch_map(R * N));
}
void tsr_cuda_expert_row_sums(
    tsr_cuda_stream s, tsr_cuda_type type, float *out, const void *dy, const int32_t *starts,
    int64_t count, int64_t N, int64_t units, int64_t first_unit, int64_t end_unit, bool adds) {
  UNUSED(&type, out, dy, starts, &units, &first_unit, &end_unit, &adds);
  if (count * N > 0) record(s, "expert_row_sums", launch_map(count * N));
}
