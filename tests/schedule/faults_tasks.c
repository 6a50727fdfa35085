// SPDX-License-Identifier: Apache-2.0
/* Faults in single tasks. */
#include "faults.h"
#include <string.h>

static tsr_task *some_task(mutant *m, tsr_op op) {
  int i = mutant_pick_op(m, op);
  return i < 0 ? NULL : &m->p->tasks[i];
}

/* ---- inputs and outputs ---- */

static bool reads_more(const mutant *m, const tsr_task *t) {
  return (void)m, t->inputs_count > 1 && t->outputs_count;
}
static bool swap_inputs(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_pick_task(m, reads_more)];
  int a = mutant_below(m, t->inputs_count), b = mutant_below(m, t->inputs_count);
  tsr_tensor swapped = t->inputs[a];
  if (a == b || tsr_tensor_bytes(&t->inputs[a]) != tsr_tensor_bytes(&t->inputs[b])) return false;
  t->inputs[a] = t->inputs[b];
  t->inputs[b] = swapped;
  return true;
}
static bool move_input(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_pick_task(m, reads_more)];
  tsr_tensor *in = &t->inputs[mutant_below(m, t->inputs_count)];
  in->offset += in->offset ? -64 : 64;
  return true;
}
static bool is_param(const mutant *m, int value) {
  return m->p->graph->values[value].kind == TSR_VALUE_PARAM &&
         m->p->tensors[value].segment != TSR_SEGMENT_ABSENT;
}
static bool lose_param(mutant *m) {
  m->p->tensors[mutant_pick_value(m, is_param)].segment = TSR_SEGMENT_ABSENT;
  return sample_bind(m->p), true;
}
static bool drop_inputs(mutant *m) { /* a gradient of one use of two */
  tsr_task *t = some_task(m, TSR_OP_LINEAR_DX);
  if (!t || t->inputs_count < 4) return false;
  t->inputs_count -= 2;
  return true;
}
static bool drop_output(mutant *m) {
  tsr_task *t = some_task(m, TSR_OP_RMSNORM);
  if (t) t->outputs_count--;
  return t;
}
static bool is_renamed(const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  return n->op == TSR_OP_ALL_REDUCE && n->section == TSR_UPDATE && tsr_program_has_node(p, node) &&
         tsr_program_is_alias(p, node) && p->tensors[n->outputs[0]].segment == TSR_SEGMENT_WORK;
}
/* A sum over one rank gets a task. */
static bool add_renaming(mutant *m) {
  tsr_program *p = m->p;
  int count = 0, node = -1, last = p->parts_count - 1;
  for (int i = 0; i < p->graph->nodes_count; i++)
    if (is_renamed(p, i) && mutant_below(m, ++count) == 0) node = i;
  if (node < 0) return false;
  const tsr_node *n = &p->graph->nodes[node];
  tsr_task t = {.node = node, .op = n->op, .section = TSR_UPDATE, .axis = tsr_node_axis(n)};
  t.inputs_count = t.outputs_count = 1;
  t.inputs = tsr_arena_array(m->arena, tsr_tensor, 1);
  t.outputs = tsr_arena_array(m->arena, tsr_tensor, 1);
  t.inputs[0] = p->tensors[n->inputs[0]];
  t.outputs[0] = p->tensors[n->outputs[0]];
  t.sum = tsr_reduction_none();
  return sample_insert_task(m->arena, p, p->parts[last].begin, t, last), true;
}
static bool has_scratch(const mutant *m, const tsr_task *t) {
  return (void)m, t->scratch_bytes > 0;
}
static bool move_scratch(mutant *m) {
  tsr_task *t = &m->p->tasks[mutant_pick_task(m, has_scratch)];
  t->scratch_offset = (m->p->bytes[TSR_SEGMENT_WORK] + 63) / 64 * 64;
  return true;
}

/* ---- tasks that move ---- */

