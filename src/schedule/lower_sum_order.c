// SPDX-License-Identifier: Apache-2.0
/* requires: a placed graph's node, and the local shapes of its inputs and outputs
 * produces: the record of the node's sum
 * invalidates: nothing */
#include "schedule/program.h"
#include <string.h>

/* The dimensions [first, end) of an input that an op sums over; none where input < 0. */
typedef struct {
  int input, first, end;
} summed_dims;

static summed_dims summed_dims_of(const tsr_graph *g, const tsr_node *n) {
  const tsr_value *x = n->inputs_count ? &g->values[n->inputs[0]] : NULL;
  switch ((int)n->op) {
  case TSR_OP_LINEAR:
  case TSR_OP_LINEAR_DX:
  case TSR_OP_ROUTER:
  case TSR_OP_ROUTER_DX:
  case TSR_OP_EXPERT_LINEAR:
  case TSR_OP_EXPERT_LINEAR_DX:
  case TSR_OP_SUM_HEADS:
  case TSR_OP_CE_STATS:
  case TSR_OP_ADAPTED_SQUARES:
    return (summed_dims){0, x->ndim - 1, x->ndim};
  case TSR_OP_MATMUL: {
    int k = n->attr.matmul.transpose_a ? x->ndim - 2 : x->ndim - 1;
    return (summed_dims){0, k, k + 1};
  }
  case TSR_OP_LINEAR_DW:
  case TSR_OP_NORM_DW:
  case TSR_OP_SQUARED_ERROR:
    return (summed_dims){0, 0, x->ndim - 1};
  case TSR_OP_EMBEDDING_DW:
    return (summed_dims){0, 0, x->ndim};
  case TSR_OP_SUM_TO:
    return (summed_dims){0, 0, x->ndim - g->values[n->inputs[1]].ndim};
  case TSR_OP_CE_LOSS:
    return (summed_dims){2, 0, g->values[n->inputs[2]].ndim};
  default:
    return (summed_dims){.input = -1};
  }
}

/* The units of an axis split dimension `dim` of the input, and their sums are not complete here. */
static bool is_split(const tsr_value *in, const tsr_value *out, int axis, int dim) {
  tsr_placement p = in->placement[axis];
  return out->placement[axis].kind == TSR_PARTIAL && p.kind == TSR_SHARD && p.dim == dim;
}

static int64_t at_least_one(int64_t n) { return n > 1 ? n : 1; }

/* A loss has one value for each sample, which is a unit. */
static bool keeps_samples(const tsr_node *n) {
  return tsr_op_facts(n->op) & TSR_FACT_LOSS && tsr_loss_samples(n) > 0;
}

static void split_dim(
    const tsr_lowering *l, const tsr_value *in, const tsr_value *out, int dim, tsr_reduction *r,
    tsr_reduced_dim *d) {
  tsr_placement dp = in->placement[TSR_DP];
  bool samples = r->keeps_batch && dp.kind == TSR_SHARD && dp.dim == dim;
  bool batch = is_split(in, out, TSR_DP, dim) || is_split(in, out, TSR_EP, dim);
  d->split[TSR_DP] = samples || batch;
  d->split[TSR_CP] = is_split(in, out, TSR_CP, dim) && !out->units_of_sequence;
  d->split[TSR_TP] = is_split(in, out, TSR_TP, dim) && !out->units;
  if (d->split[TSR_DP]) r->batch = at_least_one(l->batch_units);
  if (d->split[TSR_CP]) r->sequence = at_least_one(l->sequence_units);
  if (d->split[TSR_TP]) r->tp = at_least_one(l->tp_units);
}

/* Where positions are not split over cp they are the second of (batch, positions, features). */
static int kept_dim_of(const tsr_value *in, const tsr_value *out) {
  tsr_placement cp = in->placement[TSR_CP];
  if (!out->units_of_sequence) return in->placement[TSR_TP].dim;
  return cp.kind == TSR_SHARD ? cp.dim : 1;
}

/* What tp splits has runs of neighbours on each rank, so its units are added in their order. */
static bool is_split_by_tp(const tsr_value *in, int dim) {
  return in->placement[TSR_TP].kind == TSR_SHARD && in->placement[TSR_TP].dim == dim;
}

static tsr_reduction of_units(tsr_tree_shape tree, const tsr_tensor *in, const tsr_tensor *out) {
  tsr_reduction r = tsr_reduction_none();
  r.tree = tree;
  r.ndim = 1;
  r.tp = in->units / at_least_one(out->units);
  r.dim[0] = (tsr_reduced_dim){.size = r.tp, .split = {[TSR_TP] = true}};
  return r;
}

