// SPDX-License-Identifier: Apache-2.0
/* Where the mesh's run and the one on one rank part. */
#ifndef TSR_PROVE_LOCATE_H
#define TSR_PROVE_LOCATE_H
#include "prove/compare.h"

typedef struct {
  const tsr_prove_request *request;
  const tsr_reduced_run *plan;
  const tsr_recording *how;
  const tsr_state *mesh, *single;
} tsr_location_search;

/* The first value that a node makes in step 1 and that differs, where a recompilation with values
 * as outputs computes the difference again and both runs distribute the samples alike; else the
 * first loss, gradient, weight or state (tsr_state_compare). False: there is none. `ret_state` is
 * the mesh's that the difference is of. */
bool tsr_locate(
    const tsr_location_search *search, tsr_state_difference *ret_difference, tsr_state *ret_state);

#endif
