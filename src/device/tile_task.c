// SPDX-License-Identifier: Apache-2.0
#include "device/tile_task.h"

/* The operand of the fused task that is a node's, as the kernel has it; without one the tensor. */
static tsr_tensor find_operand(const tsr_task *fused, const tsr_tensor *t) {
  for (int i = 0; i < fused->inputs_count; i++)
    if (fused->inputs[i].value == t->value) return tsr_kernel_inputs(fused)[i];
  for (int i = 0; i < fused->outputs_count; i++)
    if (fused->outputs[i].value == t->value) return tsr_kernel_outputs(fused)[i];
  return *t;
}

void tsr_tile_task_bind(const tsr_task *fused, const tsr_task *of, tsr_tile_task *ret) {
  ret->task = *of;
  for (int i = 0; i < of->inputs_count; i++) ret->inputs[i] = find_operand(fused, &of->inputs[i]);
  for (int i = 0; i < of->outputs_count; i++)
    ret->outputs[i] = find_operand(fused, &of->outputs[i]);
  ret->task.inputs = ret->inputs;
  ret->task.outputs = ret->outputs;
}

/* Dimensions in front of a row's: those of the targets. */
static int row_dims(const tsr_linear_cross_entropy *n) {
  return n->stats ? n->stats->inputs[1].ndim : n->loss_dx->inputs[2].ndim;
}

int64_t tsr_tile_row_elements(const tsr_linear_cross_entropy *n, const tsr_tensor *t) {
  int64_t elements = 1;
  for (int d = row_dims(n); d < t->ndim; d++) elements *= t->shape[d];
  return elements;
}

void tsr_tile_take_rows(const tsr_linear_cross_entropy *n, tsr_row_tile rows, tsr_tensor *t) {
  t->offset += rows.first * tsr_tile_row_elements(n, t) * tsr_dtype_bytes(t->dtype);
  for (int d = 0; d < row_dims(n); d++) t->shape[d] = 1;
  t->shape[row_dims(n) - 1] = rows.rows;
}

void tsr_tile_put_rows(
    const tsr_linear_cross_entropy *n, tsr_row_tile rows, int64_t offset, tsr_tensor *t) {
  rows.first = 0;
  t->segment = TSR_SEGMENT_WORK;
  t->slot_group = -1;
  t->offset = offset;
  tsr_tile_take_rows(n, rows, t);
}
