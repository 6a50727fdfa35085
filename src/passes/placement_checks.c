// SPDX-License-Identifier: Apache-2.0
/* What the placement pass refuses because its bits would depend on the mesh or the microbatches. */
#include "passes/placer.h"

/* pp's stages own whole parameters, and a dimension goes to one of cp and tp. */
void tsr_placer_check_declared(tsr_placer *p, const tsr_value *v) {
  tsr_placement cp = v->placement[TSR_CP], tp = v->placement[TSR_TP];
  if (v->placement[TSR_PP].kind == TSR_SHARD && p->old->params[v->param].stage != TSR_EVERY_STAGE)
    p->ok = tsr_diag_error(
        p->diags, v->location, "'%s' cannot be split over pp: a stage owns whole parameters",
        v->name);
  if (cp.kind == TSR_SHARD && tsr_placement_equal(cp, tp) && p->placing->size[TSR_TP] > 1 &&
      !tsr_routed_is_weights(v->routed))
    p->ok = tsr_diag_error(
        p->diags, v->location,
        "'%s' is declared shard(%d) over both cp and tp: one of them can have it", v->name, cp.dim);
}

/* Tensors that a file splits over pp can be moved and mapped. A sum cannot be split over pp, but
 * for the gradient norm's, to which every stage adds its parameters'. */
bool tsr_placer_check_sum_over_pp(
    tsr_placer *p, const tsr_node *n, const tsr_placement *in, tsr_placement out) {
  bool is_sum = out.kind == TSR_PARTIAL && !(tsr_op_facts(n->op) & TSR_FACT_EVERYWHERE);
  for (int i = 0; i < n->inputs_count; i++) is_sum &= in[i].kind != TSR_PARTIAL;
  if (!is_sum) return true;
  tsr_diag_error(
      p->diags, n->location, "%s: pp splits its sum, and there are no reduction units of pp",
      tsr_op_title(n->op));
  tsr_diag_hint(p->diags, "a layout over tp or dp allows the sum");
  return false;
}

/* Numbers that are drawn for a sample depend on which of the step's it is, and only dp's dimension
 * says that. */
void tsr_placer_check_random(tsr_placer *p, const tsr_node *n, tsr_placement dp) {
  bool several = p->old->microbatches > 1 && tsr_placer_is_active(p->placing, TSR_DP);
  if (!(tsr_op_facts(n->op) & TSR_FACT_RANDOM) || tsr_node_dropout(n) == 0 || !several) return;
  bool once = n->section == TSR_PROLOGUE || n->section == TSR_UPDATE; /* what parameters make */
  if (once || !p->of_batch[n->inputs[0]] || dp.kind == TSR_SHARD) return;
  p->ok = tsr_diag_error(
      p->diags, n->location,
      "%s of '%s', whose samples are not along one dimension, would depend on the number of "
      "microbatches",
      tsr_op_title(n->op), p->old->values[n->inputs[0]].name);
}

/* A sum over a step's samples is made of batch units, which microbatches only group. Where samples
 * are not along one dimension dp does not split them, and each microbatch sums as it likes. */
void tsr_placer_check_accumulated(tsr_placer *p, const tsr_node *n) {
  const tsr_value *v = &p->g->values[p->map[n->inputs[0]]];
  if (n->op != TSR_OP_ACCUMULATE || !p->of_batch[n->inputs[0]] ||
      !tsr_placer_is_active(p->placing, TSR_DP))
    return;
  if (v->placement[TSR_DP].kind == TSR_PARTIAL) return;
  p->ok = tsr_diag_error(
      p->diags, n->location,
      "'%s' sums over samples that are not along one dimension of each tensor: its bits would "
      "depend on the number of microbatches",
      v->name);
}

/* Attention adds what its positions make in the sequence's units, also where it has some of them.
 */
