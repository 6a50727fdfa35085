// SPDX-License-Identifier: Apache-2.0
/* Whether ranks that have the same part of a parameter or of optimizer state have the same bytes of
 * it. A whole tensor is read from one replica of each part, so a comparison of whole tensors does
 * not see the others. */
#ifndef TSR_PROVE_REPLICAS_H
#define TSR_PROVE_REPLICAS_H
#include "runtime/process.h"

/* The first tensor, in the graph's order, of which two ranks have other bytes; NULL: there is
 * none. Weights in NF4 are frozen and are not compared. */
const tsr_value *tsr_replicas_differing(tsr_arena *arena, const tsr_executable *executable);

#endif
