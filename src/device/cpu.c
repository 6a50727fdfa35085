// SPDX-License-Identifier: Apache-2.0
#include "device/cpu.h"
#include "device/cpu_ops.h"
#include <assert.h>
#include <string.h>

const tsr_cpu_op cpu_collective = {0};

static const tsr_cpu_op *const table[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  &cpu_##lower,
#include "graph/ops.def"
#undef OP
};

const tsr_cpu_op *tsr_cpu_find(tsr_op op) {
  return table[op] == &cpu_collective ? NULL : table[op];
}

int64_t tsr_cpu_scratch(
    const tsr_task *task, const tsr_program *program, bool output, const void *context) {
  const tsr_cpu_context *cpu = context;
  const tsr_cpu_op *op = tsr_cpu_find(task->op);
  if (output) return op->output(cpu->k, program, task);
  if (!op) return 0;
  int64_t own = op->scratch ? op->scratch(cpu->k, program, task, cpu->threads) : 0;
  return own + cpu_copy_offset(task, NULL);
}

bool cpu_is_zigzag(const cpu_call *c, const tsr_tensor *t, int dim) {
  tsr_placement p = cpu_value(c, t)->placement[TSR_CP];
  const tsr_lowering *l = &c->program->lowering;
  return l->zigzag && l->size[TSR_CP] > 1 && p.kind == TSR_SHARD && p.dim == dim;
}

/* A dimension that two axes cut belongs to the first one's blocks before the second one's. */
int64_t cpu_offset(const cpu_call *c, const tsr_tensor *t, int dim) {
  const tsr_value *v = cpu_value(c, t);
  int64_t block = 0;
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement p = v->placement[a];
    int size = (int)c->program->lowering.size[a];
    if (p.kind != TSR_SHARD || p.dim != dim) continue;
    block = block * tsr_placement_blocks(p, size) + tsr_placement_block(p, size, c->rank->coord[a]);
  }
  return block * t->shape[dim];
}

/* Samples are along the dimension that dp splits; what it does not split is the same in every
 * microbatch. */
tsr_box cpu_sample_box(const cpu_call *c, const tsr_tensor *t) {
  const tsr_value *v = cpu_value(c, t);
  const tsr_lowering *l = &c->program->lowering;
  tsr_box box = {.ndim = t->ndim};
  for (int d = 0; d < t->ndim; d++) {
    box.shape[d] = t->shape[d];
    box.global[d] = v->shape[d];
    box.offset[d] = cpu_offset(c, t, d);
  }
  int d = v->placement[TSR_DP].dim;
  if (v->placement[TSR_DP].kind != TSR_SHARD) return box;
  box.offset[d] =
      tsr_sample_offset(l, box.offset[d], v->shape[d], t->shape[d], c->moment.microbatch);
  box.global[d] *= l->microbatches;
  return box;
}

int cpu_zigzag_dim(const cpu_call *c, const tsr_tensor *t) {
  int dim = cpu_value(c, t)->placement[TSR_CP].dim;
  return cpu_is_zigzag(c, t, dim) ? dim : -1;
}

tsr_box
cpu_half_box(const cpu_call *c, const tsr_tensor *t, const tsr_box *whole, int dim, int64_t i) {
  tsr_box box = *whole;
  int64_t outer = i / 2;
  for (int d = dim - 1; d >= 0; d--) {
    box.offset[d] += outer % t->shape[d];
    box.shape[d] = 1;
    outer /= t->shape[d];
  }
  box.shape[dim] /= 2;
  box.offset[dim] = tsr_sequence_position(
      true, (int)c->program->lowering.size[TSR_CP], c->rank->coord[TSR_CP], t->shape[dim],
      i % 2 * box.shape[dim]);
  return box;
}

void cpu_add_leaves(
    const cpu_call *c, int64_t block, float *out, float *scratch, int64_t stride, int64_t begin,
    int64_t end, cpu_make_leaf *make, void *context) {
  const tsr_reduction *sum = &c->task->sum;
  int top = 0; /* stack entries in use; entry 0 is out */
  for (int64_t leaf = 0; leaf < tsr_reduction_leaves(sum); leaf++) {
    make(c, context, block, leaf, top ? scratch + (top - 1) * stride : out);
    top++;
    for (int merges = tsr_reduction_merges(sum, leaf); merges; merges--, top--) {
      float *high = scratch + (top - 2) * stride, *low = top == 2 ? out : high - stride;
      c->k->add(low, low, high, begin, end);
    }
  }
}

int64_t cpu_items_elements(const tsr_task *task) { return tsr_tensor_elements(&task->outputs[0]); }
int64_t cpu_items_rows(const tsr_task *task) { return cpu_rows(&task->outputs[0]); }
