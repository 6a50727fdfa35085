// SPDX-License-Identifier: Apache-2.0
/* requires: a placed graph's node, the local shapes of its inputs and the record of its sum
 * produces: the layouts of its operands in FP8
 * invalidates: nothing
 *
 * A block is inside a unit of what the task sums, and inside a unit of tp of a weight's other
 * dimension, so that it has the same elements on every mesh. */
#include "schedule/geometry.h"
#include <assert.h>

typedef struct {
  const tsr_program *p;
  const tsr_node *n;
  tsr_fp8_recipe recipe;
  const tsr_reduction *sum;
  const tsr_expert_rows *experts;
} lowering;

static tsr_fp8_layout layout_of(const lowering *l, int input, bool gradient) {
  const tsr_tensor *t = &l->p->tensors[l->n->inputs[input]];
  tsr_fp8_layout r = {.rows = tsr_tensor_rows(t), .cols = tsr_tensor_last(t)};
  r.unit_rows = r.rows;
  r.unit_cols = r.cols;
  r.block_rows = r.block_cols = 1;
  bool e5m2 = gradient && l->recipe & TSR_FP8_E5M2_GRADIENTS;
  r.format = e5m2 ? TSR_FP8_E5M2 : TSR_FP8_E4M3;
  r.power_of_two = !(l->recipe & TSR_FP8_F32_SCALES);
  return r;
}

/* Rows (R, K) or (R, N), summed over their last dimension. */
static tsr_fp8_layout of_rows(const lowering *l, int input, bool gradient) {
  tsr_fp8_layout r = layout_of(l, input, gradient);
  r.block_cols = TSR_FP8_BLOCK;
  r.unit_cols /= tsr_reduction_splits(l->sum, 0);
  return r;
}

/* Size of a unit of tp of a weight's dimension. */
static int64_t unit_of(const lowering *l, int input, int dim) {
  tsr_placement tp = l->p->graph->values[l->n->inputs[input]].placement[TSR_TP];
  int64_t size = l->p->tensors[l->n->inputs[input]].shape[dim], units = l->p->lowering.tp_units;
  return tp.kind == TSR_SHARD && tp.dim == dim && units > 1 ? size / units : size;
}

/* A weight (N, K), or of experts (E, N, K), of which the task sums over N or K (`sums_last`). */
static tsr_fp8_layout of_weight(const lowering *l, int input, bool sums_last) {
  const tsr_tensor *w = &l->p->tensors[l->n->inputs[input]];
  tsr_fp8_layout r = layout_of(l, input, false);
  r.block_rows = r.block_cols = TSR_FP8_BLOCK;
  r.unit_rows = unit_of(l, input, w->ndim - 2);
  r.unit_cols = unit_of(l, input, w->ndim - 1);
  int64_t splits = tsr_reduction_splits(l->sum, 0);
  if (sums_last) r.unit_cols = r.cols / splits;
  else r.unit_rows = w->shape[w->ndim - 2] / splits;
  return r;
}

/* Rows that are summed: a call of the GEMM sums a run of them. */
static tsr_fp8_layout of_run(const lowering *l, int input, bool gradient) {
  tsr_fp8_layout r = layout_of(l, input, gradient);
  tsr_reduced_rows run;
  bool found = tsr_reduction_rows(l->sum, 0, 0, 0, &run);
  assert(found && r.rows % run.rows == 0);
  r.block_rows = TSR_FP8_BLOCK;
  r.unit_rows = run.rows;
  return r;
}

/* Rows of experts, of which a call of the GEMM sums those of one expert and batch unit: where these
 * are is the plan's matter, and each run of them is a matrix of its own. */
static tsr_fp8_layout of_expert_run(const lowering *l, int input, bool gradient) {
  tsr_fp8_layout r = layout_of(l, input, gradient);
  r.block_rows = TSR_FP8_BLOCK;
  return r;
}

static bool sums_rows(const lowering *l, int i) {
  switch ((int)l->n->op) {
  case TSR_OP_LINEAR:
  case TSR_OP_EXPERT_LINEAR:
    return false;
  case TSR_OP_LINEAR_DX:
  case TSR_OP_EXPERT_LINEAR_DX:
    return i % 2 == 1;
  default:
    return true;
  }
}

static tsr_fp8_layout layout_of_input(const lowering *l, int i) {
  tsr_fp8_layout none = {0};
  switch ((int)l->n->op) {
  case TSR_OP_LINEAR: /* x (…, K), w (N, K) */
    return i == 0 ? of_rows(l, i, false) : of_weight(l, i, true);
  case TSR_OP_LINEAR_DX: /* pairs of dy (…, N), w (N, K) */
    return i % 2 == 0 ? of_rows(l, i, true) : of_weight(l, i, false);
  case TSR_OP_LINEAR_DW: /* dy (…, N), x (…, K), w */
    return i < 2 ? of_run(l, i, i == 0) : none;
  case TSR_OP_EXPERT_LINEAR: /* x (R, K), w (E, N, K), plan */
    return i == 0 ? of_rows(l, i, false) : i == 1 ? of_weight(l, i, true) : none;
  case TSR_OP_EXPERT_LINEAR_DX: /* dy (R, N), w (E, N, K), plan */
    return i == 0 ? of_rows(l, i, true) : i == 1 ? of_weight(l, i, false) : none;
  default: /* expert_linear_dw: dy (R, N), x (R, K), plan, w */
    return i < 2 ? of_expert_run(l, i, i == 0) : none;
  }
}

static tsr_fp8_recipe recipe_of(const tsr_node *n) {
  switch ((int)n->op) {
  case TSR_OP_LINEAR:
  case TSR_OP_LINEAR_DX:
  case TSR_OP_LINEAR_DW:
  case TSR_OP_EXPERT_LINEAR:
  case TSR_OP_EXPERT_LINEAR_DX:
    return n->attr.linear.fp8;
  case TSR_OP_EXPERT_LINEAR_DW:
    return n->attr.expert_linear_dw.fp8;
  default:
    return TSR_FP8_OFF;
  }
}

/* A run of experts' rows has at most one short block. */
static int64_t scales_of(const lowering *l, const tsr_fp8_layout *layout) {
  int64_t scales = tsr_fp8_scales(layout);
  if (l->n->op != TSR_OP_EXPERT_LINEAR_DW) return scales;
  return scales + l->experts->here * (l->experts->tokens / l->experts->unit_tokens) * layout->cols;
}

static int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

const tsr_fp8_operands *tsr_fp8_operands_of(const tsr_program *p, const tsr_task *t) {
  const tsr_node *n = &p->graph->nodes[t->node];
  lowering l = {p, n, recipe_of(n), &t->sum, t->experts};
  if (!l.recipe) return NULL;
  tsr_fp8_operands *r = tsr_arena_alloc(p->graph->arena, sizeof *r);
  *r = (tsr_fp8_operands){.count = n->inputs_count};
  r->inputs = tsr_arena_array(p->graph->arena, tsr_fp8_operand, n->inputs_count);
  for (int i = 0; i < n->inputs_count; i++) {
    tsr_fp8_layout layout = layout_of_input(&l, i);
    r->inputs[i] = (tsr_fp8_operand){layout, false, r->bytes, r->bytes};
    if (!layout.rows) continue;
    r->inputs[i].sums_rows = sums_rows(&l, i);
    r->inputs[i].scales += lines(layout.rows * layout.cols);
    r->bytes = r->inputs[i].scales + lines(scales_of(&l, &layout) * (int64_t)sizeof(float));
  }
  return r;
}
