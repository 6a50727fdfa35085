// SPDX-License-Identifier: Apache-2.0
/* Elements of a rank's part of a tensor that are neighbours in the part and in the whole tensor
 * without padding. */
#ifndef TSR_GRAPH_ELEMENT_RUNS_H
#define TSR_GRAPH_ELEMENT_RUNS_H
#include "base/tensor_slice.h"
#include "graph/padding.h"

typedef struct {
  int64_t at;    /* the first one's row-major index in the part */
  int64_t whole; /* and in the whole tensor without padding */
  int64_t count;
} tsr_element_run;

/* The run behind *run of elements [begin, end) of the part, as long as it can be; *run is {0} at
 * first. `part` counts stored indices, padding included. False: only padding is left. */
bool tsr_element_run_next(
    const tsr_tensor_slice *part, const tsr_padding *padding, int64_t begin, int64_t end,
    tsr_element_run *run);

#endif
