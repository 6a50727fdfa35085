// SPDX-License-Identifier: Apache-2.0
/* A sample as text: its documents, and of each token the position and whether it is a target. */
#ifndef TSR_DATA_SAMPLE_VIEW_H
#define TSR_DATA_SAMPLE_VIEW_H
#include "data/dataset.h"

typedef struct {
  bool in_colour; /* ANSI sequences; else marks */
  int width;      /* columns */
} tsr_sample_style;

/* Appends sample `index` of T tokens: a line for each of separate documents, with the place that it
 * comes from, and its tokens, behind the position of the first one of each line. Targets, and
 * tokens that a label is at, are in ⟦ ⟧; in colour they are green instead, and of two neighbouring
 * tokens one is brighter. A line ends behind a token with the end of a line in it, or where `width`
 * is reached. Control characters and bytes that are no UTF-8 are shown as ↵, ⇥ and \x1b. `ignored`
 * is a target that does not count. */
void tsr_sample_print(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int64_t ignored,
    const tsr_sample_style *style, tsr_text *text);

#endif
