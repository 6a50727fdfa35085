// SPDX-License-Identifier: Apache-2.0
/* Parameters of a user's own graph that tp splits into uneven blocks. */
#ifndef TSR_MODEL_UNEVEN_SHARDS_H
#define TSR_MODEL_UNEVEN_SHARDS_H
#include "graph/graph.h"

/* Gives parameters whose padding has several blocks their stored shape (graph/padding.h), and with
 * them what is made of them: the features between a column-parallel and a row-parallel layer are
 * stored with padding that is zero, and what needs all real ones gets them without. Ops that see
 * heads or new dimensions in padded features are refused, at their place. Returns `graph` where no
 * parameter is uneven. */
bool tsr_uneven_expand(const tsr_graph *graph, tsr_graph **ret_graph, tsr_diags *diags);

#endif
