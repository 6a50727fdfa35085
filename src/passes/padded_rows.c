/* needs: a forward graph with a loss
 * gives: whether the rows behind a parameter's valid ones stay what they are: no token names them,
 *        and no logit that counts is made of them
 * breaks: nothing
 *
 * Those rows make a vocabulary divisible (vocab_padded). Checkpoints leave them out, so that they
 * must not be trained. What is made of them is followed: as rows of a table, and as the last
 * elements of what a product with the table gives. */
#include "graph/infer.h"
#include "passes/passes.h"
#include <string.h>

/* Of a value: how many of its rows, or of its last dimension's elements, are real; 0: all. */
typedef struct {
  int64_t rows, last;
  int param; /* whose */
} padding;

static padding of_param(const tsr_graph *g, const tsr_value *v) {
  const tsr_param *q = &g->params[v->param];
  padding none = {.param = v->param};
  if (q->valid0 >= q->shape[0]) return none;
  return q->ndim > 1 ? (padding){q->valid0, 0, v->param} : (padding){0, q->valid0, v->param};
}

/* Element i of the output depends on element i of every input, which may lack leading dimensions.
 */
static bool is_elementwise(tsr_op op) {
  bool overwrites = tsr_op_facts(op) & TSR_FACT_OVERWRITES;
  return overwrites || op == TSR_OP_SWIGLU || tsr_op_moves(op);
}

/* An attribute that a graph file gives, by its name. */
static int64_t attr(const tsr_node *n, const char *name) {
  return (int64_t)n->attr[tsr_op_attr(n->op, name)];
}

/* The real elements of what a reshape, a slice or a transposition gives; false: they are no longer
 * the first ones of its last dimension. */
static bool pass_shape(const tsr_graph *g, const tsr_node *n, padding in, padding *out) {
  const tsr_value *x = &g->values[n->inputs[0]], *y = &g->values[n->outputs[0]];
  int last = x->ndim - 1;
  *out = in;
  if (n->op == TSR_OP_RESHAPE) return !in.rows && y->shape[y->ndim - 1] == x->shape[last];
  if (n->op == TSR_OP_TRANSPOSE) {
    bool moves = attr(n, "dim0") == last || attr(n, "dim1") == last;
    bool matrix = x->ndim == 2 && moves;
    if (matrix) *out = (padding){in.last, in.rows, in.param};
    return matrix || (!in.rows && !moves);
  }
  int64_t dim = attr(n, "dim"), begin = attr(n, "begin"), end = attr(n, "end");
  int64_t real = in.rows && dim == 0 ? in.rows : in.last && dim == last ? in.last : 0;
  if (!real) return true;
  if (end <= real) *out = (padding){.param = in.param};
  return end <= real || begin == 0;
}

/* Finds the padding of a node's first output; false where padded rows would get a gradient. */
static bool pass_node(const tsr_graph *g, const tsr_node *n, const padding *of, padding *out) {
  padding x = of[n->inputs[0]], y = n->inputs_count > 1 ? of[n->inputs[1]] : (padding){0};
  bool from_x = x.rows || x.last, from_y = y.rows || y.last;
  *out = (padding){.param = from_x ? x.param : y.param};
  if (!from_x && !from_y) return true;
  switch (n->op) {
  case TSR_OP_EMBEDDING:
    return !from_x && !y.last;
  case TSR_OP_LINEAR:
    out->last = y.rows;
    return !x.last && !y.last;
  case TSR_OP_MATMUL:
    out->last = n->attr[1] != 0 ? y.rows : y.last;
    out->rows = n->attr[0] != 0 ? x.last : x.rows;
    return !(n->attr[0] != 0 ? x.rows : x.last) && !(n->attr[1] != 0 ? y.last : y.rows);
  case TSR_OP_CE_STATS:
  case TSR_OP_CE_LOSS:
    return !x.rows && !from_y && attr(n, "valid") <= x.last;
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
        diags, n->place, "%s would train rows of '%s' that are padding: %lld of its %lld are real",
        tsr_op_title(n->op), q->name, (long long)q->valid0, (long long)q->shape[0]);
    tsr_diag_hint(
        diags, "cross_entropy leaves them out with valid=%lld, slice with end=%lld; checkpoints do",
        (long long)q->valid0, (long long)q->valid0);
    return false;
  }
  return true;
}
