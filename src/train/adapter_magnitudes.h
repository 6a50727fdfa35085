// SPDX-License-Identifier: Apache-2.0
/* What DoRA's magnitudes begin with (Liu et al., 2024). */
#ifndef TSR_TRAIN_ADAPTER_MAGNITUDES_H
#define TSR_TRAIN_ADAPTER_MAGNITUDES_H
#include "runtime/process.h"

/* Sets the magnitudes of each adapter of the graph to the norms of the rows of its weight, as the
 * executable has it. All processes call it together. */
void tsr_magnitudes_begin(tsr_executable *executable, const tsr_graph *graph);

#endif
