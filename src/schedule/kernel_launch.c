// SPDX-License-Identifier: Apache-2.0
#include "schedule/kernel_launch.h"
#include <stdbool.h>
#include <string.h>

static bool is_same(const tsr_kernel_launch *a, const tsr_kernel_launch *b) {
  return !strcmp(a->kernel, b->kernel) && !strcmp(a->tile, b->tile) &&
         !memcmp(a->grid, b->grid, sizeof a->grid) &&
         !memcmp(a->block, b->block, sizeof a->block) && a->shared_bytes == b->shared_bytes;
}

void tsr_kernel_launches_add(tsr_kernel_launches *l, const tsr_kernel_launch *launch) {
  for (int i = 0; i < l->count; i++)
    if (is_same(&l->launches[i], launch)) {
      l->launches[i].count++;
      return;
    }
  void *launches = l->launches;
  tsr_arena_grow(l->arena, &launches, sizeof *l->launches, l->count, &l->room);
  l->launches = launches;
  l->launches[l->count] = *launch;
  l->launches[l->count++].count = 1;
}
