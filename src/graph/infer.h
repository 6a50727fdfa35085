/* Shape inference: one rule per op, from ops.def's infer column. */
#ifndef TSR_GRAPH_INFER_H
#define TSR_GRAPH_INFER_H
#include "graph/graph.h"

typedef struct {
  tsr_dtype dtype;
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
} tsr_type;

/* The outputs' types, or what is wrong with the inputs (in the graph's arena). Ops whose shape is
 * not their inputs' matter (reshape) say so. */
const char *tsr_infer(const tsr_graph *g, const tsr_node *node, tsr_type *ret_types);

int tsr_op_outputs(tsr_op op);
/* An op's attribute names, separated by NULs inside the arena-free table; -1 when there is no such
 * name. */
int tsr_op_attr(tsr_op op, const char *name);
int tsr_op_attrs(
    tsr_op op, const char *names[TSR_ATTRS_MAX], double defaults[TSR_ATTRS_MAX],
    bool required[TSR_ATTRS_MAX]);
void tsr_op_defaults(tsr_op op, double attr[TSR_ATTRS_MAX]);

#endif
