// SPDX-License-Identifier: Apache-2.0
/* What half precision loses of the scaled loss and of what is made of it: f16 has few exponents,
 * and where a number leaves them, the loss scale changes its rounding. */
#include "runtime/executable_internal.h"
#include <string.h>

/* The gradient of a loss is multiplied by the scale: it reads the step's numbers. */
static bool begins_scaled(const tsr_graph *g, const tsr_node *n) {
  bool reads = false;
  for (int i = 0; i < n->inputs_count; i++) reads |= n->inputs[i] == g->step_scalars;
  return reads && n->section == TSR_BACKWARD;
}

void tsr_executable_find_scaled(tsr_arena *arena, tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  bool *scaled = tsr_arena_array(arena, bool, g->values_count + 1);
  b->scaled = tsr_arena_array(arena, bool, g->nodes_count + 1);
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    bool any = begins_scaled(g, n), half = false;
    for (int k = 0; k < n->inputs_count; k++) any |= scaled[n->inputs[k]];
    for (int o = 0; o < n->outputs_count; o++) {
      scaled[n->outputs[o]] = any;
      half |= g->values[n->outputs[o]].dtype == TSR_F16;
    }
    b->scaled[i] = any && half;
  }
}

tsr_scale_losses tsr_executable_take_losses(tsr_executable *b) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  tsr_scale_losses all = {b->losses.underflows, b->losses.overflows}, theirs;
  b->losses.underflows = b->losses.overflows = 0;
  if (!b->process->device->counts_f16_losses) return (tsr_scale_losses){-1, -1};
  if (tsr_executable_is_alone(b)) return all;
  if (h->process) tsr_executable_send(b, 0, &all, sizeof all);
  for (int w = 1; h->process == 0 && w < h->processes; w++) {
    tsr_executable_receive(b, w, &theirs, sizeof theirs);
    all.underflows += theirs.underflows;
    all.overflows += theirs.overflows;
  }
  tsr_executable_broadcast(b, 0, &all, sizeof all);
  return all;
}
