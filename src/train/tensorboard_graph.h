// SPDX-License-Identifier: Apache-2.0
/* The forward graph of a run for TensorBoard: a node for each input, parameter and node; what a
 * name has before each point is a group, so the nodes of a block are together. */
#ifndef TSR_TRAIN_TENSORBOARD_GRAPH_H
#define TSR_TRAIN_TENSORBOARD_GRAPH_H
#include "graph/graph.h"
#include "tensorboard/writer.h"

void tsr_tensorboard_graph_add(tsr_tensorboard *writer, const tsr_graph *graph);

#endif
