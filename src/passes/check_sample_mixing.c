// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph
 * produces: whether its loss is made of batch units that are computed each by itself; what mixes
 * them is a softmax over the batch, or a product of samples with samples
 * invalidates: nothing
 *
 * The batch units of a value lie along a dimension: index i of that is of unit i / stride % size. A
 * reshape keeps which element is whose. Every other op is asked by its placement rule, as if dp
 * split the dimension in which the units lie: what the rule keeps split it computes unit by
 * unit. */
#include "passes/placement_rules.h"

/* Of a value: `size` units, of so many indices of the dimension each; 0: it is the same for all. */
typedef struct {
  int dim;
  int64_t stride, size;
  bool mixed; /* made of several units: a loss, and what is made of it */
} units;

static int64_t stride_of(const tsr_value *v, int dim) {
  int64_t stride = 1;
  for (int d = dim + 1; d < v->ndim; d++) stride *= v->shape[d];
  return stride;
}

/* The dimension in which `size` units of `stride` elements lie; -1: they are not a part of one. A
 * single unit lies in the dimension of size 1 that has its stride, else in the one that begins
 * there, else in the one that ends there. */
static int dim_of(const tsr_value *v, int64_t stride, int64_t size) {
  int found = -1;
  for (int d = 0; d < v->ndim; d++) {
    int64_t inner = stride_of(v, d), end = inner * v->shape[d];
    if (stride % inner || end % (stride * size)) continue;
    if (v->shape[d] == 1 && stride == inner) return d;
    if (found < 0 || stride < end) found = d;
  }
  return found;
}

static bool reshape(const tsr_graph *g, const tsr_node *n, units *of) {
  const tsr_value *y = &g->values[n->outputs[0]];
  units in = of[n->inputs[0]], *out = &of[n->outputs[0]];
  if (!in.size) return true;
  in.stride *= stride_of(&g->values[n->inputs[0]], in.dim);
  in.dim = dim_of(y, in.stride, in.size);
  if (in.dim < 0) return false; /* dimensions split them */
  in.stride /= stride_of(y, in.dim);
  *out = in;
  return true;
}

/* Finds the units of a node's outputs as its placement rule has them; false where it mixes them. */
static bool ask_rule(const tsr_graph *g, const tsr_node *n, units *of, int64_t parts) {
  tsr_placement *in = tsr_arena_array(g->arena, tsr_placement, n->inputs_count);
  tsr_placement_rule_call call = {
      .g = g,
      .node = n,
      .placed = g,
      .inputs = n->inputs,
      .axis = TSR_DP,
      .in = in,
      .parts = parts};
  units found = {0};
  for (int k = 0; k < n->inputs_count; k++) {
    units u = of[n->inputs[k]];
    if (!u.size) continue;
    in[k] = (tsr_placement){TSR_SHARD, u.dim, 0};
    if (found.size && (u.stride != found.stride || u.size != found.size)) return false;
    found = u;
  }
  if (!found.size) return true;
  tsr_placement_rule_apply(&call);
  if (call.error) return false;
  for (int k = 0; k < n->inputs_count; k++) {
    units u = of[n->inputs[k]];
    if (u.size && !tsr_placement_equal(in[k], (tsr_placement){TSR_SHARD, u.dim, 0})) return false;
  }
  for (int o = 0; o < n->outputs_count; o++) {
    units *out = &of[n->outputs[o]];
    out->mixed = o == 0 && tsr_op_facts(n->op) & TSR_FACT_LOSS;
    if (out->mixed || call.out[o].kind == TSR_REPLICATE) continue;
    if (call.out[o].kind != TSR_SHARD) return false;
    *out = (units){call.out[o].dim, found.stride, found.size, false};
  }
  return true;
}

static bool pass_node(const tsr_graph *g, const tsr_node *n, units *of, int64_t parts) {
  if (tsr_op_moves(n->op)) {
    of[n->outputs[0]] = of[n->inputs[0]];
    return true;
  }
  for (int k = 0; k < n->inputs_count; k++)
    if (of[n->inputs[k]].mixed) return false;
  return n->op == TSR_OP_RESHAPE ? reshape(g, n, of) : ask_rule(g, n, of, parts);
}

bool tsr_pass_check_mixed(const tsr_graph *g, int64_t count, tsr_diags *diags) {
  units *of = tsr_arena_array(g->arena, units, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *x = &g->values[v];
    if (x->kind != TSR_VALUE_INPUT || x->shape[0] % count) continue;
    of[v] = (units){0, x->shape[0] / count, count, false};
  }
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->section != TSR_FORWARD || pass_node(g, n, of, count)) continue;
    return tsr_diag_error(
        diags, n->location,
        n->op == TSR_OP_RESHAPE
            ? "%s splits the batch units apart: its bits would depend on the number of microbatches"
            : "%s mixes samples of different batch units: its bits would depend on the number of "
              "microbatches",
        tsr_op_title(n->op));
  }
  return true;
}
