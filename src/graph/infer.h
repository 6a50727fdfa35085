// SPDX-License-Identifier: Apache-2.0
/* Shape inference: one rule per op, from ops.def's infer column. */
#ifndef TSR_GRAPH_INFER_H
#define TSR_GRAPH_INFER_H
#include "graph/graph.h"

typedef struct {
  tsr_dtype dtype;
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  tsr_routed routed;
} tsr_type;

/* The outputs' types, or what is wrong with the inputs (in the graph's arena). Ops whose shape is
 * not their inputs' matter (reshape) say so. */
const char *tsr_infer(const tsr_graph *g, const tsr_node *node, tsr_type *ret_types);

#endif
