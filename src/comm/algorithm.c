// SPDX-License-Identifier: Apache-2.0
#include "comm/algorithm.h"
#include "comm/slices.h"
#include <assert.h>

static bool has_library_sum(const tsr_collective_request *r) {
  const tsr_collective *c = r->collective;
  const tsr_layout *l = r->layout;
  if (!r->library || !tsr_collective_adds(c) || c->onto) return false;
  if (!r->on_device)
    return tsr_algorithm_has_library_sum(
        c->op, c->dtype, c->groups, tsr_collective_elements(c, 0, c->ndim));
  bool one_each = c->members == l->processes;
  for (int m = 0; m < c->members && one_each; m++) one_each = l->ascending[l->process_of[m]] == m;
  int64_t outer = c->op == TSR_OP_REDUCE_SCATTER ? tsr_collective_elements(c, 0, c->to) : 1;
  return tsr_algorithm_has_device_library_sum(c->op, c->groups, outer, one_each);
}

const tsr_step_list *tsr_algorithm_plan(tsr_arena *arena, const tsr_collective_request *r) {
  bool adds = tsr_collective_adds(r->collective);
  assert(r->collective->members == r->layout->members);
  assert(!adds || r->collective->element == (r->collective->dtype == TSR_F32 ? 4 : 2));
  if (r->layout->processes == 1) return tsr_algorithm_in_process(arena, r);
  if (has_library_sum(r)) return tsr_algorithm_library_sum(arena, r);
  if (r->shared) return tsr_algorithm_shared_sum(arena, r);
  if (r->ring) return tsr_algorithm_ring(arena, r);
  return adds ? tsr_algorithm_tree_sum(arena, r) : tsr_algorithm_direct(arena, r);
}
