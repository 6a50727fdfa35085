// SPDX-License-Identifier: Apache-2.0
/* Synthetic samples: numbers of the counter-based generator as a function of seed, input, step,
 * sample and element, so that they do not depend on the mesh.
 *
 * What ranks and microbatches normalise by differs between them: of a step's first sample no target
 * is ignored, of each later one no fewer than of the one before it, and of the last one of four or
 * more none counts; in every other step that is the other way round. The ignored targets of a
 * sample are those of its first or of its second half, and neighbours of these, so that the ranks
 * of cp have different numbers of them, too. */
#ifndef TSR_PROVE_SYNTHETIC_H
#define TSR_PROVE_SYNTHETIC_H
#include "config/config.h"
#include "graph/graph.h"

typedef struct {
  const tsr_graph *graph; /* its inputs: tokens, targets, positions, features, labels, values */
  uint64_t seed;
  int64_t tokens, classes; /* tokens and targets, and labels, are below */
  bool ignores;            /* some targets have no loss */
  int64_t step, samples;   /* samples of each step */
  double factor;           /* of numbers that are no integers */
} tsr_synthetic;

/* Errors are those of tsr_run_data_needs_of; `samples` is set by the run. Targets are ignored where
 * the configuration has an ignore_index, or documents apart from each other, as conversations are.
 * Of four samples three have a document (graph/documents.h) that begins at an odd position, and so
 * inside a rank's part of cp with an even number of positions, which one of its neighbours crosses;
 * in longer samples more of them begin. */
bool tsr_synthetic_make(
    const tsr_config *config, const tsr_graph *graph, tsr_synthetic *ret, tsr_diags *diags);

/* Element i of an input's row of a sample of the step. */
double tsr_synthetic_number(const tsr_synthetic *s, int input, int64_t sample, int64_t i);
/* tsr_fill_row; the context is a tsr_synthetic. */
void tsr_synthetic_fill(void *context, const char *input, int64_t sample, void *row);
/* Targets of a step that are not ignored; of rows with values, the rows. */
int64_t tsr_synthetic_targets(const tsr_synthetic *s, int64_t samples);

#endif
