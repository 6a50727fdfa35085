// SPDX-License-Identifier: Apache-2.0
/* The choices of experts that a graph makes, which a run can record and another one replay. */
#ifndef TSR_GRAPH_ROUTING_H
#define TSR_GRAPH_ROUTING_H
#include "graph/graph.h"
#include <string.h>

/* A choose_experts of the forward pass. */
typedef struct {
  const char *name; /* the node's; of several nodes of one name "chosen", "chosen.2", … */
  int node;
  int64_t tokens; /* of a microbatch */
  int64_t k, experts;
} tsr_routing_layer;

/* In the order of the graph, in its arena; how many there are. A placed graph has the same. */
int tsr_graph_routing(const tsr_graph *graph, tsr_routing_layer **ret_layers);

/* Before autodiff: each choice is read from an input of its shape, i32, and the scores have their
 * weights and gradients as before. The input's name is this prefix and the layer's. */
#define TSR_ROUTING_INPUT "routing."
void tsr_graph_replay_routing(tsr_graph *graph);

static inline bool tsr_value_is_routing(const tsr_value *v) {
  return v->kind == TSR_VALUE_INPUT &&
         !strncmp(v->name, TSR_ROUTING_INPUT, sizeof TSR_ROUTING_INPUT - 1);
}
/* Tokens (batch, positions), and choices (batch, positions, k) that are replayed. */
static inline bool tsr_input_has_positions(const tsr_value *v) {
  return v->dtype == TSR_I32 && v->ndim == (tsr_value_is_routing(v) ? 3 : 2);
}
/* Of choose_experts: whether its second input is a bias, and the recorded choices; -1: none. */
static inline bool tsr_choice_has_bias(const tsr_node *n) {
  return n->inputs_count - n->attr.choose_experts.replay > 1;
}
static inline int tsr_choice_recorded(const tsr_node *n) {
  return n->attr.choose_experts.replay ? n->inputs_count - 1 : -1;
}

#endif
