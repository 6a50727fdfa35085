// SPDX-License-Identifier: Apache-2.0
#include "comm/task_collective.h"
#include <assert.h>
#include <string.h>

/* Whether a value that is partial over an axis is a sum of each token over its experts, or a linear
 * map or a part of one. These are added in the binary tree over all experts in a flat tree of
 * units, too. */
static bool sums_experts(const tsr_graph *g, int value, int axis) {
  for (int node; (node = g->values[value].node) >= 0; value = g->nodes[node].inputs[0]) {
    tsr_op op = g->nodes[node].op;
    if (g->values[value].placement[axis].kind != TSR_PARTIAL || !g->nodes[node].inputs_count) break;
    if (op == TSR_OP_COMBINE_EXPERTS || op == TSR_OP_PERMUTE_EXPERTS_DX) return true;
  }
  return false;
}

tsr_collective tsr_collective_of(const tsr_program *p, const tsr_task *t) {
  const tsr_tensor *in = &t->inputs[0];
  const tsr_attrs *attr = &p->graph->nodes[t->node].attr;
  tsr_collective c = {.op = t->op, .ndim = in->ndim, .from = -1, .to = -1};
  c.tree = sums_experts(p->graph, in->value, t->axis) ? TSR_TREE_BINARY : p->lowering.tree;
  c.members = (int)p->lowering.size[t->axis];
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
