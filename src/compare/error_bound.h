// SPDX-License-Identifier: Apache-2.0
/* How far two computations of a tensor may be apart that round in other places: an a-priori model
 * of rounding errors, after the probabilistic analysis of Higham and Mary (2019), in which the
 * roundings of a sum of K numbers grow as sqrt(K). Along the longest path from the inputs to a
 * tensor every task rounds its result once, to the type that it is stored in, and sums in f32:
 *
 *   bound = sum of u(stored type) + sum of sqrt(K) * u(f32)   over the tasks of the path
 *
 * relative to the largest element of the tensor. Errors of one path are added, not averaged, and
 * conditioning is left out; what is beyond the bound is another function, or is ill-conditioned.
 *
 * A step starts from weights with the errors of the steps before. Adam moves a weight by up to the
 * learning rate, whichever sign a gradient has that is nearly zero: two runs may be apart by twice
 * the sum of the rates. SGD's updates have the errors of their gradients. */
#ifndef TSR_COMPARE_ERROR_BOUND_H
#define TSR_COMPARE_ERROR_BOUND_H
#include "graph/graph.h"

typedef struct {
  double roundings; /* how many results are rounded */
  double stored;    /* the sum of the unit roundoffs of their types */
  double sums;      /* the sum of sqrt(K) */
} tsr_rounding_path;

/* Of each value of a graph (placed or not), which has values_count of them; in the arena.
 * `errors`: of each parameter, relative to its largest element; NULL: they are exact. */
tsr_rounding_path *
tsr_rounding_paths(tsr_arena *arena, const tsr_graph *graph, const double *errors);

/* The unit roundoff of a type, of safetensors' name ("F32", "BF16", "F16"); of others 0. */
double tsr_unit_roundoff(const char *dtype);

/* `roundoff`: of a type that another computation may have rounded all results to. */
double tsr_error_bound(tsr_rounding_path path, double roundoff);

#endif