void tsr_placer_check_positions(tsr_placer *p, const tsr_node *n) {
  const tsr_value *q = &p->old->values[n->inputs[0]];
  int64_t units = p->old->units.sequence;
  if (n->op != TSR_OP_ATTENTION || units <= 1 || q->shape[1] % units == 0) return;
  p->ok = tsr_diag_error(
      p->diags, n->location,
      "attention over the %lld positions of '%s', which %lld sequence units do "
      "not divide",
      (long long)q->shape[1], q->name, (long long)units);
}

/* A sum over split elements is made of the recipe's units, so they must divide it. Units of two
 * axes would be one inside the other, and then a rank of the inner one alone has no run of
 * elements; but tp's slices of what cp splits are runs of its units. */
static void
check_dim(tsr_placer *p, const tsr_node *n, const tsr_value *x, int dim, const tsr_placement *out) {
  int first = -1;
  for (int a = 0; a < TSR_AXES; a++) {
    bool split = x->placement[a].kind == TSR_SHARD && x->placement[a].dim == dim;
    int64_t units = tsr_placer_units(p, a);
    if (!split || out[a].kind != TSR_PARTIAL || units == 1) continue;
    if (first >= 0 && (first == TSR_DP || n->op == TSR_OP_MATMUL))
      p->ok = tsr_diag_error(
          p->diags, n->location, "%s sums over elements of '%s' that both %s and %s split",
          tsr_op_title(n->op), x->name, tsr_axis_name(first), tsr_axis_name(a));
    else if (first < 0 && x->shape[dim] % units)
      p->ok = tsr_diag_error(
          p->diags, n->location,
          "%s sums over %lld elements of '%s', which %lld units over %s do not divide",
          tsr_op_title(n->op), (long long)x->shape[dim], x->name, (long long)units,
          tsr_axis_name(a));
    first = a;
  }
}

void tsr_placer_check_summed(
    tsr_placer *p, const tsr_node *n, const int *inputs, const tsr_placement *out) {
  tsr_placer_check_added_experts(p, n, inputs);
  bool matmul = n->op == TSR_OP_MATMUL;
  bool sums = matmul || tsr_op_facts(n->op) & (TSR_FACT_GRADIENT | TSR_FACT_LOSS);
  if (!sums || n->op == TSR_OP_ACCUMULATE) return;
  const tsr_value *x = &p->g->values[inputs[0]];
  int k = x->ndim - (matmul && n->attr.matmul.transpose_a ? 2 : 1);
  for (int d = 0; d < x->ndim && p->ok; d++)
    if (!matmul || d == k) check_dim(p, n, x, d, out);
}

void tsr_placer_note_moved(tsr_placer *p, const tsr_node *n, tsr_placement was) {
  tsr_moved_samples m = p->moved[n->inputs[0]];
  if (!m.by) m.dim = was.kind == TSR_SHARD ? was.dim : -1;
  m.by = n;
  p->moved[n->outputs[0]] = m;
}

/* What is summed along a dimension that dp splits is made of a microbatch's units, and only samples
 * are fewer in a microbatch. A value that the moves have left whole and that had no samples before
 * them (a parameter that is broadcast) has no part in how dp splits what is made of it. */
void tsr_placer_check_moved(
    tsr_placer *p, const tsr_node *n, const int *inputs, const tsr_placement *out) {
  bool reorders = n->op == TSR_OP_TRANSPOSE || n->op == TSR_OP_RESHAPE;
  for (int i = 0; i < n->inputs_count; i++) {
    tsr_moved_samples m = p->moved[n->inputs[i]];
    tsr_placement dp = p->g->values[inputs[i]].placement[TSR_DP];
    if (!m.by || (m.dim < 0 && dp.kind == TSR_REPLICATE)) continue;
    if (dp.kind == TSR_SHARD && dp.dim != m.dim && out[TSR_DP].kind == TSR_PARTIAL)
      p->ok = tsr_diag_error(
          p->diags, m.by->location,
          "%s over dp: sums along dimension %d of '%s' would depend on the number of microbatches",
          tsr_op_title(m.by->op), dp.dim, p->old->values[n->inputs[i]].name);
    if (reorders) m.dim = -1;
    for (int o = 0; o < n->outputs_count; o++) p->moved[n->outputs[o]] = m;
  }
}
