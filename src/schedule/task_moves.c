// SPDX-License-Identifier: Apache-2.0
#include "schedule/task_moves.h"

/* A task that is put somewhere: one that stood elsewhere, or a wait. */
struct tsr_put_task {
  struct tsr_put_task *next;
  tsr_task task;
};

tsr_task_moves tsr_task_moves_begin(tsr_program *p) {
  tsr_arena *arena = p->graph->arena;
  tsr_task_moves m = {.p = p};
  m.before = tsr_arena_array(arena, tsr_put_task *, p->tasks_count + 1);
  m.at_end = tsr_arena_array(arena, tsr_put_task *, p->parts_count);
  m.is_moved = tsr_arena_array(arena, bool, p->tasks_count + 1);
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].bucket > m.buckets) m.buckets = p->tasks[i].bucket;
  return m;
}

static void put(tsr_task_moves *m, tsr_task_spot at, const tsr_task *task) {
  bool end = at.task >= m->p->parts[at.part].end;
  tsr_put_task **list = end ? &m->at_end[at.part] : &m->before[at.task];
  tsr_put_task *e = tsr_arena_alloc(m->p->graph->arena, sizeof *e);
  *e = (tsr_put_task){NULL, *task};
  e->task.section = m->p->parts[at.part].section;
  while (*list) list = &(*list)->next;
  *list = e;
}

void tsr_task_move(tsr_task_moves *m, tsr_task_spot at, int task) {
  put(m, at, &m->p->tasks[task]);
  m->is_moved[task] = true;
}

void tsr_task_begin_bucket(
    tsr_task_moves *m, const int *tasks, int count, bool last_only, tsr_task_spot begin,
    tsr_task_spot wait) {
  int *values = tsr_arena_array(m->p->graph->arena, int, 2 * count), number = ++m->buckets;
  for (int i = 0; i < count; i++) {
    tsr_task *t = &m->p->tasks[tasks[i]];
    t->bucket = number;
    t->last_only = last_only;
    values[2 * i] = tsr_task_node(m->p, tasks[i])->inputs[0];
    values[2 * i + 1] = tsr_task_node(m->p, tasks[i])->outputs[0];
    tsr_task_move(m, begin, tasks[i]);
  }
  tsr_task w = {
      .node = m->p->tasks[tasks[0]].node,
      .op = TSR_OP_WAIT,
      .inputs_count = 2 * count,
      .sum = tsr_reduction_none(),
      .axis = -1,
      .bucket = number,
      .values = values};
  put(m, wait, &w);
  m->added++;
}

void tsr_task_moves_end(tsr_task_moves *m) {
  tsr_program *p = m->p;
  tsr_task *tasks = tsr_arena_array(p->graph->arena, tsr_task, p->tasks_count + m->added + 1);
  int count = 0;
  for (int k = 0; k < p->parts_count; k++) {
    int begin = count;
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++) {
      for (const tsr_put_task *e = m->before[i]; e; e = e->next) tasks[count++] = e->task;
      if (!m->is_moved[i]) tasks[count++] = p->tasks[i];
    }
    for (const tsr_put_task *e = m->at_end[k]; e; e = e->next) tasks[count++] = e->task;
    p->parts[k].begin = begin;
    p->parts[k].end = count;
  }
  p->tasks = tasks;
  p->tasks_count = count;
}
