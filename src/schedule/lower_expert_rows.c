// SPDX-License-Identifier: Apache-2.0
/* requires: a placed graph's node, and the local shapes of its inputs and outputs
 * produces: the record of the rows of experts that the node reads or writes
 * invalidates: nothing */
#include "schedule/program.h"

/* The value whose dimension 0 is rows of experts. */
static const tsr_value *rows_of(const tsr_graph *g, const tsr_node *n) {
  for (int i = 0; i < n->outputs_count; i++)
    if (tsr_routed_is_rows(g->values[n->outputs[i]].routed)) return &g->values[n->outputs[i]];
  for (int i = 0; i < n->inputs_count; i++)
    if (tsr_routed_is_rows(g->values[n->inputs[i]].routed)) return &g->values[n->inputs[i]];
  return NULL;
}

static int64_t local_tokens(const tsr_lowering *l, const tsr_value *rows) {
  int64_t tokens = rows->routed.tokens;
  for (int a = 0; a < TSR_AXES; a++)
    if (rows->placement[a].kind == TSR_SHARD && rows->placement[a].dim == 0) tokens /= l->size[a];
  return tokens;
}

int64_t tsr_lowering_experts_here(const tsr_lowering *l, const tsr_value *rows) {
  int64_t here = rows->routed.experts;
  for (int a = 0; a < TSR_AXES; a++)
    if (rows->placement[a].kind == TSR_ROUTED) here /= l->size[a];
  return here;
}

int64_t tsr_lowering_expert_rows(const tsr_lowering *l, const tsr_value *rows) {
  int64_t here = tsr_lowering_experts_here(l, rows);
  return tsr_routed_rows(rows->routed, local_tokens(l, rows), here);
}

/* The batch units of all ranks whose tokens this one has, in a microbatch. */
static int64_t units_in(const tsr_lowering *l, const tsr_value *rows) {
  int64_t units = l->batch_units > 1 ? l->batch_units : 1;
  if (rows->placement[TSR_EP].kind != TSR_SHARD) units *= l->size[TSR_EP];
  if (rows->placement[TSR_DP].kind != TSR_SHARD) units *= l->size[TSR_DP];
  return units;
}

const tsr_expert_rows *tsr_expert_rows_of(const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  const tsr_lowering *l = &p->lowering;
  const tsr_value *rows = tsr_op_facts(n->op) & TSR_FACT_ROUTED || n->op == TSR_OP_EXPERT_PLAN
                              ? rows_of(p->graph, n)
                              : NULL;
  if (!rows) return NULL;
  tsr_expert_rows *r = tsr_arena_alloc(p->graph->arena, sizeof *r);
  *r = (tsr_expert_rows){
      .experts = rows->routed.experts,
      .choices = rows->routed.choices,
      .slots = rows->routed.slots,
      .unit_tokens = rows->routed.unit_tokens};
  for (int a = 0; a < TSR_AXES; a++) r->shared[a] = rows->placement[a].kind == TSR_ROUTED;
  r->here = tsr_lowering_experts_here(l, rows);
  r->tokens = local_tokens(l, rows);
  if (n->op != TSR_OP_EXPERT_LINEAR_DW) return r;
  r->accumulates = tsr_node_accumulates(n);
  int64_t units = units_in(l, rows), microbatches = l->microbatches;
  r->unit_tokens = r->tokens / units;
  int64_t ranks = rows->placement[TSR_DP].kind == TSR_SHARD ? l->size[TSR_DP] : 1;
  r->leaf_units = units * microbatches * ranks / l->expert_leaves;
  r->leaves = units * (r->accumulates ? microbatches : 1) / r->leaf_units;
  return r;
}
