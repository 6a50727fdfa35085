// SPDX-License-Identifier: Apache-2.0
/* The linear layers of experts: one launch for the GEMMs of all experts, whose rows the kernel
 * finds in the plan. */
#include "device/cuda/fp8_matmul.h"
#include "kernels/cuda/expert_shape.h"
#include <assert.h>

static const char *moved(const void *data, int64_t elements, tsr_cuda_type type) {
  return (const char *)data + elements * (type == TSR_CUDA_F32 ? 4 : 2);
}

static cuda_expert_scratch scratch_of(const cuda_call *c) {
  return cuda_expert_scratch_at(c->call.program, c->call.task, cuda_scratch(c));
}

static void find_segments(const cuda_call *c, int plan, int64_t units) {
  const tsr_expert_rows *r = c->call.task->experts;
  cuda_expert_scratch s = scratch_of(c);
  tsr_cuda_expert_segments of = {.first = tsr_task_first_expert(&c->call), .count = r->here};
  of.units = units;
  of.unit_slots = r->tokens / units * r->choices;
  of.R = cuda_x(c, plan)->shape[0];
  of.tile_rows = s.operands ? FP8_TILE_M : expert_tile_rows(cuda_type(cuda_x(c, 0)));
  tsr_cuda_find_expert_segments(c->state->stream, s.starts, s.tiles, cuda_in(c, plan), &of);
}

/* In FP8: of inputs 0 and 1, over unit `unit` of what is summed of their columns. */
static void run_fp8(const cuda_call *c, const tsr_cuda_expert_gemm *of, int64_t unit) {
  void *operands = scratch_of(c).operands;
  cuda_fp8_operand a = cuda_fp8_operand_at(c->call.task, 0, operands),
                   b = cuda_fp8_operand_at(c->call.task, 1, operands);
  tsr_cuda_expert_fp8_gemm p = {
      .of = *of,
      .a = cuda_fp8_matrix(&a, unit), // (M, K)
      .b = cuda_fp8_matrix(&b, unit), // (N, K)
      .a_format = a.of.layout.format};
  if (!b.of.has_runs) {
    p.b_codes = tsr_cuda_fp8_operand_codes(&b.of);
    p.b_scales = tsr_cuda_fp8_operand_scales(&b.of);
  }
  tsr_cuda_type type = of->c_is_f32 ? TSR_CUDA_F32 : cuda_type(cuda_y(c, 0));
  tsr_cuda_run_expert_fp8_gemm(c->state->stream, type, &p);
}

/* ---- y (R, N) = x (R, K) w[e] (N, K)^T; its gradient dx (R, K) = dy (R, N) w[e] is the same with
 * the weight's other dimension. The units of tp split what is summed ---- */

enum { PLAN = 2 };

static void linear_part(const cuda_call *c, int64_t leaf, void *into, bool in_f32) {
  const tsr_tensor *x = cuda_x(c, 0), *y = cuda_y(c, 0);
  cuda_expert_scratch s = scratch_of(c);
  bool forward = c->call.task->op == TSR_OP_EXPERT_LINEAR;
  int64_t whole = tsr_tensor_last(x), N = tsr_tensor_last(y);
  int64_t K = whole / tsr_reduction_leaves(&c->call.task->sum), first = leaf * K;
  tsr_cuda_type type = cuda_type(x);
  tsr_cuda_expert_gemm p = {
      .form = forward ? TSR_CUDA_EXPERT_FORWARD : TSR_CUDA_EXPERT_DX,
      .count = c->call.task->experts->here,
      .R = y->shape[0],
      .N = N,
      .K = K,
      .a = moved(cuda_in(c, 0), first, type),
      .b = moved(cuda_in(c, 1), forward ? first : first * N, type),
      .a_stride = whole,
      .b_stride = forward ? whole : N,
      .b_expert = whole * N,
      .c = into,
      .c_is_f32 = in_f32,
      .starts = s.starts,
      .tiles = s.tiles,
      .units = 1,
      .end_unit = 1};
  if (s.operands) run_fp8(c, &p, leaf);
  else tsr_cuda_run_expert_gemm(c->state->stream, type, &p);
}

static void
linear_leaf(const cuda_call *c, void *context, int64_t block, int64_t leaf, void *into) {
  (void)context, (void)block;
  linear_part(c, leaf, into, true);
}

/* Rows behind the last are zeros. */
static void linear_run(const cuda_call *c) {
  const tsr_task *t = c->call.task;
  const tsr_tensor *y = cuda_y(c, 0);
  cuda_expert_scratch s = scratch_of(c);
  int64_t elements = tsr_tensor_elements(y);
  tsr_cuda_type type = cuda_type(y);
  assert(tsr_reduction_blocks(&t->sum) == 1);
  assert(t->fp8 || cuda_type(cuda_x(c, 0)) == cuda_type(cuda_x(c, 1)));
  find_segments(c, PLAN, 1);
  if (s.operands) cuda_fp8_quantize(c, s.operands, s.starts);
  if (tsr_reduction_leaves(&t->sum) == 1) {
    linear_part(c, 0, cuda_out(c, 0), type == TSR_CUDA_F32);
  } else {
    float *out = s.wide ? s.wide : cuda_out(c, 0);
    cuda_add_leaves(c, 0, out, s.stack, elements, elements, linear_leaf, NULL);
    if (s.wide) tsr_cuda_cast(c->state->stream, type, cuda_out(c, 0), TSR_CUDA_F32, out, elements);
  }
  tsr_cuda_clear_expert_rows(
      c->state->stream, type, cuda_out(c, 0), cuda_in(c, PLAN), y->shape[0], tsr_tensor_last(y));
}
const cuda_op cuda_expert_linear = linear_run;

