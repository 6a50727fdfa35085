// SPDX-License-Identifier: Apache-2.0
/* Where the mesh's run and the one on one rank part. */
#ifndef TSR_PROVE_LOCATE_H
#define TSR_PROVE_LOCATE_H
#include "prove/compare.h"

typedef struct {
  tsr_arena *arena;
  const tsr_reduced_run *plan;
  const tsr_recording *how;
  const tsr_state *mesh, *single;
} tsr_location_search;

/* The first tensor that a task of the mesh computes and that differs, in the first step that has a
 * difference; else the first loss, gradient, weight or state (tsr_state_compare). Both programs run
 * once more for the numbers of the tensor. False: there is no difference. */
bool tsr_locate(const tsr_location_search *search, tsr_state_difference *ret_difference);

#endif
