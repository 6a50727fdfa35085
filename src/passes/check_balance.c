// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph with its loss
 * produces: errors of what balances its experts
 * invalidates: nothing */
#include "passes/passes.h"

static bool balances_forward(const tsr_node *n) {
  return n->op == TSR_OP_BALANCE_LOSS && n->attr.balance_loss.per == TSR_BALANCE_FORWARD;
}

/* A forward pass is a microbatch, whose counts would depend on how many there are. */
static bool check_forward(const tsr_node *n, int64_t microbatches, tsr_diags *diags) {
  if (!balances_forward(n) || microbatches <= 1) return true;
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
static bool check_updated(const tsr_graph *g, const tsr_node *n, int input, tsr_diags *diags) {
  const tsr_value *v = &g->values[n->inputs[input]];
  const char *what = n->op == TSR_OP_CHOOSE_EXPERTS ? "the bias" : "the counts";
  if (v->kind == TSR_VALUE_PARAM && v->dtype == TSR_F32) return true;
  return tsr_diag_error(
      diags, n->location, "%s: %s '%s' must be a parameter, which the step updates",
      tsr_op_title(n->op), what, v->name);
}

/* The counts of all layers are added: those of as many experts, over as many tokens. */
static bool check_layers(const tsr_graph *g, tsr_diags *diags) {
  const tsr_value *first = NULL;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (!balances_forward(n)) continue;
    const tsr_value *scores = &g->values[n->inputs[0]];
    if (!first) first = scores;
    bool same = scores->ndim == first->ndim;
    for (int d = 0; same && d < first->ndim; d++) same = scores->shape[d] == first->shape[d];
    if (same) continue;
    return tsr_diag_error(
        diags, n->location,
        "balance_loss per forward pass: '%s' is %s but '%s' is %s, and their choices are counted "
        "together",
        scores->name, tsr_value_shape_text(g->arena, scores), first->name,
        tsr_value_shape_text(g->arena, first));
  }
  return true;
}

bool tsr_pass_check_balance(const tsr_graph *g, int64_t microbatches, tsr_diags *diags) {
  bool ok = check_layers(g, diags);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    ok &= check_forward(n, microbatches, diags);
    bool has_rate = n->op == TSR_OP_CHOOSE_EXPERTS && n->attr.choose_experts.bias_rate > 0;
    int updated = tsr_node_updated_input(n);
    if (updated >= 0) ok &= check_updated(g, n, updated, diags);
    else if (has_rate)
      ok = tsr_diag_error(diags, n->location, "choose_experts: a bias_rate needs a bias");
  }
  return ok;
}
