// SPDX-License-Identifier: Apache-2.0
/* The axes that a mesh may have, and what a tensor is over each of them. */
#ifndef TSR_BASE_AXIS_H
#define TSR_BASE_AXIS_H

typedef enum { TSR_DP, TSR_PP, TSR_EP, TSR_CP, TSR_TP, TSR_AXES } tsr_axis;

static inline const char *tsr_axis_name(int axis) {
  static const char *const names[TSR_AXES] = {"dp", "pp", "ep", "cp", "tp"};
  return names[axis];
}

/* The axes over which the ranks have different samples: dp, and ep inside each block of dp. */
static inline int tsr_axis_splits_batch(int axis) { return axis == TSR_DP || axis == TSR_EP; }

/* One tensor over one axis: every member holds it whole; each holds its block of dimension `dim`;
 * each holds a summand, and the sum is partial; one member, the owner, holds it whole, and the
 * others nothing of it; or dimension 0 is rows of experts, and each holds those of its experts. */
typedef enum { TSR_REPLICATE, TSR_SHARD, TSR_PARTIAL, TSR_OWNED, TSR_ROUTED } tsr_placement_kind;
typedef struct {
  tsr_placement_kind kind;
  int dim;    /* of TSR_SHARD, else 0 */
  int groups; /* of TSR_SHARD and TSR_OWNED, > 1: the members are so many groups of neighbours, and
                 each group holds all blocks, or has an owner (hybrid sharding); else 0 */
  int owner;  /* of TSR_OWNED: the owner's place in its group; else 0 */
} tsr_placement;

static inline int tsr_placement_equal(tsr_placement a, tsr_placement b) {
  return a.kind == b.kind && a.dim == b.dim && a.groups == b.groups && a.owner == b.owner;
}

/* Into how many blocks a dimension is cut over an axis of `size`, and which one a coord holds; of
 * an owned tensor the members of a group, and a coord's place in its group. */
static inline int tsr_placement_blocks(tsr_placement p, int size) {
  return p.groups > 1 ? size / p.groups : size;
}
static inline int tsr_placement_block(tsr_placement p, int size, int coord) {
  return coord % tsr_placement_blocks(p, size);
}

/* Whether a coord holds the tensor or a part of it. */
static inline int tsr_placement_holds(tsr_placement p, int size, int coord) {
  return p.kind != TSR_OWNED || tsr_placement_block(p, size, coord) == p.owner;
}

#endif
