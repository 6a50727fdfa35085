// SPDX-License-Identifier: Apache-2.0
#include "prove/replicas.h"
#include <string.h>

static bool same_slice(const tsr_part_of_value *a, const tsr_part_of_value *b) {
  return !memcmp(a->slice.offset, b->slice.offset, sizeof a->slice.offset) &&
         !memcmp(a->slice.shape, b->slice.shape, sizeof a->slice.shape);
}

/* A part is runs of neighbours, `stride` elements apart. */
static bool same_bytes(const tsr_part_of_value *a, const tsr_part_of_value *b, size_t each) {
  int64_t count = 1;
  for (int d = 0; d < a->slice.ndim; d++) count *= a->slice.shape[d];
  for (int64_t at = 0, run = 0; at < count; at += a->run, run++) {
    size_t offset = each * (size_t)(run * a->stride);
    const char *x = (const char *)a->address + offset, *y = (const char *)b->address + offset;
    if (memcmp(x, y, each * (size_t)a->run)) return false;
  }
  return true;
}

const tsr_value *tsr_replicas_differing(tsr_arena *arena, const tsr_executable *executable) {
  const tsr_graph *g = tsr_executable_graph(executable);
  tsr_part_of_value *parts =
      tsr_arena_array(arena, tsr_part_of_value, tsr_executable_parts_most(executable));
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    bool kept = value->kind == TSR_VALUE_PARAM || value->kind == TSR_VALUE_STATE;
    if (!kept || tsr_dtype_is_quantized(value->dtype)) continue;
    int count = tsr_executable_open_parts(executable, v, TSR_VIEW_READ, parts);
    bool same = true;
    for (int i = 1; same && i < count; i++) {
      int like = 0;
      while (!same_slice(&parts[like], &parts[i])) like++;
      same = same_bytes(&parts[like], &parts[i], (size_t)tsr_dtype_bytes(value->dtype));
    }
    tsr_executable_close_parts(executable, v);
    if (!same) return value;
  }
  return NULL;
}