/* ---- dw[e] (N, K) = dy^T (N, rows) x (rows, K), over the rows of each batch unit in turn
 * (schedule/expert_rows.h). The gradient of biases has no x: it is the sum of dy's rows ---- */

/* The microbatch's batch units [first, end), which are of one leaf. */
typedef struct {
  int64_t first, end, leaf;
  bool begins, ends; /* the leaf */
} leaf_part;

static leaf_part part_from(const cuda_call *c, int64_t units, int64_t first) {
  const tsr_expert_rows *r = c->call.task->experts;
  int64_t before = r->accumulates ? c->call.at.microbatch * units : 0;
  int64_t leaf = (before + first) / r->leaf_units, end = (leaf + 1) * r->leaf_units - before;
  leaf_part p = {.first = first, .end = end < units ? end : units, .leaf = leaf};
  p.begins = (before + first) % r->leaf_units == 0;
  p.ends = p.end == end;
  return p;
}

/* Entry i of the stack of leaves: those of a sum over microbatches lie in the output. */
static float *dw_entry(const cuda_call *c, int i) {
  cuda_expert_scratch s = scratch_of(c);
  int64_t elements = tsr_tensor_elements(cuda_y(c, 0));
  if (c->call.task->experts->accumulates)
    return (float *)cuda_out(c, 0) + i * ((elements + 15) / 16 * 16);
  return i ? s.stack + (i - 1) * elements : cuda_out(c, 0);
}

static int entry_of(const cuda_call *c, int64_t leaf) {
  return tsr_tree_of_entries(c->call.program->lowering.tree, c->call.task->experts->leaves, leaf);
}

static void add_part(const cuda_call *c, const leaf_part *part, int64_t units) {
  const tsr_tensor *dy = cuda_x(c, 0), *dw = cuda_y(c, 0);
  cuda_expert_scratch s = scratch_of(c);
  float *into = dw_entry(c, entry_of(c, part->leaf));
  int64_t here = c->call.task->experts->here, N = tsr_tensor_last(dy);
  tsr_cuda_type type = cuda_type(dy);
  if (c->call.task->inputs_count == 3) {
    tsr_cuda_expert_row_sums(
        c->state->stream, type, into, cuda_in(c, 0), s.starts, here, N, units, part->first,
        part->end, !part->begins);
    return;
  }
  tsr_cuda_expert_gemm p = {
      .form = TSR_CUDA_EXPERT_DW,
      .count = here,
      .R = dy->shape[0],
      .M = N,
      .N = tsr_tensor_last(dw),
      .a = cuda_in(c, 0),
      .b = cuda_in(c, 1),
      .a_stride = N,
      .b_stride = tsr_tensor_last(dw),
      .c = into,
      .c_is_f32 = true,
      .adds = !part->begins,
      .starts = s.starts,
      .units = units,
      .first_unit = part->first,
      .end_unit = part->end};
  assert(s.operands || type == cuda_type(cuda_x(c, 1)));
  if (s.operands) run_fp8(c, &p, 0);
  else tsr_cuda_run_expert_gemm(c->state->stream, type, &p);
}

/* After the last rows of a leaf: adds what the tree has complete. */
static void add_complete(const cuda_call *c, int64_t leaf) {
  tsr_tree_shape shape = c->call.program->lowering.tree;
  int64_t leaves = c->call.task->experts->leaves, elements = tsr_tensor_elements(cuda_y(c, 0));
  tsr_tree_stack tree = {.entries = entry_of(c, leaf)};
  tsr_tree_push(&tree, tsr_tree_of_merges(shape, leaves, leaf));
  for (int low; tsr_tree_merge(&tree, &low);)
    tsr_cuda_add(
        c->state->stream, TSR_CUDA_F32, dw_entry(c, low), dw_entry(c, low), dw_entry(c, low + 1),
        elements);
}

static void dw_run(const cuda_call *c) {
  const tsr_expert_rows *r = c->call.task->experts;
  int64_t units = r->tokens / r->unit_tokens;
  assert(cuda_y(c, 0)->dtype == TSR_F32);
  cuda_expert_scratch s = scratch_of(c);
  find_segments(c, c->call.task->inputs_count - 2, units);
  if (s.operands) cuda_fp8_quantize(c, s.operands, s.starts);
  for (int64_t first = 0; first < units;) {
    leaf_part part = part_from(c, units, first);
    add_part(c, &part, units);
    if (part.ends) add_complete(c, part.leaf);
    first = part.end;
  }
}
const cuda_op cuda_expert_linear_dw = dw_run;
