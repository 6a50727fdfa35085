// SPDX-License-Identifier: Apache-2.0
/* Where ZeRO keeps parameters. */
#include "base/hash.h"
#include "passes/placer.h"
#include <string.h>

static bool is_split_by_cp(const tsr_placer *p, const tsr_param *q, int dim) {
  tsr_placement cp = q->placement[TSR_CP];
  bool active = tsr_placer_is_active(p->placing, TSR_CP) && !p->placing->is_model;
  return active && cp.kind == TSR_SHARD && cp.dim == dim;
}

/* The hash is one that users can compute from a name. */
static tsr_placement owner_placement(const tsr_placer *p, const tsr_param *q, int groups) {
  tsr_placement owned = {.kind = TSR_OWNED, .groups = groups};
  uint64_t members = (uint64_t)tsr_placement_blocks(owned, p->placing->size[TSR_DP]);
  owned.owner = (int)(tsr_hash_fnv1a(q->name, strlen(q->name)) % members);
  return members > 1 ? owned : tsr_whole;
}

/* A dimension of each expert that tp does not split; -1: none. */
static int inside_experts(const tsr_param *q, tsr_placement tp) {
  for (int d = 1; d < q->ndim; d++)
    if (tp.kind != TSR_SHARD || tp.dim != d) return d;
  return -1;
}

/* A vocabulary that does not divide is split along its features instead; the norm of its gradient
 * is then made of the whole one. */
tsr_placement tsr_placer_zero(const tsr_placer *p, int param) {
  const tsr_param *q = &p->old->params[param];
  bool active = tsr_placer_is_active(p->placing, TSR_TP);
  tsr_placement tp = active ? q->placement[TSR_TP] : tsr_whole;
  int dim = tsr_param_is_of_experts(q) ? inside_experts(q, tp) : tsr_zero_dim(q->ndim, tp);
  int other = 1 - dim;
  int groups = p->placing->zero_groups > 1 ? p->placing->zero_groups : 0;
  tsr_placement shard = {TSR_SHARD, dim, groups, 0};
  bool trained = !p->old->grads || p->old->grads[param] >= 0;
  if (q->is_frozen) /* it has no state and no gradient; NF4 is whole, as its blocks are */
    trained = p->placing->zero == 3 && !tsr_dtype_is_quantized(q->dtype);
  if (!p->placing->zero || p->placing->size[TSR_DP] == 1 || !trained) return tsr_whole;
  if (p->placing->zero_owners) return owner_placement(p, q, groups);
  if (dim < 0) return tsr_whole;
  int blocks = tsr_placement_blocks(shard, p->placing->size[TSR_DP]);
  bool may_turn =
      q->ndim == 2 && !tsr_param_is_of_experts(q) && !(tp.kind == TSR_SHARD && tp.dim == other);
  if ((q->shape[dim] % blocks || is_split_by_cp(p, q, dim)) && may_turn) shard.dim = other;
  bool split = q->shape[shard.dim] % blocks || is_split_by_cp(p, q, shard.dim);
  return split ? tsr_whole : shard;
}
