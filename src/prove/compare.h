// SPDX-License-Identifier: Apache-2.0
/* Where two states differ: that of the mesh, and that of one rank. */
#ifndef TSR_PROVE_COMPARE_H
#define TSR_PROVE_COMPARE_H
#include "prove/recorded_run.h"

typedef struct {
  tsr_recorded_kind kind;
  int step;               /* from 0 */
  const tsr_value *value; /* of the mesh's placed graph */
  const char *name;
  bool is_gradient; /* of a parameter, whose name it has */
  bool is_value;    /* what a node made, of tsr_state_compare_values; `kind` means nothing */
  bool is_absent;   /* one of the two has no tensor of this name and size; there is no element */
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  int64_t element, differing, count; /* the first that differs; how many of how many */
  float mesh, single;
  int tensors, tensors_differing; /* of the kind, in the step */
  int stage, task;                /* that writes it on the mesh; task -1: none does */
  tsr_location location;          /* in the graph file */
} tsr_state_difference;

/* Whether losses, gradients, weights and optimizer state of all steps have the same bits. Else the
 * first difference: of the first step, of the first kind of that; of gradients the one that the
 * step makes first, of other tensors the first in the graph's order. */
bool tsr_state_compare(
    const tsr_state *mesh, const tsr_state *single, tsr_state_difference *ret_difference);

/* The same for what the nodes made in step 1, of runs whose values are outputs: the first node
 * whose result differs, in the order of the mesh's graph. What one of them alone recomputes is not
 * compared. */
bool tsr_state_compare_values(
    const tsr_state *mesh, const tsr_state *single, tsr_state_difference *ret_difference);

/* A failure at the place in the graph file, with the element, its unit and ranks, and the task. */
void tsr_state_explain(
    const tsr_state_difference *difference, const tsr_state *mesh, const tsr_parallel *parallel,
    tsr_diags *diags);

/* The largest relative difference of losses and norms, where no bits are promised. */
double tsr_state_distance(const tsr_state *mesh, const tsr_state *single);

#endif
