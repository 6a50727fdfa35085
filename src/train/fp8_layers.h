// SPDX-License-Identifier: Apache-2.0
/* Which linear layers training_config.precision fp8 is for. */
#ifndef TSR_TRAIN_FP8_LAYERS_H
#define TSR_TRAIN_FP8_LAYERS_H
#include "config/config.h"
#include "graph/graph.h"

/* Gives the layers of a forward graph the recipe of FP8 where the configuration has that precision.
 * `checks`: also says which keys have no effect. Errors: names in fp8.exclude of no layer; a base
 * that is stored in NF4. */
bool tsr_compile_fp8(
    tsr_arena *arena, const tsr_config *config, bool checks, tsr_graph *graph, tsr_diags *diags);

#endif
