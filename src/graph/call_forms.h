// SPDX-License-Identifier: Apache-2.0
/* Calls of graph files that are more than one op of ops.def, or an op with attributes of its own.
 * */
#ifndef TSR_GRAPH_CALL_FORMS_H
#define TSR_GRAPH_CALL_FORMS_H
#include "graph/call_attrs.h"

/* One call while it is added to a graph. */
typedef struct {
  tsr_graph *g;
  const tsr_call *call; /* its attributes have names */
  int *values, *count;  /* the results so far */
  tsr_diags *diags;
} tsr_call_builder;

typedef struct {
  const char *name;
  int inputs_min, inputs_max;
  tsr_op op; /* whose types the inputs must have */
  tsr_attr_set_id attrs;
  bool (*add)(const tsr_call_builder *b); /* NULL: the op as it is */
} tsr_call_form;

extern const tsr_call_form tsr_call_forms[];
extern const int tsr_call_forms_count;

/* An op by its name and attributes in ops.def. False with a diagnostic at the call. */
bool tsr_call_add_op(const tsr_call_builder *b, tsr_op op);

#endif
