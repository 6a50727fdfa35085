// SPDX-License-Identifier: Apache-2.0
/* How the positions of a sequence lie over the members of cp, and in which order the units of
 * positions are added.
 *
 * Contiguous: member c holds the c-th run. Zigzag: the sequence in 2 * members chunks, member c
 * holds chunk c and then chunk 2 * members - 1 - c, which under a causal mask is the same work for
 * all. The tree's leaves are then taken from both ends in turn (0, n-1, 1, n-2, …), so that what a
 * member holds is a subtree, as it is in the contiguous case; the layout is part of the recipe. */
#ifndef TSR_BASE_SEQUENCE_LAYOUT_H
#define TSR_BASE_SEQUENCE_LAYOUT_H
#include <stdbool.h>
#include <stdint.h>

/* The position in the whole sequence of a member's i-th of `local`. */
static inline int64_t
tsr_sequence_position(bool zigzag, int members, int coord, int64_t local, int64_t i) {
  if (!zigzag || members == 1) return coord * local + i;
  int64_t half = local / 2;
  return i < half ? coord * half + i : (2 * members - 1 - coord) * half + i - half;
}

/* The unit, of a member's `units` in the order in which it holds them, that is the tree's leaf. */
static inline int64_t tsr_sequence_unit(bool zigzag, int64_t units, int64_t leaf) {
  if (!zigzag) return leaf;
  return leaf % 2 ? units - 1 - leaf / 2 : leaf / 2;
}

#endif
