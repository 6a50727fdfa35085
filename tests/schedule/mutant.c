// SPDX-License-Identifier: Apache-2.0
/* What faults of single rules are made with. */
#include "faults.h"
#include <string.h>

int64_t mutant_room(tsr_program *p, int64_t bytes) {
  int64_t at = (p->bytes[TSR_SEGMENT_WORK] + 63) / 64 * 64;
  p->bytes[TSR_SEGMENT_WORK] = at + (bytes + 63) / 64 * 64;
  return at;
}

void mutant_move_value(mutant *m, int value) {
  tsr_tensor *t = &m->p->tensors[value];
  t->segment = TSR_SEGMENT_WORK;
  t->slot_group = -1;
  t->offset = mutant_room(m->p, 16 * tsr_tensor_bytes(t)); /* of a sum over microbatches, too */
  sample_bind(m->p);
}

int mutant_pick_op(mutant *m, tsr_op op) {
  int count = 0, chosen = -1;
  for (int i = 0; i < m->p->tasks_count; i++)
    if (m->p->tasks[i].op == op && mutant_below(m, ++count) == 0) chosen = i;
  return chosen;
}

tsr_graph *mutant_graph(mutant *m) {
  const tsr_graph *from = m->programs->graph;
  tsr_graph *g = tsr_arena_alloc(m->arena, sizeof *g);
  *g = *from;
  g->arena = m->arena;
  g->values = tsr_arena_array(m->arena, tsr_value, g->values_capacity);
  g->nodes = tsr_arena_array(m->arena, tsr_node, g->nodes_capacity);
  memcpy(g->values, from->values, sizeof *g->values * (size_t)g->values_count);
  memcpy(g->nodes, from->nodes, sizeof *g->nodes * (size_t)g->nodes_count);
  for (int i = 0; i < g->nodes_count; i++) {
    tsr_node *n = &g->nodes[i];
    n->inputs = tsr_arena_array(m->arena, int, n->inputs_count + 1);
    memcpy(n->inputs, from->nodes[i].inputs, sizeof *n->inputs * (size_t)n->inputs_count);
  }
  m->programs->graph = g;
  for (int s = 0; s < m->programs->pipeline->stages; s++) m->programs->of_stage[s]->graph = g;
  return g;
}

void mutant_lower(mutant *m, const tsr_lowering *how) {
  int stage = m->p->stage;
  const tsr_pipeline *pipeline = m->programs->pipeline;
  tsr_target target = harness_target_on(&m->h->cpu);
  *m->programs = tsr_programs_make(m->programs->graph, how, pipeline, &target);
  m->p = m->programs->of_stage[stage];
}
