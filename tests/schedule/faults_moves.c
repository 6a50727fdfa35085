// SPDX-License-Identifier: Apache-2.0
/* Faults between ranks. */
#include "faults.h"
#include <string.h>

/* One rank comes to two collectives of the update in the other order. */
static bool swap_collectives(mutant *m) {
  tsr_program *own = sample_copy(m->arena, m->p);
  const tsr_part *update = &own->parts[own->parts_count - 1];
  int at[2], found = 0;
  for (int i = update->begin; i < update->end && found < 2; i++)
    if (tsr_op_is_collective(own->tasks[i].op) && own->tasks[i].axis == TSR_DP) at[found++] = i;
  if (found < 2) return false;
  tsr_task t = own->tasks[at[0]];
  own->tasks[at[0]] = own->tasks[at[1]];
  own->tasks[at[1]] = t;
  const tsr_program **of_rank = tsr_arena_array(m->arena, const tsr_program *, m->mesh->ranks);
  of_rank[mutant_below(m, m->mesh->ranks)] = own;
  m->mesh->of_rank = of_rank;
  return true;
}
/* A collective over pp that one of the two stages has. */
static bool add_collective(mutant *m) {
  tsr_graph *g = mutant_graph(m);
  int clip = tsr_graph_find_output(g, "clip");
  tsr_attrs attr = {.ring_shift = {TSR_PP, 1}};
  int x = tsr_graph_add(g, TSR_OP_RING_SHIFT, TSR_UPDATE, "more", TSR_NOWHERE, 1, &clip, &attr);
  memcpy(g->values[x].placement, g->values[clip].placement, sizeof g->values[x].placement);
  g->nodes[g->values[x].node].stage = mutant_below(m, 2);
  return mutant_lower(m, &m->p->lowering), true;
}

/* ---- sends and receives ---- */

static bool send_twice(mutant *m) {
  int i = mutant_pick_op(m, TSR_OP_SEND);
  if (i < 0) return false;
  sample_insert_task(m->arena, m->p, i, m->p->tasks[i], sample_part_of(m->p, i));
  return true;
}
/* What is received is stored in bf16, of the same number of elements. */
static int receive_half(mutant *m) {
  int task = mutant_pick_op(m, TSR_OP_RECEIVE);
  if (task < 0 || m->p->parts[sample_part_of(m->p, task)].section != TSR_FORWARD) return -1;
  int x = m->p->tasks[task].outputs[0].value;
  mutant_graph(m)->values[x].dtype = TSR_BF16;
  mutant_lower(m, &m->p->lowering);
  return task;
}
static bool receive_as_half(mutant *m) { return receive_half(m) >= 0; }
static bool receive_size(mutant *m) {
  int task = receive_half(m);
  if (task >= 0) m->p->tasks[task].inputs[0].dtype = TSR_BF16;
  return task >= 0;
}

/* Both stages wait behind every send until it has been received. */
static bool block_sends(mutant *m) {
  for (int s = 0; s < m->programs->pipeline->stages; s++) {
    tsr_program *p = m->programs->of_stage[s];
    for (int i = 0; i < p->tasks_count; i++) {
      tsr_task wait = p->tasks[i];
      if (wait.op != TSR_OP_SEND) continue;
      wait.op = TSR_OP_WAIT;
      sample_insert_task(m->arena, p, i + 1, wait, sample_part_of(p, i));
    }
  }
  return true;
}

static const rule_fault table[] = {
    {"its collective %d over %s is %s, that of rank %d %s", swap_collectives, ON_TP, EFFECT_UNRUN,
     "a process runs one program a stage"},
    {"stage %d sends '%s' %s, stage %d receives it %s", send_twice, ON_PIPE, EFFECT_NONE,
     "within a process the second send of a microbatch is the first once more"},
    {"it receives %s as %s", receive_as_half, ON_PIPE},
    {"receives %lld %s of '%s', stage %d sends %lld %s", receive_size, ON_PIPE},
    {"no step can end: this waits for %s%s", block_sends, ON_PIPE},
    {"no step can end: this waits for %s%s", add_collective, ON_PIPE},
};
RULE_FAULTS(faults_of_moves, table);
