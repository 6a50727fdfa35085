// SPDX-License-Identifier: Apache-2.0
#include "train/expert_load.h"
#include <string.h>

tsr_expert_load tsr_expert_load_of(tsr_arena *arena, const tsr_graph *g) {
  size_t prefix = strlen(TSR_EXPERT_COUNTS);
  int64_t most = 0;
  tsr_expert_load load = {
      .values = tsr_arena_array(arena, int, g->outputs_count + 1),
      .rows = tsr_arena_array(arena, int, g->outputs_count + 1),
      .experts = tsr_arena_array(arena, tsr_metrics_experts, g->outputs_count + 1)};
  for (int i = 0; i < g->outputs_count; i++) {
    const tsr_graph_end *end = &g->outputs[i];
    if (strncmp(end->name, TSR_EXPERT_COUNTS, prefix)) continue;
    int64_t experts = g->values[end->value].shape[1];
    load.values[load.layers] = end->value;
    load.rows[load.layers] =
        tsr_graph_find_output(g, tsr_arena_printf(arena, TSR_EXPERT_ROWS "%s", end->name + prefix));
    load.experts[load.layers++] = (tsr_metrics_experts){
        end->name + prefix, experts, tsr_arena_array(arena, double, experts), 0};
    if (experts > most) most = experts;
  }
  load.digits = tsr_arena_array(arena, float, 2 * most + 1);
  return load;
}

static double read_counts(
    const tsr_expert_load *load, const tsr_executable *x, int value, int64_t n, double *ret) {
  double all = 0;
  tsr_executable_read(x, value, load->digits);
  for (int64_t i = 0; i < n; i++) {
    double count = (double)load->digits[i] + (double)TSR_COUNT_DIGIT * (double)load->digits[n + i];
    if (ret) ret[i] = count;
    all += count;
  }
  return all;
}

void tsr_expert_load_read(const tsr_expert_load *load, const tsr_executable *executable) {
  for (int i = 0; i < load->layers; i++) {
    tsr_metrics_experts *e = &load->experts[i];
    e->dropped = read_counts(load, executable, load->values[i], e->experts, e->counts);
    if (load->rows[i] < 0) e->dropped = 0;
    else e->dropped -= read_counts(load, executable, load->rows[i], e->experts, NULL);
  }
}
