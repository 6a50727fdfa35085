// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph with its loss
 * produces: errors of what balances its experts
 * invalidates: nothing */
#include "passes/passes.h"

/* A forward pass is a microbatch, whose counts would depend on how many there are. */
static bool check_forward(const tsr_node *n, int64_t microbatches, tsr_diags *diags) {
  if (n->op != TSR_OP_BALANCE_LOSS || n->attr.balance_loss.per != TSR_BALANCE_FORWARD) return true;
  if (microbatches <= 1) return true;
  tsr_diag_error(
      diags, n->location,
      "balance_loss per forward pass needs one microbatch, not %lld: the loss, and with it the "
      "bits, "
      "would depend on their number",
      (long long)microbatches);
  tsr_diag_hint(diags, "per=sequence and per=step do not");
  return false;
}

/* What an update of its own writes must be a parameter, which no other update writes. */
static bool
check_kept(const tsr_graph *g, const tsr_node *n, int input, const char *what, tsr_diags *diags) {
  const tsr_value *v = &g->values[n->inputs[input]];
  if (v->kind == TSR_VALUE_PARAM && v->dtype == TSR_F32) return true;
  return tsr_diag_error(
      diags, n->location, "%s: %s '%s' must be a parameter, which the step updates",
      tsr_op_title(n->op), what, v->name);
}

bool tsr_pass_check_balance(const tsr_graph *g, int64_t microbatches, tsr_diags *diags) {
  bool ok = true;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    ok &= check_forward(n, microbatches, diags);
    if (n->op == TSR_OP_CHOOSE_EXPERTS && n->attr.choose_experts.bias_rate > 0) {
      if (n->inputs_count > 1) ok &= check_kept(g, n, 1, "the bias", diags);
      else ok = tsr_diag_error(diags, n->location, "choose_experts: a bias_rate needs a bias");
    }
    if (n->op == TSR_OP_BALANCE_LOSS && n->inputs_count == 3)
      ok &= check_kept(g, n, 2, "the counts", diags);
  }
  return ok;
}
