// SPDX-License-Identifier: Apache-2.0
#include "schedule/geometry.h"

/* ---- sizes ---- */

void tsr_tensor_strides(const tsr_tensor *t, int64_t ret_stride[TSR_DIMS_MAX]) {
  int64_t stride = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    ret_stride[d] = stride;
    stride *= t->shape[d];
  }
}

int64_t tsr_task_block_elements(const tsr_task *t) {
  const tsr_tensor *y = &t->outputs[0];
  return tsr_tensor_elements(y) / (y->units ? y->units : 1);
}

int64_t tsr_task_leaves(const tsr_task *t) {
  return tsr_reduction_blocks(&t->sum) * tsr_reduction_leaves(&t->sum);
}

int64_t tsr_task_stack_bytes(const tsr_task *t, int64_t elements) {
  return (tsr_reduction_depth(&t->sum) - 1) * elements * 4;
}

int64_t tsr_task_loss_rows(const tsr_task *t) {
  return t->op == TSR_OP_CE_LOSS ? tsr_tensor_elements(&t->inputs[2])
                                 : tsr_tensor_rows(&t->inputs[0]);
}

bool tsr_program_splits_sequences(const tsr_program *p) { return p->graph->units.sequence > 1; }

/* ---- the rank's part of a tensor ---- */

static bool is_sharded(const tsr_value *v, tsr_axis axis, int dim) {
  return v->placement[axis].kind == TSR_SHARD && v->placement[axis].dim == dim;
}

/* Sequence parallelism splits positions over tp between units of the sequence, not of tp. */
int64_t tsr_tensor_unit_pieces(const tsr_program *p, const tsr_tensor *t, int dim) {
  const tsr_lowering *l = &p->lowering;
  const tsr_value *v = &p->graph->values[t->value];
  bool cp = is_sharded(v, TSR_CP, dim), tp = is_sharded(v, TSR_TP, dim);
  int64_t pieces = is_sharded(v, TSR_DP, dim) ? l->batch_units : 1;
  if (cp && l->sequence_units > 1) pieces *= l->sequence_units / (tp ? l->size[TSR_TP] : 1);
  if (tp && !cp) pieces *= l->tp_units;
  return pieces > 0 && t->shape[dim] % pieces == 0 ? pieces : 1;
}

/* Whether the recipe's units split positions that lie along a dimension, perhaps into one for each
 * rank. */
static bool splits_positions(const tsr_program *p, const tsr_tensor *t, int dim) {
  return is_sharded(&p->graph->values[t->value], TSR_CP, dim) &&
         p->lowering.sequence_units * p->lowering.size[TSR_CP] > 1;
}

int64_t tsr_tensor_row_runs(const tsr_program *p, const tsr_tensor *t) {
  int64_t runs = tsr_tensor_unit_pieces(p, t, 0), outer = 1;
  for (int d = 1; d < t->ndim - 1; d++) {
    outer *= t->shape[d - 1];
    int64_t pieces = tsr_tensor_unit_pieces(p, t, d);
    if (pieces > 1 || splits_positions(p, t, d)) runs = outer * pieces;
  }
  return runs;
}

/* A dimension that two axes split belongs to the first one's blocks before the second one's. */
int64_t tsr_operand_offset(const tsr_task_call *c, const tsr_tensor *t, int dim) {
  const tsr_value *v = tsr_operand_value(c, t);
  const tsr_lowering *l = &c->program->lowering;
  if (tsr_lowering_is_zigzag(l, v, dim) && !tsr_operand_is_zigzag(c, t, dim))
    return tsr_lowering_zigzag_position(l, v, dim, c->rank->coord, t->shape[dim], 0);
  int64_t block = 0;
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement p = v->placement[a];
    int size = (int)l->size[a];
    if (p.kind != TSR_SHARD || p.dim != dim) continue;
    block = block * tsr_placement_blocks(p, size) + tsr_placement_block(p, size, c->rank->coord[a]);
  }
  return block * t->shape[dim];
}

tsr_tensor_slice tsr_operand_slice(const tsr_task_call *c, const tsr_tensor *t) {
  tsr_tensor_slice slice = {.ndim = t->ndim};
  for (int d = 0; d < t->ndim; d++) {
    slice.shape[d] = t->shape[d];
    slice.global[d] = tsr_operand_value(c, t)->shape[d];
    slice.offset[d] = tsr_operand_offset(c, t, d);
  }
  return slice;
}

