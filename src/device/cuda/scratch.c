// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/scratch.h"
#include "device/cuda/gemm_calls.h"
#include "kernels/cuda/fp8_shape.h"
#include "schedule/fuse.h"

static void *offset(char *at, int64_t bytes) { return at ? at + bytes : NULL; }

/* ---- sums of GEMMs ---- */

static tsr_cuda_fp8_operand fp8_operand_of(const tsr_task *t, int i) {
  const tsr_fp8_operand *o = &t->fp8->inputs[i];
  const tsr_expert_rows *r = t->experts;
  tsr_cuda_fp8_operand operand = {.layout = o->layout, .sums_rows = o->sums_rows, .count = 1};
  if (!r) return operand;
  bool dw = t->op == TSR_OP_EXPERT_LINEAR_DW;
  operand.count = dw ? r->here * (r->tokens / r->unit_tokens) : r->here;
  operand.has_runs = dw || i == 0;
  if (!operand.has_runs) operand.layout.rows /= r->here; /* a weight for each expert */
  return operand;
}

static int64_t codes_bytes(const tsr_cuda_fp8_operand *o) {
  return cuda_aligned((o->has_runs ? 1 : o->count) * tsr_cuda_fp8_operand_codes(o));
}
static int64_t scales_bytes(const tsr_cuda_fp8_operand *o) {
  int64_t scales = (o->has_runs ? 1 : o->count) * tsr_cuda_fp8_operand_scales(o);
  return cuda_aligned(scales * (int64_t)sizeof(float));
}
/* Of the first `count` inputs. */
static int64_t fp8_bytes(const tsr_task *t, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) {
    tsr_cuda_fp8_operand o = fp8_operand_of(t, i);
    if (o.layout.rows) bytes += codes_bytes(&o) + scales_bytes(&o);
  }
  return bytes;
}

cuda_fp8_operand cuda_fp8_operand_at(const tsr_task *t, int i, char *operands) {
  cuda_fp8_operand o = {.of = fp8_operand_of(t, i)};
  char *codes = operands + fp8_bytes(t, i);
  void *scales = codes + codes_bytes(&o.of);
  o.codes = (uint8_t *)codes;
  o.scales = scales;
  return o;
}

cuda_matmul_scratch cuda_matmul_scratch_at(const tsr_task_call *c, char *at) {
  const tsr_task *t = c->task;
  int64_t elements = tsr_task_block_elements(t);
  int64_t wide = cuda_matmul_is_wide(t) ? cuda_aligned(elements * 4) : 0;
  int64_t batch = t->fused == TSR_FUSED_GEMMS ? t->outputs_count : 1;
  int64_t stack = tsr_task_stack_bytes(t, batch * elements);
  int64_t operands = t->fp8 ? fp8_bytes(t, t->fp8->count) : cuda_gemm_calls_scratch(c);
  if (operands) stack = cuda_aligned(stack);
  return (cuda_matmul_scratch){
      .wide = wide ? offset(at, 0) : NULL,
      .stack = offset(at, wide),
      .operands = operands ? offset(at, wide + stack) : NULL,
      .bytes = wide + stack + operands};
}

tsr_tensor cuda_logits_gradient_at(const tsr_task *t) {
  tsr_linear_cross_entropy of = tsr_linear_cross_entropy_of(t);
  const tsr_task *reader = of.dw ? of.dw : of.dx;
  tsr_tensor gradient = of.loss_dx->outputs[0];
  gradient.dtype = reader->inputs[1].dtype;
  gradient.segment = TSR_SEGMENT_WORK;
  gradient.slot_group = -1;
  gradient.offset = t->scratch_offset + t->cast_bytes;
  return gradient;
}

void cuda_gradient_task_of(
    const tsr_task *covered, bool writes, const tsr_tensor *gradient, cuda_gradient_task *ret) {
  ret->task = *covered;
  ret->gradient = *gradient;
  for (int i = 0; i < covered->inputs_count; i++) ret->inputs[i] = covered->inputs[i];
  if (!writes) ret->inputs[0] = *gradient;
  ret->task.inputs = ret->inputs;
  if (writes) ret->task.outputs = &ret->gradient;
  ret->task.scratch_offset = gradient->offset + cuda_aligned(tsr_tensor_bytes(gradient));
}

static int64_t logits_gradient_bytes(const tsr_program *p, const tsr_task *t) {
  tsr_linear_cross_entropy of = tsr_linear_cross_entropy_of(t);
  tsr_tensor gradient = cuda_logits_gradient_at(t);
  const tsr_task *gemms[] = {of.dw, of.dx};
  int64_t most = 0;
  for (int i = 0; i < 2; i++) {
    cuda_gradient_task reader;
    if (!gemms[i]) continue;
    cuda_gradient_task_of(gemms[i], false, &gradient, &reader);
    tsr_task_call call = {.program = p, .task = &reader.task};
    int64_t bytes = cuda_matmul_scratch_at(&call, NULL).bytes;
    if (bytes > most) most = bytes;
  }
  return cuda_aligned(tsr_tensor_bytes(&gradient)) + most;
}