static bool receive_other(mutant *m) {
  tsr_task *t = some_task(m, TSR_OP_RECEIVE), *other = some_task(m, TSR_OP_RECEIVE);
  if (!t || t->inputs[0].value == other->inputs[0].value) return false;
  t->inputs[0].value = other->inputs[0].value;
  return true;
}
static bool send_without_receive(mutant *m) {
  tsr_task *t = some_task(m, TSR_OP_SEND);
  if (!t) return false;
  while (m->p->graph->nodes[t->node].op == TSR_OP_RECEIVE) t->node = (t->node + 1) % 4;
  return true;
}
static bool add_output(mutant *m) {
  tsr_task *t = some_task(m, mutant_below(m, 2) ? TSR_OP_SEND : TSR_OP_WAIT);
  if (!t) return false;
  t->outputs_count = 1;
  t->outputs = t->inputs;
  return true;
}
static bool wait_ahead(mutant *m) {
  tsr_task *t = some_task(m, TSR_OP_WAIT);
  if (t) t->lag = -2 - mutant_below(m, 3);
  return t;
}
/* Waits for what the next stage sends; the value has bytes here. */
static bool wait_for_others(mutant *m) {
  const tsr_program *from = m->programs->of_stage[1 - m->p->stage];
  int there = -1, count = 0;
  for (int i = 0; i < from->tasks_count; i++)
    if (from->tasks[i].op == TSR_OP_SEND && mutant_below(m, ++count) == 0) there = i;
  if (there < 0) return false;
  tsr_task wait = from->tasks[there];
  int x = wait.inputs[0].value, last = m->p->parts_count - 1;
  if (m->p->tensors[x].segment != TSR_SEGMENT_ABSENT) return false;
  m->p->tensors[x] = from->tensors[x];
  mutant_move_value(m, x);
  wait.op = TSR_OP_WAIT;
  wait.lag = TSR_WAIT_ALL;
  wait.inputs = &m->p->tensors[x];
  return sample_insert_task(m->arena, m->p, m->p->parts[last].end, wait, last), true;
}
/* Receives what it has sent itself, right behind that. */
static bool receive_own(mutant *m) {
  int send = mutant_pick_op(m, TSR_OP_SEND);
  if (send < 0) return false;
  const tsr_program *to = m->programs->of_stage[1 - m->p->stage];
  for (int i = 0; i < to->tasks_count; i++) {
    tsr_task t = to->tasks[i];
    if (t.op != TSR_OP_RECEIVE || t.node != m->p->tasks[send].node) continue;
    int x = t.outputs[0].value;
    m->p->tensors[x] = to->tensors[x];
    t.outputs = tsr_arena_array(m->arena, tsr_tensor, 1);
    t.outputs[0] = m->p->tensors[x];
    int part = sample_part_of(m->p, send);
    sample_insert_task(m->arena, m->p, send + 1, t, part);
    return mutant_move_value(m, x), true;
  }
  return false;
}

/* ---- where, what, over which axis ---- */

static bool move_part(mutant *m) {
  tsr_part *part = &m->p->parts[1];
  if (part[1].begin != part->end) return false;
  part->end = --part[1].begin;
  return true;
}
static bool change_op(mutant *m) {
  tsr_task *t = some_task(m, TSR_OP_ADD);
  if (t) t->op = TSR_OP_SUB;
  return t;
}
static bool change_axis(mutant *m) {
  tsr_task *t = some_task(m, TSR_OP_ALL_REDUCE);
  if (t) t->axis = t->axis == TSR_DP ? TSR_TP : TSR_DP;
  return t;
}
/* A task that does not move, and a wait right behind it. */
static bool add_bucket(mutant *m) {
  int i = mutant_pick_op(m, TSR_OP_LINEAR), most = 0;
  for (int k = 0; k < m->p->tasks_count; k++)
    if (m->p->tasks[k].bucket > most) most = m->p->tasks[k].bucket;
  tsr_task wait = m->p->tasks[i];
  wait.op = TSR_OP_WAIT;
  wait.axis = -1;
  wait.inputs_count = wait.outputs_count = 0;
  wait.sum = tsr_reduction_none();
  wait.scratch_bytes = 0;
  m->p->tasks[i].bucket = wait.bucket = most + 1;
  return sample_insert_task(m->arena, m->p, i + 1, wait, sample_part_of(m->p, i)), true;
}
static bool is_begun(const mutant *m, const tsr_task *t) {
  return (void)m, t->op != TSR_OP_WAIT && t->bucket;
}
/* A task that does not move comes between those of one bucket. */
static bool part_bucket(mutant *m) {
  tsr_program *p = m->p;
  int i = mutant_pick_task(m, is_begun), from = i;
  while (i > 0 && p->tasks[i - 1].bucket == p->tasks[i].bucket) i--;
  if (i < 1 || p->tasks[i + 1].bucket != p->tasks[i].bucket) return false;
  from = i - 1;
  if (p->tasks[from].bucket || sample_part_of(p, from) != sample_part_of(p, i)) return false;
  return sample_move_task(p, from, i), true;
}

