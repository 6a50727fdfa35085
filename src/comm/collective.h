// SPDX-License-Identifier: Apache-2.0
/* A collective among the members of a group. Sums are added in a tree of base/reduction_tree.h over
 * the members' order, wherever the members are: so they are equal to the same sum inside one rank.
 *
 * Before and after, with m members and a tensor seen as (outer, dim, inner):
 *   all_reduce       each holds a summand              → each holds the sum
 *   reduce_scatter   each holds a summand              → member i holds slice i of `to` of the sum
 *   all_gather       member i holds slice i of `from`  → each holds the whole
 *   reduce           each holds a summand              → the root holds the sum
 *   broadcast        the root holds a tensor           → each holds it
 *   ring_shift       each holds a tensor               → member i holds that of member i - by
 *   all_to_all       member i holds slice i of `from`  → member i holds slice i of `to`
 * Where a sum is `onto` something, members that get it hold the first summand, the same on all,
 * where the sum will be.
 * With g groups each slice is one of m / g, and each group has a root; a reduce_scatter and a
 * reduce add over all members, an all_gather and a broadcast stay inside their group. */
#ifndef TSR_COMM_COLLECTIVE_H
#define TSR_COMM_COLLECTIVE_H
#include "base/reduction_tree.h"
#include "device/device.h"
#include "graph/graph.h"
#include "kernels/kernels.h"

typedef struct {
  tsr_op op;
  int members;
  int groups; /* 1, or so many groups of neighbours each hold all blocks, or have a root */
  float *const *in;
  float *const *out;
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* whole over this axis; local on the others; units in dimension 0's
                                  front */
  int from, to;                /* split dimension before, after; -1 none */
  int root;                    /* reduce, broadcast: the root's place in its group */
  int by;                      /* ring_shift: from the member so many before, round the ring */
  tsr_tree_shape tree;         /* of sums */
  bool onto;                   /* of sums in a flat tree: see above */
  bool zigzag;     /* of `from`: a member's slice is two runs (base/sequence_layout.h) */
  int64_t element; /* bytes of one; what is moved may be anything */
  tsr_dtype dtype; /* of sums: f32, or a half precision, in which each sum of two is rounded */
  const tsr_kernels *k;
} tsr_collective;

/* Elements of dimensions [begin, end). */
static inline int64_t tsr_collective_elements(const tsr_collective *c, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; d++) n *= c->shape[d];
  return n;
}
/* Of a sum: the additions after a member's summand. */
static inline int tsr_collective_merges(const tsr_collective *c, int member) {
  return c->onto ? 1 : tsr_tree_of_merges(c->tree, c->members, member);
}
/* ring_shift: the member whose tensor `member` gets. */
static inline int tsr_collective_source(const tsr_collective *c, int member) {
  return ((member - c->by) % c->members + c->members) % c->members;
}

#endif
