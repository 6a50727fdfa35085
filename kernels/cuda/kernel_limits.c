// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/kernel_limits.h"
#include "kernels/cuda/expert_shape.h"
#include "kernels/ring_attention_merge.h"

bool tsr_cuda_has_unary(tsr_unary kind) {
  switch ((int)kind) {
#define CASE(ID, name) case TSR_UNARY_##ID:
    TSR_CUDA_UNARY_LIST(CASE)
#undef CASE
    return true;
  }
  return false;
}

int64_t tsr_cuda_gemm_operand_bytes(int64_t elements, int64_t bytes) {
  return (elements * bytes + 255) / 256 * 256;
}

int64_t tsr_cuda_gemm_scratch(int64_t M, int64_t N, int64_t K, int in, int out, bool epilogue) {
  int64_t bytes = tsr_cuda_gemm_operand_bytes(M * K, in) + tsr_cuda_gemm_operand_bytes(K * N, in) +
                  tsr_cuda_gemm_operand_bytes(M * N, out);
  if (!epilogue) return bytes;
  return bytes + tsr_cuda_gemm_operand_bytes(N, out) + tsr_cuda_gemm_operand_bytes(M * N, out);
}

/* One sum for each run of rows. */
int64_t tsr_cuda_sum_rows_scratch(int64_t rows, int64_t C) {
  return (rows + TSR_CUDA_ROWS - 1) / TSR_CUDA_ROWS * C * (int64_t)sizeof(float);
}

/* A double for each block. */
int64_t tsr_cuda_sum_scratch(int64_t n) {
  int64_t blocks = (n + TSR_SUM_BLOCK - 1) / TSR_SUM_BLOCK;
  return (blocks > 0 ? blocks : 1) * (int64_t)sizeof(double);
}

/* The same for each rectangle; none where each has one block. */
int64_t tsr_cuda_gradient_scratch(const tsr_norm_grid *g) {
  int64_t blocks = (tsr_norm_grid_most(g) + TSR_SUM_BLOCK - 1) / TSR_SUM_BLOCK;
  return blocks > 1 ? (int64_t)g->units * g->pieces * blocks * (int64_t)sizeof(double) : 0;
}

/* The tokens' counting sort: how many rows each token has, where they begin, and the rows twice. */
int64_t tsr_cuda_embedding_scratch(int64_t R, int64_t v_begin, int64_t v_end) {
  return (2 * (v_end - v_begin) + 1 + 2 * R) * (int64_t)sizeof(int32_t);
}

/* A number for each row of queries. */
int64_t tsr_cuda_attention_scratch(const tsr_attention *a) {
  return a->B * a->H * a->T * (int64_t)sizeof(float);
}

/* A key for each group. */
int64_t tsr_cuda_choose_experts_scratch(int64_t S, int64_t groups) {
  return groups > EXPERT_SHARED_GROUPS ? S * groups * (int64_t)sizeof(float) : 0;
}

/* Where the slots of each expert and chunk begin; with a capacity the slots by expert, where those
 * of each expert and batch unit begin, twice, and which are kept. */
int64_t
tsr_cuda_expert_plan_scratch(int64_t count, int64_t S, int64_t k, const tsr_capacity *capacity) {
  int64_t slots = S * k, chunks = launch_pieces(slots, EXPERT_CHUNK);
  int64_t words = count * chunks + 1;
  if (capacity->slots) words += 2 * slots + 2 * (count * (S / capacity->unit_tokens) + 1);
  return words * (int64_t)sizeof(int32_t);
}

/* ---- sums over units ---- */

enum { ROWS_AT_ONCE = 1 << 17 }; /* enough for the whole device */

tsr_cuda_ring_size tsr_cuda_ring_size_of(const tsr_attention_ring *r, tsr_attention_sum sum) {
  bool queries = sum == TSR_ATTENTION_DKV; /* are at hand */
  const tsr_ring map = {r->units, r->members, r->coord, r->zigzag, queries};
  int64_t D = r->a.D, Dv = tsr_attention_value_size(&r->a),
          most = r->a.T < ROWS_AT_ONCE ? ROWS_AT_ONCE / r->a.T : 1;
  tsr_cuda_ring_size s = {.lines = r->a.B * (queries ? r->a.G : r->a.H)};
  s.lines_at_once = s.lines < most ? s.lines : most;
  s.runs = r->units / r->members;
  s.unit = r->length / r->units;
  s.sums = sum == TSR_ATTENTION_OUT ? Dv : sum == TSR_ATTENTION_DQ ? D : D + Dv;
  s.width = s.sums + (sum == TSR_ATTENTION_OUT ? 2 : 0);
  s.slots = tsr_ring_slots(&map);
  s.temps = tsr_ring_temps(&map);
  return s;
}

static int64_t slot_bytes(const tsr_cuda_ring_size *s, int64_t lines) {
  return lines * s->runs * s->unit * s->width * (int64_t)sizeof(float);
}

int64_t tsr_cuda_attention_ring_acc(const tsr_attention_ring *r, tsr_attention_sum sum) {
  tsr_cuda_ring_size s = tsr_cuda_ring_size_of(r, sum);
  return s.slots * slot_bytes(&s, s.lines);
}

int64_t tsr_cuda_attention_ring_scratch(const tsr_attention_ring *r, tsr_attention_sum sum) {
  tsr_cuda_ring_size s = tsr_cuda_ring_size_of(r, sum);
  return s.temps * slot_bytes(&s, s.lines_at_once);
}
