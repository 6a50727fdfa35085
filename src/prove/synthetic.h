// SPDX-License-Identifier: Apache-2.0
/* Synthetic samples: numbers of the counter-based generator as a function of seed, input, step,
 * sample and element, so that they do not depend on the mesh. */
#ifndef TSR_PROVE_SYNTHETIC_H
#define TSR_PROVE_SYNTHETIC_H
#include "config/config.h"
#include "graph/graph.h"

typedef struct {
  const tsr_graph *graph; /* its inputs: tokens, targets, positions, features, labels, values */
  uint64_t seed;
  int64_t tokens, classes; /* tokens and targets, and labels, are below */
  bool ignores;            /* every fifth target has no loss */
  int64_t step;
} tsr_synthetic;

/* Errors are those of tsr_run_data_needs_of. Targets are ignored where the configuration has an
 * ignore_index, or documents apart from each other. Documents (graph/documents.h) begin at every
 * sixth token on average. */
bool tsr_synthetic_make(
    const tsr_config *config, const tsr_graph *graph, tsr_synthetic *ret, tsr_diags *diags);

/* Element i of an input's row of a sample of the step. */
double tsr_synthetic_number(const tsr_synthetic *s, int input, int64_t sample, int64_t i);
/* tsr_fill_row; the context is a tsr_synthetic. */
void tsr_synthetic_fill(void *context, const char *input, int64_t sample, void *row);
/* Targets of a step that are not ignored; of rows with values, the rows. */
int64_t tsr_synthetic_targets(const tsr_synthetic *s, int64_t samples);

#endif
