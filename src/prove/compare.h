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
  const char
      *traced;      /* the name of tsr_traced_value, of tsr_state_find_value, of which `kind` means
                         nothing; or NULL */
  const char *form; /* of it, which differs on the mesh from what it is made of; or NULL */
  bool is_absent;   /* one of the two has no tensor of this name and size; there is no element */
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  int64_t element, differing, count; /* the first that differs; how many of how many: 0 */
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

/* The first tensor that a task computes in a step and whose hash differs, in the order of the
 * mesh's graph; or of which the mesh has two forms that differ, so that the collective between them
 * is wrong. What one of them alone computes, as what it recomputes, is not compared. False: there
 * is none. There is no element. */
bool tsr_state_find_value(
    const tsr_state *mesh, const tsr_state *single, int step, tsr_state_difference *ret_difference);
/* The element, of runs that have captured the value; and of a gradient, which all runs have. */
void tsr_state_add_element(
    const tsr_state *mesh, const tsr_state *single, tsr_state_difference *difference);
void tsr_state_add_gradient(
    const tsr_state *mesh, const tsr_state *single, tsr_state_difference *difference);

/* A failure at the place in the graph file, with the element, its unit and ranks, and the task. */
void tsr_state_explain(
    const tsr_state_difference *difference, const tsr_state *mesh, const tsr_parallel *parallel,
    tsr_diags *diags);

/* The largest relative difference of losses and norms, where no bits are promised. */
double tsr_state_distance(const tsr_state *mesh, const tsr_state *single);

#endif