static int partial_input(const tsr_graph *g, const tsr_node *n, int axis) {
  for (int i = 0; i < n->inputs_count; i++)
    if (g->values[n->inputs[i]].placement[axis].kind == TSR_PARTIAL) return n->inputs[i];
  return -1;
}

/* Whether a collective adds partial sums of each token over its experts, also behind ops that pass
 * a partial sum on. Experts are added in the binary tree over all of them, whatever the tree of
 * units is. */
static bool adds_experts(const tsr_graph *g, const tsr_node *n) {
  int axis = tsr_node_axis(n);
  for (int value; (value = partial_input(g, n, axis)) >= 0 && g->values[value].node >= 0;) {
    n = &g->nodes[g->values[value].node];
    if (n->op == TSR_OP_COMBINE_EXPERTS || n->op == TSR_OP_PERMUTE_EXPERTS_DX) return true;
  }
  return false;
}

/* The half precision in which ranks of tp add what a sum leaves partial. */
static tsr_dtype rounds_to(const tsr_reduction *r, const tsr_value *out) {
  bool split = false;
  for (int d = 0; d < r->ndim; d++) split |= r->dim[d].split[TSR_TP];
  return split && tsr_dtype_is_half(out->dtype) ? out->dtype : TSR_F32;
}

tsr_reduction tsr_reduction_of(const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  tsr_reduction r = tsr_reduction_none();
  if (tsr_op_is_collective(n->op))
    r.tree = adds_experts(p->graph, n) ? TSR_TREE_BINARY : p->lowering.tree;
  if (n->op == TSR_OP_SUM_UNITS)
    return of_units(p->lowering.tree, &p->tensors[n->inputs[0]], &p->tensors[n->outputs[0]]);
  summed_dims dims = summed_dims_of(p->graph, n);
  if (dims.input < 0) return r;
  const tsr_value *in = &p->graph->values[n->inputs[dims.input]],
                  *out = &p->graph->values[n->outputs[0]];
  const tsr_tensor *local = &p->tensors[n->outputs[0]];
  r.tree = p->lowering.tree;
  r.ndim = dims.end - dims.first;
  r.zigzag = p->lowering.zigzag;
  r.keeps_batch = out->batch_units > 0 || keeps_samples(n);
  for (int d = 0; d < r.ndim; d++) {
    r.dim[d].size = p->tensors[n->inputs[dims.input]].shape[dims.first + d];
    split_dim(&p->lowering, in, out, dims.first + d, &r, &r.dim[d]);
  }
  if (n->op == TSR_OP_CE_STATS) { /* (…, units, 3): its last dimension is summed to one of these */
    r.kept_dim = 0;
    r.kept = local->shape[local->ndim - 2];
  } else if (out->units) {
    r.kept_dim = kept_dim_of(in, out) - dims.first;
    r.kept = local->units / (r.keeps_batch ? r.batch : 1);
    r.kept_positions = out->units_of_sequence && !is_split_by_tp(in, dims.first + r.kept_dim);
  }
  r.rounds = rounds_to(&r, out);
  return r;
}

static bool shares_experts(const tsr_value *v, int axis) {
  return tsr_routed_is_weights(v->routed) && v->placement[axis].dim == 0;
}

/* The pieces of experts are runs of experts. */
static int norm_dim_of(const tsr_value *v) {
  return tsr_routed_is_weights(v->routed) ? 0 : tsr_zero_dim(v->ndim, v->placement[TSR_TP]);
}

const tsr_norm_pieces *tsr_norm_pieces_of(const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  if (n->op != TSR_OP_NORM_STATS) return NULL;
  const tsr_value *v = &p->graph->values[n->inputs[0]];
  const tsr_tensor *x = &p->tensors[n->inputs[0]], *y = &p->tensors[n->outputs[0]];
  bool split = v->placement[TSR_TP].kind == TSR_SHARD && y->units && !shares_experts(v, TSR_TP);
  tsr_norm_pieces *r = tsr_arena_alloc(p->graph->arena, sizeof *r);
  *r = (tsr_norm_pieces){.ndim = x->ndim, .dim = norm_dim_of(v), .pieces = y->shape[0]};
  memcpy(r->shape, x->shape, sizeof r->shape);
  r->whole = r->dim < 0 ? 0 : v->shape[r->dim];
  r->tp_dim = split ? v->placement[TSR_TP].dim : -1;
  r->parts = split ? y->units : 1;
  r->units = at_least_one(y->units);
  return r;
}