static bool double_task(mutant *m) {
  int i = mutant_pick_op(m, TSR_OP_LINEAR);
  sample_insert_task(m->arena, m->p, i, m->p->tasks[i], sample_part_of(m->p, i));
  return true;
}
static bool drop_update(mutant *m) {
  int i = mutant_pick_op(m, TSR_OP_ADAMW);
  if (i >= 0) sample_remove_task(m->p, i);
  return i >= 0;
}

static const rule_fault table[] = {
    {"its %s %d is '%s', its node's is '%s'", swap_inputs, ON_ALONE},
    {"its '%s' is %s, the program's is %s", move_input, ON_ALONE},
    {"reads '%s', of which this stage has nothing", lose_param, ON_ALONE, EFFECT_UNRUN,
     "a value that is absent has no address"},
    {"it has %d inputs, its node %d", drop_inputs, ON_ALONE},
    {"it has %d outputs, its node %d", drop_output, ON_FORWARD, EFFECT_NONE,
     "nothing reads the output that is left out"},
    {"its node is '%s' under another name, which needs no task", add_renaming, ON_ALONE,
     EFFECT_NONE, "it sums over one rank, in place"},
    {"its %lld bytes of scratch %s are not in work, which has %lld bytes", move_scratch, ON_ALONE,
     EFFECT_UNRUN, "it would write outside of the memory that it has"},
    {"it receives '%s', its node '%s'", receive_other, ON_PIPE},
    {"its node is a %s, not a receive", send_without_receive, ON_PIPE, EFFECT_UNRUN,
     "the executor would look for a transfer that the node has not", "transfers"},
    {"it has outputs", add_output, ON_PIPE, EFFECT_NONE, "sends and waits write nothing"},
    {"it waits for %d microbatches before", wait_ahead, ON_PIPE, EFFECT_UNRUN,
     "the executor would look for a microbatch behind the last one", "microbatches of a transfer"},
    {"'%s' is sent by stage %d, not by this one", wait_for_others, ON_PIPE, EFFECT_NONE,
     "what it waits for has moved by then"},
    {"its node is on stage %d", receive_own, ON_PIPE, EFFECT_NONE,
     "within a process what was sent can be received again, to bytes that nothing reads"},
    {"it runs in the %s part%s, its node in %s of chunk %d", move_part, ON_ALONE, EFFECT_NONE,
     "the same tasks run in the same order"},
    {"its node is a %s", change_op, ON_ALONE},
    {"it works over %s, its node over %s", change_axis, ON_TP},
    {"it is in bucket %d", add_bucket, ON_OVERLAP, EFFECT_NONE,
     "the executor begins collectives alone"},
    {"it is in bucket %d, which began with task %d, over another axis or with others between them",
     part_bucket, ON_OVERLAP, EFFECT_NONE,
     "within a process every collective of a bucket moves by itself"},
    {"task %d runs the same node", double_task, ON_ALONE, EFFECT_NONE, "it gives the same again"},
    {"no task runs this %s", drop_update, ON_ALONE},
};
RULE_FAULTS(faults_of_tasks, table);