/* ---- attention ---- */

cuda_attention_scratch
cuda_attention_scratch_at(const tsr_attention_ring *r, bool backward, char *at) {
  tsr_attention_sum first = backward ? TSR_ATTENTION_DQ : TSR_ATTENTION_OUT;
  int64_t acc = cuda_aligned(tsr_cuda_attention_ring_acc(r, first));
  int64_t kernel = tsr_cuda_attention_ring_scratch(r, first), dkv = 0, rows = 0;
  if (backward) {
    int64_t other = tsr_cuda_attention_ring_scratch(r, TSR_ATTENTION_DKV);
    dkv = cuda_aligned(tsr_cuda_attention_ring_acc(r, TSR_ATTENTION_DKV));
    rows = cuda_aligned(r->a.B * r->a.H * r->a.T * 3 * 4);
    if (other > kernel) kernel = other;
  }
  return (cuda_attention_scratch){
      .first = offset(at, 0),
      .dkv = offset(at, acc),
      .rows = offset(at, acc + dkv),
      .kernel = offset(at, acc + dkv + rows),
      .bytes = acc + dkv + rows + kernel};
}

static int64_t attention_bytes(const tsr_program *p, const tsr_task *t) {
  const tsr_task_call sizes = {.program = p, .task = t};
  bool backward = t->op == TSR_OP_ATTENTION_DX;
  tsr_attention_ring r = tsr_attention_ring_of(&sizes);
  if (tsr_program_splits_sequences(p)) return cuda_attention_scratch_at(&r, backward, NULL).bytes;
  return backward ? tsr_cuda_attention_scratch(&r.a) : 0;
}

static int64_t document_gradients_bytes(const tsr_program *p, const tsr_task *t) {
  const tsr_task_call sizes = {.program = p, .task = t};
  tsr_attention a = tsr_document_attention_of(&sizes);
  return tsr_cuda_attention_scratch(&a);
}

tsr_attention_sum cuda_ring_sum_of(tsr_op op) {
  switch ((int)op) {
  case TSR_OP_RING_DQ:
    return TSR_ATTENTION_DQ;
  case TSR_OP_RING_DKV:
    return TSR_ATTENTION_DKV;
  default:
    return TSR_ATTENTION_OUT;
  }
}

static int64_t ring_step_bytes(const tsr_program *p, const tsr_task *t) {
  const tsr_task_call sizes = {.program = p, .task = t};
  tsr_attention_ring r = tsr_attention_ring_of(&sizes);
  return tsr_cuda_attention_ring_scratch(&r, cuda_ring_sum_of(t->op));
}

/* ---- sums over rows ---- */

cuda_loss_scratch cuda_loss_scratch_at(const tsr_task *t, char *at) {
  int64_t rows = tsr_task_loss_rows(t), row_bytes = cuda_aligned(rows * 4), part = cuda_aligned(4),
          stack = cuda_aligned(tsr_task_stack_bytes(t, 1));
  return (cuda_loss_scratch){
      .rows = rows,
      .row_loss = offset(at, 0),
      .part = offset(at, row_bytes),
      .stack = offset(at, row_bytes + part),
      .kernel = offset(at, row_bytes + part + stack),
      .bytes = row_bytes + part + stack + tsr_cuda_sum_scratch(rows)};
}

cuda_row_sum_scratch cuda_row_sum_scratch_at(const tsr_task *t, char *at) {
  int64_t C = tsr_task_block_elements(t), rows = tsr_tensor_elements(&t->inputs[0]) / C;
  int64_t part = cuda_aligned(C * 4), stack = cuda_aligned(tsr_task_stack_bytes(t, C));
  return (cuda_row_sum_scratch){
      .C = C,
      .part = offset(at, 0),
      .stack = offset(at, part),
      .kernel = offset(at, part + stack),
      .bytes = part + stack + tsr_cuda_sum_rows_scratch(rows, C)};
}

cuda_embedding_scratch cuda_embedding_scratch_at(const tsr_task *t, char *at) {
  int64_t all = tsr_tensor_elements(&t->inputs[0]), rows = all / tsr_reduction_blocks(&t->sum);
  int64_t kernel = cuda_aligned(tsr_cuda_embedding_scratch(rows, 0, t->outputs[0].shape[0]));
  bool reordered = !tsr_reduction_is_contiguous(&t->sum);
  return (cuda_embedding_scratch){
      .kernel = offset(at, 0),
      .tokens = reordered ? offset(at, kernel) : NULL,
      .row_of = reordered ? offset(at, kernel + 4 * all) : NULL,
      .bytes = kernel + (reordered ? 2 * 4 * all : 0)};
}

static int64_t gradient_norms_bytes(const tsr_task *t) {
  int64_t bytes = 0;
  for (int i = 0; i < tsr_task_nodes(t); i++) {
    tsr_norm_grid grid = tsr_norm_grid_of(&t->norm[i], 0);
    bytes += tsr_cuda_gradient_scratch(&grid);
  }
  return bytes;
}

