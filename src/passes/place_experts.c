// SPDX-License-Identifier: Apache-2.0
/* What the placement pass does beside the rules for a mixture of experts. */
#include "passes/placer.h"

/* The gradient of experts' weights is one chain over microbatches, or a few: it continues where the
 * one of the microbatch before ended, instead of being added to that. */
bool tsr_placer_accumulate_experts(tsr_placer *p, const tsr_node *sum, int value) {
  tsr_node *n = &p->g->nodes[p->g->values[value].node];
  bool chain = sum->op == TSR_OP_ACCUMULATE && p->g->values[value].kind == TSR_VALUE_NODE &&
               n->op == TSR_OP_EXPERT_LINEAR_DW;
  bool scatters = tsr_placer_scatters_first(p) && p->placing->size[TSR_DP] > 1;
  if (!chain || scatters) return false;
  n->attr.expert_linear_dw.accumulate = true;
  p->g->values[value].name = n->name = sum->name;
  p->map[sum->outputs[0]] = value;
  return true;
}

/* Sums over the experts of each token go back to the ranks that have the tokens, whatever reads
 * them: elsewhere they would be samples that a rank has beside its own. */
void tsr_placer_return_tokens(tsr_placer *p, const tsr_node *n) {
  static const int axes[] = {TSR_EP, TSR_CP};
  int output = n->op == TSR_OP_COMBINE_EXPERTS_DX, input = n->op == TSR_OP_COMBINE_EXPERTS ? 1 : 2;
  bool sums = output || n->op == TSR_OP_COMBINE_EXPERTS || n->op == TSR_OP_PERMUTE_EXPERTS_DX;
  tsr_where at = {n->section, n->stage, n->block};
  for (int i = 0; sums && i < 2; i++) {
    tsr_placement tokens = p->g->values[p->map[n->inputs[input]]].placement[axes[i]];
    int *value = &p->map[n->outputs[output]];
    if (tokens.kind == TSR_SHARD) *value = tsr_placer_redistribute(p, *value, axes[i], tokens, at);
  }
}
