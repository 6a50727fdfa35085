// SPDX-License-Identifier: Apache-2.0
/* The bookkeeping of a sum over the units of a sequence that `members` hold parts of, where the
 * parts travel around a ring.
 *
 * The sum is base/reduction_tree.h's tree over units 0..units-1, wherever the parts come from: a
 * leaf is one unit's partial result, and two subtrees are merged as soon as both are complete.
 * What waits for its sibling between two steps lies in a kept slot; what is made and merged inside
 * a step lies in a temporary one. Which subtrees wait in which slots follows from (units, members,
 * zigzag, what travels, coord, step) alone, so nothing but the partial results is stored between
 * the steps.
 *
 * Contiguous: member c holds the units [c, c+1) * units/members. Zigzag: the units are split into
 * 2*members chunks, and member c holds chunk c and then chunk 2*members-1-c, which under a causal
 * mask gives all members the same work. At a step a member has at hand the keys of the member that
 * many places before it, or the queries of the one that many places after it. */
#ifndef TSR_KERNELS_RING_ATTENTION_MERGE_H
#define TSR_KERNELS_RING_ATTENTION_MERGE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int64_t units; /* a multiple of members, zigzag of 2 * members */
  int members, coord;
  bool zigzag;  /* of one member: the same as contiguous */
  bool queries; /* queries travel, else keys */
} tsr_ring;

/* The member whose part is at hand at a step, and the global index of a member's unit. */
int tsr_ring_source(const tsr_ring *r, int step);
int64_t tsr_ring_unit(const tsr_ring *r, int member, int64_t local);

/* Kept and temporary slots that suffice for every coord and step. With chunks that are subtrees
 * (tsr_tree_is_subtree) these are O(log members) and O(log (units/members)), else O(log units). */
int tsr_ring_slots(const tsr_ring *r);
int tsr_ring_temps(const tsr_ring *r);

/* The subtree over the units [begin, end), and its slot: a kept one, or TSR_RING_TEMP + a temporary
 * one. */
enum { TSR_RING_TEMP = 64, TSR_RING_PARTS_MAX = 128 };
typedef struct {
  int64_t begin, end;
  int slot;
} tsr_ring_part;

typedef struct {
  int64_t units;
  uint64_t kept, temps; /* slots in use, a bit each */
  int count, last;      /* last: the part that was pushed or merged last */
  tsr_ring_part parts[TSR_RING_PARTS_MAX];
} tsr_ring_pending;

/* What waits before a step; before step `members`, the whole sum. */
void tsr_ring_before(const tsr_ring *r, int step, tsr_ring_pending *ret_pending);

/* One unit more: returns the temporary slot for its partial result. Then merge until there is
 * nothing to merge: the result is put into left's slot, and right's is free. */
int tsr_ring_push(tsr_ring_pending *p, int64_t unit);
bool tsr_ring_merge(tsr_ring_pending *p, tsr_ring_part *ret_left, tsr_ring_part *ret_right);

/* At the end of a step: returns one part that lies in a temporary slot, and the kept slot that it
 * is to be copied to; false when there is none left. */
bool tsr_ring_settle(tsr_ring_pending *p, tsr_ring_part *ret_from, int *ret_to);

#endif
