// SPDX-License-Identifier: Apache-2.0
/* Faults in what bytes hold when they are read, or while they move. */
#include "faults.h"

static bool swap_tasks(mutant *m) {
  tsr_program *p = m->p;
  const tsr_part *part = &p->parts[1 + mutant_below(m, p->parts_count - 1)];
  int count = part->end - part->begin;
  if (count < 2) return false;
  int i = part->begin + mutant_below(m, count), j = part->begin + mutant_below(m, count);
  tsr_task t = p->tasks[i];
  p->tasks[i] = p->tasks[j];
  p->tasks[j] = t;
  return i != j;
}
static bool is_begun(const mutant *m, const tsr_task *t) {
  return (void)m, t->op == TSR_OP_REDUCE_SCATTER && t->bucket;
}
/* What a task writes lies where a bucket still moves what nobody reads again. */
static bool write_moving(mutant *m) {
  tsr_program *p = m->p;
  int begun = mutant_pick_task(m, is_begun), writer = mutant_below(m, p->tasks_count);
  if (p->tasks[writer].outputs_count != 1) return false;
  int x = p->tasks[writer].outputs[0].value, y = p->tasks[begun].inputs[0].value;
  if (!mutant_is_work(m, x) || !mutant_is_work(m, y)) return false;
  p->tensors[x].offset = p->tensors[y].offset;
  p->tensors[x].slot_group = p->tensors[y].slot_group;
  return sample_bind(p), true;
}
static bool has_both(const mutant *m, const tsr_task *t) {
  return t->inputs_count && t->outputs_count == 1 && t->op != TSR_OP_RECEIVE &&
         mutant_is_work(m, t->inputs[0].value) && mutant_is_work(m, t->outputs[0].value);
}
static bool share_bytes(mutant *m) {
  const tsr_task *t = &m->p->tasks[mutant_pick_task(m, has_both)];
  tsr_tensor *out = &m->p->tensors[t->outputs[0].value];
  const tsr_tensor *in = &m->p->tensors[t->inputs[mutant_below(m, t->inputs_count)].value];
  if (in->segment != TSR_SEGMENT_WORK || in->slot_group != out->slot_group) return false;
  out->offset = in->offset;
  return sample_bind(m->p), true;
}
static bool is_late_work(const mutant *m, int value) {
  const tsr_value *x = &m->p->graph->values[value];
  return mutant_is_work(m, value) && m->p->graph->nodes[x->node].section == TSR_UPDATE;
}
/* What the update makes is written to where an output of the graph is. */
static bool overwrite_output(mutant *m) {
  const tsr_graph *g = m->p->graph;
  tsr_tensor *x = &m->p->tensors[mutant_pick_value(m, is_late_work)];
  const tsr_tensor *y = &m->p->tensors[g->outputs[mutant_below(m, g->outputs_count)].value];
  if (y->segment != TSR_SEGMENT_WORK || x->offset == y->offset) return false;
  x->offset = y->offset;
  x->slot_group = y->slot_group;
  return sample_bind(m->p), true;
}
static bool drop_wait(mutant *m) {
  int i = mutant_pick_op(m, TSR_OP_WAIT);
  if (i >= 0) sample_remove_task(m->p, i);
  return i >= 0;
}

static const rule_fault table[] = {
    {"%s '%s'%s", swap_tasks, ON_ALONE},
    {"%s %s, where '%s'%s is, which task %d (%s) still moves", write_moving, ON_ZERO_OVERLAP},
    {"its %s shares bytes with its %s", share_bytes, ON_ALONE},
    {"the step ends with it%s", overwrite_output, ON_ALONE},
    {"nothing waits until '%s' has moved", drop_wait, ON_PIPE, EFFECT_UNRUN,
     "when the data moves is the transport's choice"},
};
RULE_FAULTS(faults_of_memory, table);
