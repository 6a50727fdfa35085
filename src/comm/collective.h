/* Collectives between ranks of one worker: the members' buffers are at hand, so an operation is a
 * loop over items that may be split over threads. Sums are added in the tree of base/tree.h over
 * the members' order, which is what makes them equal to the same sum inside one rank.
 *
 * Before and after, with m members and a tensor seen as (outer, dim, inner):
 *   all_reduce       each holds a summand                     → each holds the sum
 *   reduce_scatter   each holds a summand                     → member i holds slice i of dim of
 * the sum all_gather       member i holds slice i of dim            → each holds the whole
 * with g groups each slice is one of m / g, and all_gather stays inside the group
 *   ring_shift       each holds a tensor                      → member i holds member i - by's
 *   all_to_all       member i holds slice i of dimension from → member i holds slice i of dimension
 * to */
#ifndef TSR_COMM_COLLECTIVE_H
#define TSR_COMM_COLLECTIVE_H
#include "device/device.h"
#include "graph/graph.h"
#include "kernels/kernels.h"

typedef struct {
  tsr_op op;
  int members;
  int groups; /* 1, or so many groups of neighbours each hold all blocks */
  float *const *in;
  float *const *out;
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* whole over this axis; local on the others; units in dimension 0's
                                  front */
  int from, to;                /* split dimension before, after; -1 none */
  int by;                      /* ring_shift: from the member so many before, round the ring */
  bool zigzag;                 /* of `from`: a member's slice is two runs (base/sequence.h) */
  int64_t element;             /* bytes of one; sums are of f32, what is moved may be anything */
  const tsr_kernels *k;
} tsr_collective;

int64_t tsr_collective_items(const tsr_collective *c);
void tsr_collective_run(const tsr_collective *c, int64_t begin, int64_t end);
/* The whole of it, for buffers on a device; k is not needed. What is only moved may have members
 * whose buffers are elsewhere, NULL: then what is between those that are here. */
void tsr_collective_run_on(const tsr_device *device, const tsr_collective *c);

/* Elements of dimensions [begin, end). */
static inline int64_t tsr_collective_elements(const tsr_collective *c, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; d++) n *= c->shape[d];
  return n;
}
/* ring_shift: the member whose tensor `member` gets. */
static inline int tsr_collective_source(const tsr_collective *c, int member) {
  return ((member - c->by) % c->members + c->members) % c->members;
}
/* all_to_all on a device: what goes from one member to another, as one piece, row-major; from `in`,
 * and into `out`. */
void tsr_collective_pack(
    const tsr_device *device, const tsr_collective *c, int from, int to, void *piece);
void tsr_collective_unpack(
    const tsr_device *device, const tsr_collective *c, int from, int to, const void *piece);

#endif
