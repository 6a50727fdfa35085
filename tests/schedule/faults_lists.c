// SPDX-License-Identifier: Apache-2.0
/* Faults in what a program says of itself: its recipe, its lists, and where tensors lie. */
#include "faults.h"
#include <string.h>

static const char *const never_comes = "no run comes to a task of it";
static const char *const outside = "it would write outside of the memory that it has";

/* ---- the recipe ---- */

static bool swap_stages(mutant *m) {
  tsr_program **p = m->programs->of_stage, *first = p[0];
  p[0] = p[1];
  p[1] = first;
  return true;
}
/* One stage's program has a graph of its own, whose norms have another eps. */
static bool change_graph(mutant *m) {
  const tsr_graph *shared = m->programs->graph;
  tsr_graph *own = mutant_graph(m);
  for (int i = 0; i < own->nodes_count; i++)
    if (own->nodes[i].op == TSR_OP_RMSNORM) own->nodes[i].attr.norm.eps = 0.5;
  m->programs->graph = shared;
  for (int s = 0; s < m->programs->pipeline->stages; s++)
    if (m->programs->of_stage[s] != m->p) m->programs->of_stage[s]->graph = shared;
  return true;
}
static bool change_microbatches(mutant *m) {
  m->p = m->programs->of_stage[0]; /* which reads the tokens */
  return m->p->lowering.microbatches = 2, true;
}
static bool change_size(mutant *m) { return m->p->lowering.size[TSR_PP]++, true; }
static bool change_layout(mutant *m) {
  m->p->lowering.microbatch_first = !m->p->lowering.microbatch_first;
  return true;
}

/* ---- parts and runs ---- */

static bool add_part(mutant *m) {
  tsr_part *parts = tsr_arena_array(m->arena, tsr_part, m->p->parts_count + 1);
  memcpy(parts, m->p->parts, sizeof *parts * (size_t)m->p->parts_count);
  parts[m->p->parts_count++] =
      (tsr_part){.section = TSR_UPDATE, .begin = m->p->tasks_count, .end = m->p->tasks_count};
  m->p->parts = parts;
  return true;
}
static tsr_part *empty_part(mutant *m) {
  tsr_part *part = &m->p->parts[mutant_below(m, m->p->parts_count)];
  return part->begin == part->end ? part : NULL;
}
static bool change_section(mutant *m) {
  tsr_part *part = empty_part(m);
  if (part) part->section = TSR_PROLOGUE, part->chunk++;
  return part;
}
static bool move_empty_part(mutant *m) {
  tsr_part *part = empty_part(m);
  if (part) part->begin = part->end = mutant_below(m, m->p->tasks_count);
  return part;
}
static bool add_behind(mutant *m) {
  int wait = mutant_pick_op(m, TSR_OP_WAIT);
  if (wait < 0) return false;
  tsr_task *tasks = tsr_arena_array(m->arena, tsr_task, m->p->tasks_count + 1);
  memcpy(tasks, m->p->tasks, sizeof *tasks * (size_t)m->p->tasks_count);
  tasks[m->p->tasks_count++] = tasks[wait];
  m->p->tasks = tasks;
  return true;
}

static void add_run(mutant *m, tsr_run run) {
  tsr_run *runs = tsr_arena_array(m->arena, tsr_run, m->p->runs_count + 1);
  memcpy(runs + 1, m->p->runs, sizeof *runs * (size_t)m->p->runs_count++);
  runs[0] = run;
  m->p->runs = runs;
}
static bool run_no_part(mutant *m) {
  return add_run(m, (tsr_run){.part = m->p->parts_count + mutant_below(m, 3)}), true;
}
static bool run_prologue_late(mutant *m) {
  return add_run(m, (tsr_run){.part = 0, .microbatch = 1}), true;
}
static bool drop_update(mutant *m) { return m->p->runs_count--, true; }

/* ---- slot groups ---- */

/* A slot group moves behind all others with its values, where its last slot lacks 64 bytes. */
static bool move_slot_group(mutant *m) {
  if (!m->p->slot_groups_count) return false;
  int chosen = mutant_below(m, m->p->slot_groups_count);
  tsr_slot_group *f = &m->p->slot_groups[chosen];
  if (f->segment != TSR_SEGMENT_WORK || f->slots < 1) return false;
  int64_t by = mutant_room(m->p, f->bytes * f->slots) - f->offset;
  m->p->bytes[TSR_SEGMENT_WORK] -= 64;
  f->offset += by;
  for (int x = 0; x < m->p->graph->values_count; x++)
    if (m->p->tensors[x].slot_group == chosen && mutant_is_work(m, x))
      m->p->tensors[x].offset += by;
  return sample_bind(m->p), true;
}
static bool change_slot(mutant *m) {
  if (!m->p->slot_groups_count) return false;
  tsr_slot_group *f = &m->p->slot_groups[mutant_below(m, m->p->slot_groups_count)];
  f->slot_of[mutant_below(m, (int)m->p->lowering.microbatches)] = f->slots;
  return true;
}

/* ---- indices ---- */

static bool change_node(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_below(m, m->p->tasks_count)];
  t->node = mutant_below(m, 2) ? -1 : m->p->graph->nodes_count;
  return true;
}
static bool change_slot_group(mutant *m) {
  m->p->tensors[mutant_pick_value(m, mutant_is_work)].slot_group = m->p->slot_groups_count;
  return sample_bind(m->p), true;
}

/* ---- where tensors lie ---- */

