// SPDX-License-Identifier: Apache-2.0
#include "comm/task_collective.h"
#include <assert.h>
#include <string.h>

tsr_collective tsr_collective_of(const tsr_program *p, const tsr_task *t) {
  const tsr_tensor *in = &t->inputs[0];
  const tsr_attrs *attr = &p->graph->nodes[t->node].attr;
  tsr_collective c = {.op = t->op, .ndim = in->ndim, .from = -1, .to = -1};
  c.tree = t->sum.tree;
  c.members = (int)p->lowering.size[t->axis];
  c.dtype = in->dtype;
  c.element = tsr_dtype_bytes(in->dtype);
  memcpy(c.shape, in->shape, sizeof c.shape);
  assert(!in->units || t->op == TSR_OP_ALL_REDUCE || t->op == TSR_OP_REDUCE);
  if (in->units) c.shape[0] *= in->units;
  if (t->op == TSR_OP_REDUCE_SCATTER) c.to = attr->scatter.dim;
  if (t->op == TSR_OP_RING_SHIFT) c.by = (int)attr->ring_shift.by;
  if (t->op == TSR_OP_ALL_TO_ALL) c.to = attr->all_to_all.dim;
  const tsr_value *v = &p->graph->values[in->value];
  tsr_placement before = v->placement[t->axis];
  tsr_placement after = p->graph->values[t->outputs[0].value].placement[t->axis];
  c.groups = before.groups > 1 ? before.groups : after.groups > 1 ? after.groups : 1;
  if (t->op == TSR_OP_REDUCE || t->op == TSR_OP_BROADCAST)
    c.root = (int)(attr->broadcast.root % (c.members / c.groups));
  if (before.kind == TSR_SHARD && t->op != TSR_OP_RING_SHIFT) c.from = before.dim;
  c.zigzag = t->axis == TSR_CP && p->lowering.zigzag && !tsr_routed_is_weights(v->routed);
  if (c.from >= 0) c.shape[c.from] *= tsr_placement_blocks(before, c.members);
  return c;
}
