// SPDX-License-Identifier: Apache-2.0
#include "runtime/part_holders.h"
#include "runtime/executable_internal.h"
#include <stdlib.h>
#include <string.h>

tsr_tensor_slice tsr_executable_slice(const tsr_executable *b, int value, int rank) {
  return tsr_program_slice(tsr_executable_program(b, rank), value, b->ranks[rank].coord);
}

struct tsr_held_part {
  int64_t offset[TSR_SLICE_DIMS_MAX]; /* in the whole value */
  int rank;
};

tsr_part_holders tsr_part_holders_new(tsr_arena *arena, const tsr_executable *b) {
  tsr_part_holders h = {.value = -1, .ranks = b->process->options.parallel->ranks};
  h.first = tsr_arena_array(arena, int, h.ranks);
  h.parts = tsr_arena_array(arena, tsr_held_part, h.ranks);
  return h;
}

static int by_offset_and_rank(const void *a, const void *b) {
  const tsr_held_part *p = a, *q = b;
  int differ = memcmp(p->offset, q->offset, sizeof p->offset);
  return differ ? differ : p->rank - q->rank;
}

void tsr_part_holders_find(tsr_part_holders *h, const tsr_executable *b, int value, bool here) {
  int count = 0;
  h->value = value;
  for (int r = 0; r < h->ranks; r++) {
    h->first[r] = -1;
    if (here ? !tsr_executable_has(b, value, r) : !tsr_executable_holds(b, value, r)) continue;
    tsr_tensor_slice slice = tsr_executable_slice(b, value, r);
    tsr_held_part *p = &h->parts[count++];
    p->rank = r;
    memcpy(p->offset, slice.offset, sizeof p->offset);
  }
  qsort(h->parts, (size_t)count, sizeof *h->parts, by_offset_and_rank);
  for (int i = 0; i < count; i++) {
    const tsr_held_part *p = &h->parts[i];
    bool same = i && !memcmp(p->offset, p[-1].offset, sizeof p->offset);
    h->first[p->rank] = same ? h->first[p[-1].rank] : p->rank;
  }
}

int tsr_executable_first_holder(const tsr_executable *b, int value, int rank) {
  if (b->holders->value != value) tsr_part_holders_find(b->holders, b, value, false);
  return b->holders->first[rank];
}