static bool is_read_name(const mutant *m, int value) {
  const tsr_value *v = &m->p->graph->values[value];
  if (v->kind != TSR_VALUE_NODE || m->p->tensors[value].segment != TSR_SEGMENT_WORK) return false;
  if (!tsr_program_is_alias(m->p, v->node)) return false;
  for (int i = 0; i < m->p->tasks_count; i++)
    for (int k = 0; k < m->p->tasks[i].inputs_count; k++)
      if (m->p->tasks[i].inputs[k].value == value) return true;
  return false;
}
static bool move_name(mutant *m) {
  int x = mutant_pick_value(m, is_read_name);
  if (x < 0) return false;
  tsr_tensor *t = &m->p->tensors[x];
  t->offset = t->offset ? t->offset - 64 : 64;
  for (int i = 0; i < m->p->tasks_count; i++)
    for (int k = 0; k < m->p->tasks[i].inputs_count; k++)
      if (m->p->tasks[i].inputs[k].value == x) m->p->tasks[i].inputs[k] = *t;
  return true;
}
static bool move_sum(mutant *m) {
  int task = mutant_pick_op(m, TSR_OP_RING_DQ);
  const tsr_task *t = &m->p->tasks[task];
  if (task < 0 || t->inputs_count < 6) return false;
  return mutant_move_value(m, t->outputs[0].value), true;
}
static bool misalign(mutant *m) {
  int x = mutant_pick_value(m, mutant_is_work);
  mutant_move_value(m, x);
  m->p->tensors[x].offset += 4;
  return sample_bind(m->p), true;
}
static bool move_outside(mutant *m) {
  int64_t bytes = m->p->bytes[TSR_SEGMENT_WORK];
  mutant_move_value(m, mutant_pick_value(m, mutant_is_work));
  m->p->bytes[TSR_SEGMENT_WORK] = bytes;
  return true;
}
/* Samples and positions change places, where no sum tells them apart. */
static bool is_dropped_out(const mutant *m, int value) {
  const tsr_value *v = &m->p->graph->values[value];
  return mutant_is_work(m, value) && v->kind == TSR_VALUE_NODE &&
         m->p->graph->nodes[v->node].op == TSR_OP_DROPOUT &&
         m->p->graph->nodes[v->node].section == TSR_FORWARD;
}
static bool change_shape(mutant *m) {
  int x = mutant_pick_value(m, is_dropped_out);
  if (x < 0) return false;
  tsr_tensor *t = &m->p->tensors[x];
  int64_t rows = t->shape[0];
  t->shape[0] = t->shape[1];
  t->shape[1] = rows;
  return sample_bind(m->p), true;
}
static bool is_param(const mutant *m, int value) {
  return m->p->graph->values[value].kind == TSR_VALUE_PARAM &&
         m->p->tensors[value].segment != TSR_SEGMENT_ABSENT;
}
static bool change_segment(mutant *m) {
  return mutant_move_value(m, mutant_pick_value(m, is_param)), true;
}
static bool lose_output(mutant *m) {
  int x = m->p->graph->outputs[0].value;
  m->p->tensors[x].segment = TSR_SEGMENT_ABSENT;
  return true;
}

static const rule_fault table[] = {
    {"the program is for stage %d, the rank on %d", swap_stages, ON_PIPE},
    {"the program is of another graph or schedule", change_graph, ON_PIPE},
    {"the program is for %lld microbatches, the schedule for %d", change_microbatches, ON_FORWARD},
    {"the program is for %s = %lld, the mesh has %d", change_size, ON_ALONE, EFFECT_NONE,
     "the size of pp is the order's to the executor"},
    {"its samples or positions are laid out otherwise than those of rank %d", change_layout,
     ON_PIPE_DP},
    {"%d parts, not %d", add_part, ON_ALONE, EFFECT_NONE, never_comes},
    {"part %d is %s, not %s", change_section, ON_CHUNKS, EFFECT_NONE, never_comes},
    {"%s is tasks %d to before %d, but must begin at %d", move_empty_part, ON_CHUNKS, EFFECT_NONE,
     never_comes},
    {"%d tasks stand behind the last part", add_behind, ON_PIPE, EFFECT_NONE, never_comes},
    {"a run of part %d, of which there are %d", run_no_part, ON_ALONE, EFFECT_UNRUN,
     "the executor would look for a part behind the last one", "parts"},
    {"%s runs with microbatch %d, not %s%d", run_prologue_late, ON_ALONE, EFFECT_NONE,
     "the part that runs once more is empty"},
    {"%s %s%s", drop_update, ON_LOSS},
    {"slot group %d of %d × %lld bytes from %lld on is outside its segment", move_slot_group,
     ON_PIPE, EFFECT_UNRUN, outside},
    {"slot group %d has %d slots, microbatch %d takes slot %d", change_slot, ON_PIPE, EFFECT_UNRUN,
     outside, "places of values"},
    {"task %d is for no node of the graph, or for no op", change_node, ON_ALONE, EFFECT_UNRUN,
     "the executor would look for a node outside of the graph", "nodes and facts of ops"},
    {"its tensor is of another value, slot group or dtype", change_slot_group, ON_PIPE,
     EFFECT_UNRUN, "the executor would look for a slot group behind the last one", "slot groups"},
    {"it must be the bytes of '%s' under another name", move_name, ON_ALONE},
    {"it must lie where '%s' does, to which it is added", move_sum, ON_ZIGZAG},
    {"%s is not a multiple of 64 bytes", misalign, ON_ALONE, EFFECT_UNRUN,
     "what a kernel does with such an address depends on its instructions"},
    {"its %lld bytes %s are outside %s, which is bytes %lld to before %lld", move_outside, ON_ALONE,
     EFFECT_UNRUN, outside},
    {"it is %s, its placement on this mesh makes it %s", change_shape, ON_ALONE},
    {"it lies %s, in the wrong segment", change_segment, ON_ALONE},
    {"it has no bytes, though it is made here", lose_output, ON_ALONE},
};
RULE_FAULTS(faults_of_lists, table);
