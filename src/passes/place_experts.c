// SPDX-License-Identifier: Apache-2.0
/* What the placement pass does beside the rules for a mixture of experts. */
#include "passes/placer.h"

/* The gradient of experts' weights is one chain over microbatches, or a few: it continues where the
 * one of the microbatch before ended, instead of being added to that. */
bool tsr_placer_accumulate_experts(tsr_placer *p, const tsr_node *sum, int value) {
  if (sum->op != TSR_OP_ACCUMULATE || p->g->values[value].kind != TSR_VALUE_NODE) return false;
  tsr_node *n = &p->g->nodes[p->g->values[value].node];
  if (n->op != TSR_OP_EXPERT_LINEAR_DW || tsr_placer_scatters_first(p)) return false;
  n->attr.expert_linear_dw.accumulate = true;
  p->g->values[value].name = n->name = sum->name;
  p->map[sum->outputs[0]] = value;
  return true;
}

/* Sums over the experts of each token go back to the ranks that have the tokens, whatever reads
 * them: elsewhere they would be samples that a rank has beside its own. What an inner axis shares
 * out is added first, for its experts are neighbours in the tree. */
void tsr_placer_return_tokens(tsr_placer *p, const tsr_node *n) {
  static const int axes[] = {TSR_TP, TSR_CP, TSR_DP, TSR_EP}, count = 4;
  int output = n->op == TSR_OP_COMBINE_EXPERTS_DX, input = n->op == TSR_OP_COMBINE_EXPERTS ? 1 : 2;
  bool sums = output || n->op == TSR_OP_COMBINE_EXPERTS || n->op == TSR_OP_PERMUTE_EXPERTS_DX;
  tsr_where at = {n->section, n->stage, n->block};
  int *value = &p->map[n->outputs[output]];
  for (int i = 0; sums && i < count; i++) {
    tsr_placement tokens = p->g->values[p->map[n->inputs[input]]].placement[axes[i]];
    bool returns = axes[i] != TSR_TP && tokens.kind == TSR_SHARD, before = false;
    for (int k = i + 1; k < count; k++) before |= tsr_placer_is_partial(p, *value, axes[k]);
    before &= tsr_placer_is_partial(p, *value, axes[i]);
    if (returns) *value = tsr_placer_redistribute(p, *value, axes[i], tokens, at);
    else if (before) *value = tsr_placer_redistribute(p, *value, axes[i], tsr_whole, at);
    if (before && axes[i] == TSR_TP) p->plain_tp[n->outputs[output]] = tsr_whole;
  }
}
