/* needs: a forward graph
 * gives: whether its loss is made of batch units that are computed each by itself; what mixes them
 *        is a softmax over the batch, or a product of samples with samples
 * breaks: nothing
 *
 * The batch units of a value lie along a dimension: index i of that is of unit i / stride % size.
 * A reshape keeps which element is whose. Every other op is asked by its placement rule, as if dp
 * split the dimension in which the units lie: what the rule keeps split it computes unit by unit.
 */
#include "passes/rules.h"

enum { RUNS_MAX = 4 };
typedef struct {
  int dim;
  int64_t stride, size;
} run;
typedef struct {
  run runs[RUNS_MAX]; /* several: a reshape has cut the units; none: the same for all samples */
  int count;
  bool mixed; /* of several units: a loss, and what is made of it */
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

/* Adds units of so many elements, cut where the dimensions of the value cut them. */
static bool add_runs(const tsr_value *v, int64_t stride, int64_t size, units *ret) {
  while (ret->count < RUNS_MAX) {
    int d = dim_of(v, stride, size);
    if (d >= 0) {
      ret->runs[ret->count++] = (run){d, stride / stride_of(v, d), size};
      return true;
    }
    /* the innermost dimension that has a part of them */
    for (d = v->ndim - 1; d >= 0 && stride_of(v, d) * v->shape[d] <= stride;) d--;
    if (d < 0) return false;
    int64_t inner = stride_of(v, d), end = inner * v->shape[d], part = end / stride;
    if (stride % inner || end % stride || size % part) return false;
    ret->runs[ret->count++] = (run){d, stride / inner, part};
    stride = end;
    size /= part;
  }
  return false;
}

static bool reshape(const tsr_graph *g, const tsr_node *n, units *of) {
  const tsr_value *x = &g->values[n->inputs[0]], *y = &g->values[n->outputs[0]];
  const units *in = &of[n->inputs[0]];
  units *out = &of[n->outputs[0]];
  for (int i = 0; i < in->count; i++)
    if (!add_runs(y, in->runs[i].stride * stride_of(x, in->runs[i].dim), in->runs[i].size, out))
      return false;
  return true;
}

/* Gives the outputs the run that the inputs have at this index; false where the op mixes units. */
static bool pass_run(const tsr_graph *g, const tsr_node *n, units *of, int index, int64_t parts) {
  tsr_placement *in = tsr_arena_array(g->arena, tsr_placement, n->inputs_count);
  tsr_rule_call call = {
      .g = g,
      .node = n,
      .placed = g,
      .inputs = n->inputs,
      .axis = TSR_DP,
      .in = in,
      .parts = parts};
  const run *first = NULL;
  for (int k = 0; k < n->inputs_count; k++) {
    const run *r = &of[n->inputs[k]].runs[index];
    in[k] = (tsr_placement){TSR_REPLICATE, 0, 0};
    if (!of[n->inputs[k]].count) continue;
    in[k] = (tsr_placement){TSR_SHARD, r->dim, 0};
    if (!first) first = r;
    if (r->stride != first->stride || r->size != first->size) return false;
  }
  tsr_rule_apply(&call);
  if (call.error) return false;
  for (int k = 0; k < n->inputs_count; k++) {
    tsr_placement is = {TSR_SHARD, of[n->inputs[k]].runs[index].dim, 0};
    if (of[n->inputs[k]].count && !tsr_placement_equal(in[k], is)) return false;
  }
  for (int o = 0; o < n->outputs_count; o++) {
    units *out = &of[n->outputs[o]];
    out->mixed = o == 0 && tsr_op_facts(n->op) & TSR_FACT_LOSS;
    if (out->mixed || call.out[o].kind == TSR_REPLICATE) continue;
    if (call.out[o].kind != TSR_SHARD) return false;
    out->runs[out->count++] = (run){call.out[o].dim, first->stride, first->size};
  }
  return true;
}

/* Finds the units of a node's outputs; false where it mixes those of its inputs. */
static bool pass_node(const tsr_graph *g, const tsr_node *n, units *of, int64_t parts) {
  int count = 0;
  if (tsr_op_facts(n->op) & (TSR_FACT_COLLECTIVE | TSR_FACT_LOCAL_CUT)) {
    of[n->outputs[0]] = of[n->inputs[0]];
    return true;
  }
  for (int k = 0; k < n->inputs_count; k++) {
    const units *u = &of[n->inputs[k]];
    if (u->mixed || (u->count && count && u->count != count)) return false;
    if (u->count) count = u->count;
  }
  if (n->op == TSR_OP_RESHAPE) return reshape(g, n, of);
  for (int i = 0; i < count; i++)
    if (!pass_run(g, n, of, i, parts)) return false;
  return true;
}

bool tsr_pass_check_mixed(const tsr_graph *g, int64_t count, tsr_diags *diags) {
  units *of = tsr_arena_array(g->arena, units, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *x = &g->values[v];
    if (x->kind != TSR_VALUE_INPUT || x->shape[0] % count) continue;
    of[v] = (units){.runs = {{0, x->shape[0] / count, count}}, .count = 1};
  }
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->section != TSR_FORWARD || pass_node(g, n, of, count)) continue;
    return tsr_diag_error(
        diags, n->place,
        "%s mixes samples of different batch units: its bits would depend on the number of "
        "microbatches",
        tsr_op_name(n->op));
  }
  return true;
}