/* ---- mixture of experts ---- */

static int64_t choose_experts_bytes(const tsr_program *p, const tsr_task *t) {
  int64_t groups = p->graph->nodes[t->node].attr.choose_experts.groups;
  return tsr_cuda_choose_experts_scratch(tsr_tensor_rows(&t->inputs[0]), groups);
}

static int64_t expert_plan_bytes(const tsr_task *t) {
  const tsr_expert_rows *r = t->experts;
  const tsr_capacity capacity = {r->slots, r->unit_tokens};
  return tsr_cuda_expert_plan_scratch(r->here, r->tokens, r->choices, &capacity);
}

/* Of the sum of a gradient over a microbatch; one over all of them is a stack in the output. */
static int64_t expert_leaves_bytes(const tsr_program *p, const tsr_task *t) {
  if (t->experts->accumulates) return 0;
  int depth = tsr_tree_of_depth(p->lowering.tree, t->experts->leaves);
  return (depth - 1) * tsr_tensor_bytes(&t->outputs[0]);
}

cuda_expert_scratch cuda_expert_scratch_at(const tsr_program *p, const tsr_task *t, char *at) {
  bool dw = t->op == TSR_OP_EXPERT_LINEAR_DW;
  const tsr_expert_rows *r = t->experts;
  const tsr_tensor *y = &tsr_kernel_outputs(t)[0];
  int64_t elements = tsr_tensor_elements(y), units = dw ? r->tokens / r->unit_tokens : 1;
  bool rounds = !dw && y->dtype != TSR_F32 && tsr_reduction_leaves(&t->sum) > 1;
  int64_t wide = rounds ? cuda_aligned(elements * 4) : 0;
  int64_t stack = cuda_aligned(dw ? expert_leaves_bytes(p, t) : tsr_task_stack_bytes(t, elements));
  int64_t starts = cuda_aligned((r->here * units + 1) * 4);
  int64_t tiles = dw ? 0 : cuda_aligned((r->here + 1) * 4);
  int64_t before = wide + stack + starts + tiles;
  int64_t operands = t->fp8 ? fp8_bytes(t, t->fp8->count) : 0;
  return (cuda_expert_scratch){
      .wide = rounds ? offset(at, 0) : NULL,
      .stack = offset(at, wide),
      .starts = offset(at, wide + stack),
      .tiles = dw ? NULL : offset(at, wide + stack + starts),
      .operands = t->fp8 ? offset(at, before) : NULL,
      .bytes = before + operands};
}

/* ---- all ---- */

int64_t cuda_scratch_bytes(const tsr_program *p, const tsr_task *t) {
  if (t->fused == TSR_FUSED_LOGITS_GRADIENT) return logits_gradient_bytes(p, t);
  switch ((int)t->op) {
  case TSR_OP_LINEAR:
  case TSR_OP_LINEAR_DX:
  case TSR_OP_LINEAR_DW:
  case TSR_OP_ROUTER:
  case TSR_OP_ROUTER_DX:
  case TSR_OP_MATMUL:
    return cuda_matmul_scratch_at(&(tsr_task_call){.program = p, .task = t}, NULL).bytes;
  case TSR_OP_ATTENTION:
  case TSR_OP_ATTENTION_DX:
    return attention_bytes(p, t);
  case TSR_OP_DOCUMENT_ATTENTION_DX:
    return document_gradients_bytes(p, t);
  case TSR_OP_RING_ATTENTION:
  case TSR_OP_RING_DQ:
  case TSR_OP_RING_DKV:
    return ring_step_bytes(p, t);
  case TSR_OP_CE_LOSS:
  case TSR_OP_SQUARED_ERROR:
    return cuda_loss_scratch_at(t, NULL).bytes;
  case TSR_OP_SUM_TO:
  case TSR_OP_NORM_DW:
    return cuda_row_sum_scratch_at(t, NULL).bytes;
  case TSR_OP_EMBEDDING_DW:
    return cuda_embedding_scratch_at(t, NULL).bytes;
  case TSR_OP_CHOOSE_EXPERTS:
    return choose_experts_bytes(p, t);
  case TSR_OP_EXPERT_PLAN:
    return expert_plan_bytes(t);
  case TSR_OP_COMBINE_EXPERTS:
  case TSR_OP_PERMUTE_EXPERTS_DX:
    return t->experts->tokens * t->experts->choices * (int64_t)sizeof(int32_t);
  case TSR_OP_EXPERT_LINEAR:
  case TSR_OP_EXPERT_LINEAR_DX:
  case TSR_OP_EXPERT_LINEAR_DW:
    return cuda_expert_scratch_at(p, t, NULL).bytes;
  case TSR_OP_SUM_UNITS:
    return tsr_task_stack_bytes(t, tsr_tensor_elements(&t->outputs[0]));
  case TSR_OP_NORM_STATS:
    return gradient_norms_bytes(t);
  default:
    return 0;
  }
}
