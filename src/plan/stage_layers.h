// SPDX-License-Identifier: Apache-2.0
/* Which layers each pipeline stage has, for `plan`. */
#ifndef TSR_PLAN_STAGE_LAYERS_H
#define TSR_PLAN_STAGE_LAYERS_H
#include "config/config.h"
#include "graph/graph.h"

/* A line for each virtual stage of a graph before placement: its name where pipeline.stages gives
 * one, and its statements, of which repetitions that follow each other are a range:
 * "  stage 1, decoder: block.1 to block.3, n, logits, loss". Of more than 16 stages
 * the first 15 and the last; nothing of a graph of one. */
void tsr_stage_layers_print(const tsr_config *config, const tsr_graph *graph, tsr_text *text);

#endif
