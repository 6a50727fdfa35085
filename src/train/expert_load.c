// SPDX-License-Identifier: Apache-2.0
#include "train/expert_load.h"
#include <string.h>

tsr_expert_load tsr_expert_load_of(tsr_arena *arena, const tsr_graph *g) {
  size_t prefix = strlen(TSR_EXPERT_COUNTS);
  int64_t most = 0;
  tsr_expert_load load = {
      .values = tsr_arena_array(arena, int, g->outputs_count + 1),
      .experts = tsr_arena_array(arena, tsr_metrics_experts, g->outputs_count + 1)};
  for (int i = 0; i < g->outputs_count; i++) {
    const tsr_graph_end *end = &g->outputs[i];
    if (strncmp(end->name, TSR_EXPERT_COUNTS, prefix)) continue;
    int64_t experts = g->values[end->value].shape[1];
    load.values[load.layers] = end->value;
    load.experts[load.layers++] = (tsr_metrics_experts){
        end->name + prefix, experts, tsr_arena_array(arena, double, experts)};
    if (experts > most) most = experts;
  }
  load.digits = tsr_arena_array(arena, float, 2 * most + 1);
  return load;
}

void tsr_expert_load_read(const tsr_expert_load *load, const tsr_executable *executable) {
  for (int i = 0; i < load->layers; i++) {
    const tsr_metrics_experts *e = &load->experts[i];
    tsr_executable_read(executable, load->values[i], load->digits);
    for (int64_t k = 0; k < e->experts; k++)
      e->counts[k] = (double)load->digits[k] +
                     (double)TSR_COUNT_DIGIT * (double)load->digits[e->experts + k];
  }
}
