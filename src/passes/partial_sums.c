// SPDX-License-Identifier: Apache-2.0
/* The types in which values are stored whose sums over an axis are pending. */
#include "passes/placer.h"

/* Whether a value in half precision is added over tp in it: activations and their gradients, where
 * no other axis splits the sum and no units are kept apart. A token's sum over its experts is none:
 * which axes split that depends on the mesh. */
static bool is_half_sum(const tsr_placer *p, const tsr_node *n, const tsr_value *v) {
  bool sums = n->op == TSR_OP_LINEAR || n->op == TSR_OP_LINEAR_DX || n->op == TSR_OP_MATMUL ||
              n->op == TSR_OP_EMBEDDING || n->op == TSR_OP_SUM_HEADS;
  bool moves = n->op == TSR_OP_RESHAPE && tsr_dtype_is_half(p->g->values[n->inputs[0]].dtype);
  if (!p->old->units.tp_in_half || !(sums || moves) || v->units || v->batch_units) return false;
  for (int a = 0; a < TSR_AXES; a++)
    if ((v->placement[a].kind == TSR_PARTIAL) != (a == TSR_TP)) return false;
  return true;
}

void tsr_placer_store_partial(const tsr_placer *p, tsr_value *v) {
  const tsr_node *n = &p->g->nodes[v->node];
  const tsr_value *in = &p->g->values[n->inputs[0]];
  bool moves = tsr_op_facts(n->op) & TSR_FACT_KEEPS_DTYPE && in->completes_to != TSR_F32;
  if (!tsr_dtype_is_half(v->dtype) || (tsr_placer_is_complete(v) && !moves)) return;
  if (is_half_sum(p, n, v)) return;
  v->completes_to = v->dtype;
  v->dtype = TSR_F32;
}
