// SPDX-License-Identifier: Apache-2.0
/* A graph file's attributes: read by the fields of a set. */
#ifndef TSR_GRAPH_CALL_ATTRS_H
#define TSR_GRAPH_CALL_ATTRS_H
#include "graph/graph.h"

/* The call's attributes into `ret_attrs`, with the set's defaults. False with a diagnostic where a
 * name is not one of the set's, a value not of its type, or a required field is left out. */
bool tsr_call_read_attrs(
    const tsr_graph *g, const tsr_call *call, const tsr_attr_set *set, tsr_attrs *ret_attrs,
    tsr_diags *diags);
/* What a call gives by a name, or NULL. */
const tsr_call_attr *tsr_call_find_attr(const tsr_call *call, const char *name);

#endif
