// SPDX-License-Identifier: Apache-2.0
#include "train/score_check.h"

/* The node of one of these ops that the value comes from through first inputs; NULL: none. */
static const tsr_node *find_made(const tsr_graph *g, int value, tsr_op op, tsr_op other) {
  while (g->values[value].kind == TSR_VALUE_NODE) {
    const tsr_node *n = &g->nodes[g->values[value].node];
    if (n->op == op || n->op == other) return n;
    value = n->inputs[0];
  }
  return NULL;
}

/* The parameter by which scores are computed; NULL: it is not known. */
static const char *router_of(const tsr_graph *g, int scores) {
  const tsr_node *n = find_made(g, scores, TSR_OP_ROUTER, TSR_OP_LINEAR);
  int weight = n ? n->inputs[1] : scores;
  while (g->values[weight].kind == TSR_VALUE_NODE)
    weight = g->nodes[g->values[weight].node].inputs[0];
  const tsr_value *v = &g->values[weight];
  return n && v->kind == TSR_VALUE_PARAM ? g->params[v->param].name : NULL;
}

bool tsr_check_scores(tsr_executable *executable, const char *when, tsr_diags *diags) {
  tsr_nan_scores at;
  if (!tsr_executable_take_nan_scores(executable, &at)) return true;
  const tsr_graph *g = tsr_executable_graph(executable);
  const tsr_node *n = &g->nodes[at.node];
  const char *router = router_of(g, n->inputs[0]), *name = router ? router : n->name;
  tsr_diag_failure(
      diags, n->location, "%s: NaN among the scores of %s '%s', of which %s chooses, on rank %d%s",
      when, router ? "router" : "the choice", name, tsr_op_name(n->op), at.rank,
      at.microbatch ? tsr_arena_printf(g->arena, ", microbatch %lld", (long long)at.microbatch)
                    : "");
  tsr_diag_hint(diags, "a lower learning rate, or use_clip_grad_norm, keeps weights finite");
  return false;
}
