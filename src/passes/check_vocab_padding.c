// SPDX-License-Identifier: Apache-2.0
/* requires: a forward graph with a loss
 * produces: whether the rows behind a parameter's valid ones stay what they are: no token names
 * them, and no logit that counts is made of them
 * invalidates: nothing
 *
 * Those rows make a vocabulary divisible (vocab_padded). Checkpoints leave them out, so that they
 * must not be trained. What is made of them is followed: as rows of a table, and as the last
 * elements of what a product with the table gives. */
#include "passes/passes.h"

/* Of a value: how many of its rows, or of its last dimension's elements, are real; 0: all. */
typedef struct {
  int64_t rows, last;
  int param; /* whose */
} padding;

static padding of_param(const tsr_graph *g, const tsr_value *v) {
  const tsr_param *q = &g->params[v->param];
  padding none = {.param = v->param};
  int64_t real = q->padding.real;
  if (q->padding.dim || q->padding.blocks > 1 || real >= q->shape[0]) return none;
  return q->ndim > 1 ? (padding){real, 0, v->param} : (padding){0, real, v->param};
}

/* Element i of the output depends on element i of every input, which may lack leading dimensions.
 */
static bool is_elementwise(tsr_op op) {
  return tsr_op_facts(op) & (TSR_FACT_OVERWRITES | TSR_FACT_MAPS) || tsr_op_moves(op);
}

/* The real elements of what a reshape, a slice or a transposition gives; false: they are no longer
 * the first ones of its last dimension. */
static bool pass_shape(const tsr_graph *g, const tsr_node *n, padding in, padding *out) {
  const tsr_value *x = &g->values[n->inputs[0]], *y = &g->values[n->outputs[0]];
  int last = x->ndim - 1;
  *out = in;
  if (n->op == TSR_OP_RESHAPE) return !in.rows && y->shape[y->ndim - 1] == x->shape[last];
  if (n->op == TSR_OP_TRANSPOSE) {
    bool moves = n->attr.transpose.dim0 == last || n->attr.transpose.dim1 == last;
    bool matrix = x->ndim == 2 && moves;
    if (matrix) *out = (padding){in.last, in.rows, in.param};
    return matrix || (!in.rows && !moves);
  }
  const tsr_slice_attrs *split = &n->attr.slice;
  int64_t real = in.rows && split->dim == 0 ? in.rows : in.last && split->dim == last ? in.last : 0;
  if (!real) return true;
  if (split->end <= real) *out = (padding){.param = in.param};
  return split->end <= real || split->begin == 0;
}

/* What is joined with padding is no longer its dimension's end. */
static bool pass_concat(const tsr_node *n, const padding *of, padding *out) {
  *out = (padding){0};
  for (int i = 0; i < n->inputs_count; i++)
    if (of[n->inputs[i]].rows || of[n->inputs[i]].last) *out = of[n->inputs[i]];
  return !out->rows && !out->last;
}

/* Finds the padding of a node's first output; false where padded rows would get a gradient. */
static bool pass_node(const tsr_graph *g, const tsr_node *n, const padding *of, padding *out) {
  if (n->op == TSR_OP_CONCAT) return pass_concat(n, of, out);
  padding x = of[n->inputs[0]], y = n->inputs_count > 1 ? of[n->inputs[1]] : (padding){0};
  bool from_x = x.rows || x.last, from_y = y.rows || y.last;
  *out = (padding){.param = from_x ? x.param : y.param};
  if (!from_x && !from_y) return true;
  switch (n->op) {
  case TSR_OP_EMBEDDING:
    return !from_x && !y.last;
  case TSR_OP_ADAPTED_SQUARES:
    out->last = x.rows;
    return !x.last;
  case TSR_OP_LINEAR:
    out->last = y.rows;
    return !x.last && !y.last;
  case TSR_OP_MATMUL: {
    bool ta = n->attr.matmul.transpose_a, tb = n->attr.matmul.transpose_b;
    out->last = tb ? y.rows : y.last;
    out->rows = ta ? x.last : x.rows;
    return !(ta ? x.rows : x.last) && !(tb ? y.last : y.rows);
  }
  case TSR_OP_CE_STATS:
  case TSR_OP_CE_LOSS:
    return !x.rows && !from_y && n->attr.ce_stats.valid <= x.last;
  case TSR_OP_RESHAPE:
  case TSR_OP_TRANSPOSE:
  case TSR_OP_SLICE:
    return pass_shape(g, n, x, out);
  default:
    break;
  }
  out->rows = x.rows ? x.rows : y.rows;
  out->last = x.last ? x.last : y.last;
  return is_elementwise(n->op);
}

bool tsr_pass_check_padding(const tsr_graph *g, tsr_diags *diags) {
  padding *of = tsr_arena_array(g->arena, padding, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM) of[v] = of_param(g, &g->values[v]);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    padding out;
    bool ok = pass_node(g, n, of, &out);
    if (n->outputs_count) of[n->outputs[0]] = out;
    if (ok) continue;
    const tsr_param *q = &g->params[out.param];
    tsr_diag_error(
        diags, n->location,
        "%s would train rows of '%s' that are padding: %lld of its %lld are real",
        tsr_op_title(n->op), q->name, (long long)q->padding.real, (long long)q->shape[0]);
    tsr_diag_hint(
        diags, "cross_entropy leaves them out with valid=%lld, slice with end=%lld; checkpoints do",
        (long long)q->padding.real, (long long)q->padding.real);
    return false;
  }
  return true;
}
