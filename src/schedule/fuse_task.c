// SPDX-License-Identifier: Apache-2.0
#include "schedule/fuse_task.h"

tsr_fusing_roots tsr_fusing_roots_of(const tsr_program *p) {
  const tsr_graph *g = p->graph;
  tsr_fusing_roots r = {
      tsr_program_roots(p, g->arena), tsr_arena_array(g->arena, int, g->values_count + 1)};
  for (int v = 0; v < g->values_count; v++) r.readers[r.of[v]] += p->readers[v] - (r.of[v] != v);
  return r;
}

static const tsr_node *node_of(const tsr_fusing *f, int task) {
  return &f->p->graph->nodes[f->p->tasks[task].node];
}

static int root_of_input(const tsr_fusing *f, int task, int input) {
  return f->roots.of[tsr_task_input(f->p, &f->p->tasks[task], input)];
}

static bool is_made_inside(const tsr_fusing *f, const int *tasks, int count, int root) {
  for (int i = 0; i < count; i++) {
    const tsr_node *n = node_of(f, tasks[i]);
    for (int o = 0; o < n->outputs_count; o++)
      if (n->outputs[o] == root) return true;
  }
  return false;
}

static int reads_inside(const tsr_fusing *f, const int *tasks, int count, int root) {
  int reads = 0;
  for (int i = 0; i < count; i++)
    for (int k = 0; k < f->p->tasks[tasks[i]].inputs_count; k++)
      reads += root_of_input(f, tasks[i], k) == root;
  return reads;
}

int tsr_fusing_reads(const tsr_fusing *f, int root) {
  int reads = f->roots.readers[root];
  for (int i = 0; i < f->p->tasks_count; i++) {
    int input =
        f->absorbed[i] || f->p->tasks[i].fused ? -1 : tsr_op_gradient_input(f->p->tasks[i].op);
    reads -= input >= 0 && root_of_input(f, i, input) == root;
  }
  return reads;
}

/* Whether only the tasks themselves read a value. */
static bool is_elided(const tsr_fusing *f, const int *tasks, int count, int value) {
  int inside = reads_inside(f, tasks, count, value);
  return inside && tsr_fusing_reads(f, value) <= inside;
}

/* What none of the tasks makes, and is more than a shape to the task that reads it. */
static bool is_input(const tsr_fusing *f, const int *tasks, int count, int task, int input) {
  const tsr_task *t = &f->p->tasks[task];
  return input != tsr_op_shape_input(t->op, t->inputs_count) &&
         !is_made_inside(f, tasks, count, root_of_input(f, task, input));
}

void tsr_fuse_tasks(tsr_fusing *f, tsr_fused_form form, const int *tasks, int count, int base) {
  tsr_task *t = &f->p->tasks[base];
  int inputs = 0, outputs = 0, *nodes = tsr_arena_array(f->arena, int, count), room = 0;
  for (int i = 0; i < count; i++) room += f->p->tasks[tasks[i]].inputs_count;
  int *values = tsr_arena_array(f->arena, int, room + 1),
      *results = tsr_arena_array(f->arena, int, count *TSR_OUTPUTS_MAX);
  for (int i = 0; i < count; i++) {
    const tsr_task *of = &f->p->tasks[tasks[i]];
    const tsr_node *n = node_of(f, tasks[i]);
    nodes[i] = of->node;
    for (int k = 0; k < of->inputs_count; k++)
      if (is_input(f, tasks, count, tasks[i], k)) values[inputs++] = tsr_task_input(f->p, of, k);
    for (int o = 0; o < n->outputs_count; o++)
      if (!is_elided(f, tasks, count, n->outputs[o])) results[outputs++] = n->outputs[o];
      else f->p->tensors[n->outputs[o]].segment = TSR_SEGMENT_ABSENT;
    f->absorbed[tasks[i]] = tasks[i] != base;
  }
  t->fused = form;
  t->nodes = nodes;
  t->nodes_count = count;
  t->values = values;
  t->results = results;
  t->inputs_count = inputs;
  t->outputs_count = outputs;
}

/* ---- what stands between ---- */

/* A wait is for what an earlier microbatch has sent. */
static bool reads_root(const tsr_fusing *f, int task, int root) {
  if (f->p->tasks[task].op == TSR_OP_WAIT && !f->p->tasks[task].bucket) return false;
  for (int k = 0; k < f->p->tasks[task].inputs_count; k++)
    if (root_of_input(f, task, k) == root) return true;
  return false;
}

/* Results, sums in place, what a bucket's wait completes, and parameters that an update changes. */
static bool writes_root(const tsr_fusing *f, int task, int root) {
  const tsr_task *t = &f->p->tasks[task];
  for (int o = 0; o < t->outputs_count; o++)
    if (f->roots.of[tsr_task_output(f->p, t, o)] == root) return true;
  int in_place = t->outputs_count ? tsr_program_in_place(f->p, t->node) : -1;
  if (in_place >= 0) return f->roots.of[in_place] == root;
  if (t->outputs_count || t->op == TSR_OP_SEND || !reads_root(f, task, root)) return false;
  tsr_segment segment = f->p->tensors[root].segment;
  bool updates = tsr_op_facts(t->op) & TSR_FACT_UPDATE;
  return !updates || segment == TSR_SEGMENT_PARAM || segment == TSR_SEGMENT_STATE;
}

static bool is_between(const tsr_fusing *f, int task, const int *tasks, int count, int at) {
  bool in_the_way = false;
  if (f->absorbed[task]) return false;
  for (int i = 0; i < count; i++) {
    const tsr_task *of = &f->p->tasks[tasks[i]];
    if (tasks[i] == task) return false;
    for (int o = 0; o < of->outputs_count && task < at; o++)
      in_the_way |= reads_root(f, task, f->roots.of[tsr_task_output(f->p, of, o)]);
    for (int k = 0; k < of->inputs_count; k++)
      if (k != tsr_op_shape_input(of->op, of->inputs_count)) /* which is not read */
        in_the_way |= writes_root(f, task, root_of_input(f, tasks[i], k));
  }
  return in_the_way;
}

bool tsr_fusing_can_meet(const tsr_fusing *f, const int *tasks, int count, int at) {
  int first = at, last = at;
  for (int i = 0; i < count; i++) {
    if (tasks[i] < first) first = tasks[i];
    if (tasks[i] > last) last = tasks[i];
  }
  for (int i = first; i <= last; i++)
    if (is_between(f, i, tasks, count, at)) return false;
  return true;
}