/* Samples are along the dimension that dp splits; what it does not split is the same in every
 * microbatch. */
tsr_tensor_slice tsr_operand_sample_slice(const tsr_task_call *c, const tsr_tensor *t) {
  const tsr_value *v = tsr_operand_value(c, t);
  const tsr_lowering *l = &c->program->lowering;
  tsr_tensor_slice slice = tsr_operand_slice(c, t);
  int d = v->placement[TSR_DP].dim;
  if (v->placement[TSR_DP].kind != TSR_SHARD) return slice;
  slice.offset[d] = tsr_sample_offset(l, v, d, slice.offset[d], t->shape[d], c->at.microbatch);
  slice.global[d] *= l->microbatches;
  return slice;
}

const tsr_padding *tsr_operand_padding(const tsr_task_call *c, const tsr_tensor *t) {
  return &c->program->graph->params[tsr_operand_value(c, t)->param].padding;
}

bool tsr_operand_is_zigzag(const tsr_task_call *c, const tsr_tensor *t, int dim) {
  const tsr_lowering *l = &c->program->lowering;
  const tsr_value *v = tsr_operand_value(c, t);
  return tsr_lowering_is_zigzag(l, v, dim) && tsr_lowering_inner_ranks(l, v, dim) % 2;
}

int tsr_operand_zigzag_dim(const tsr_task_call *c, const tsr_tensor *t) {
  int dim = tsr_operand_value(c, t)->placement[TSR_CP].dim;
  return tsr_operand_is_zigzag(c, t, dim) ? dim : -1;
}

tsr_tensor_slice tsr_operand_run_slice(
    const tsr_task_call *c, const tsr_tensor *t, const tsr_tensor_slice *whole, int dim,
    int64_t i) {
  tsr_tensor_slice slice = *whole;
  int64_t outer = i / 2;
  for (int d = dim - 1; d >= 0; d--) {
    slice.offset[d] += outer % t->shape[d];
    slice.shape[d] = 1;
    outer /= t->shape[d];
  }
  slice.shape[dim] /= 2;
  slice.offset[dim] = tsr_lowering_zigzag_position(
      &c->program->lowering, tsr_operand_value(c, t), dim, c->rank->coord, t->shape[dim],
      i % 2 * slice.shape[dim]);
  return slice;
}

int64_t tsr_task_first_expert(const tsr_task_call *c) {
  const tsr_expert_rows *r = c->task->experts;
  int64_t block = 0;
  for (int a = 0; a < TSR_AXES; a++)
    if (r->shared[a]) block = block * c->program->lowering.size[a] + c->rank->coord[a];
  return block * r->here;
}

/* ---- sums over ranks ---- */

double tsr_task_squared_factor(const tsr_task_call *c) {
  const tsr_node *n = &c->program->graph->nodes[c->task->node];
  int64_t elements = tsr_value_elements(tsr_operand_value(c, &c->task->inputs[0]));
  int64_t samples = c->task->op == TSR_OP_SQUARED_ERROR ? tsr_loss_samples(n) : 0;
  if (samples) elements = elements / samples * n->attr.squared_error.real;
  return 1 / ((double)elements * (double)c->program->lowering.microbatches);
}

bool tsr_task_counts(const tsr_task_call *c, int i) {
  const tsr_value *in = tsr_operand_value(c, &c->task->inputs[i]),
                  *out = tsr_operand_value(c, &c->task->outputs[0]);
  if (c->task->inputs[i].segment == TSR_SEGMENT_ABSENT) return false;
  if (!tsr_program_holds(c->program, c->task->inputs[i].value, c->rank->coord)) return false;
  for (int a = 0; a < TSR_AXES; a++)
    if (a != TSR_PP && out->placement[a].kind == TSR_PARTIAL &&
        in->placement[a].kind == TSR_REPLICATE && c->rank->coord[a])
      return false;
  tsr_placement dp = in->placement[TSR_DP];
  int size = (int)c->program->lowering.size[TSR_DP];
  bool is_other_groups_copy = (dp.kind == TSR_SHARD || dp.kind == TSR_OWNED) &&
                              c->rank->coord[TSR_DP] >= tsr_placement_blocks(dp, size);
  return !is_other_groups_copy;
}

tsr_norm_grid tsr_task_norm_grid(const tsr_task_call *c) {
  const tsr_norm_pieces *p = c->task->norm;
  return tsr_norm_grid_of(p, p->dim < 0 ? 0 : tsr_operand_offset(c, &c->task->inputs[0], p->dim));
}
