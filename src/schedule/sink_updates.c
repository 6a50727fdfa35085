// SPDX-License-Identifier: Apache-2.0
/* requires: a stage's tasks in their parts, with their collectives where they stay; the runs
 * produces: tasks of the update in the last microbatch's run of the part that makes what they need
 * invalidates: the tasks' indices
 *
 * A gradient is then read while it is warm, and an update that waits for nothing else ends its
 * life: its memory is free for the rest of the backward pass. A task goes behind the last one that
 * writes what it reads or reads what it changes, in the order of the runs; where that is in the
 * update, it stays. What is computed, and from what, is the same. */
#include "schedule/sink_updates.h"
#include <string.h>

/* Behind a task, in the last run of its part; ordered. */
typedef struct {
  int run, part, task;
} spot;

typedef struct entry {
  struct entry *next;
  int task;
} entry;

typedef struct {
  tsr_program *p;
  tsr_arena *arena;
  int *last_run;        /* per part; -1: it never runs */
  int *root;            /* per value: the value whose bytes it names */
  spot *written, *read; /* per value: last */
  entry **behind;       /* per task */
  bool *is_moved;
  bool keeps_norms; /* sums of squares stay, for one launch */
} settling;

static const spot before_all = {-1, -1, -1};

static spot later(spot a, spot b) {
  if (a.run != b.run) return a.run > b.run ? a : b;
  return a.task > b.task ? a : b;
}

static const int *inputs_of(const settling *s, const tsr_task *t) {
  return t->values ? t->values : s->p->graph->nodes[t->node].inputs;
}

/* The wait for a bucket completes what the bucket's collectives write. */
static void note(settling *s, int task, spot at) {
  const tsr_task *t = &s->p->tasks[task];
  const int *inputs = inputs_of(s, t), *outputs = s->p->graph->nodes[t->node].outputs;
  bool completes = t->op == TSR_OP_WAIT && t->bucket;
  for (int k = 0; k < t->inputs_count && t->op != TSR_OP_RECEIVE; k++) {
    int v = s->root[inputs[k]];
    s->read[v] = later(s->read[v], at);
    if (completes) s->written[v] = later(s->written[v], at);
  }
  for (int k = 0; k < t->outputs_count; k++)
    s->written[s->root[outputs[k]]] = later(s->written[s->root[outputs[k]]], at);
}

static bool is_changed(const settling *s, const tsr_task *t, int value) {
  tsr_value_kind kind = s->p->graph->values[value].kind;
  return !t->outputs_count && (kind == TSR_VALUE_PARAM || kind == TSR_VALUE_STATE);
}

/* With several microbatches what a task makes would be kept through all of them, as what it is made
 * of is anyway: only sums of squares, which are small, are worth it. */
static bool may_move(const settling *s, const tsr_task *t) {
  bool moves = t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT;
  if (t->op == TSR_OP_NORM_STATS && s->keeps_norms) return false;
  if (moves || tsr_op_facts(t->op) & (TSR_FACT_COLLECTIVE | TSR_FACT_EVERYWHERE)) return false;
  return s->p->lowering.microbatches == 1 || !t->outputs_count || t->op == TSR_OP_NORM_STATS;
}

static spot earliest(const settling *s, const tsr_task *t) {
  const int *inputs = inputs_of(s, t);
  spot at = before_all;
  for (int k = 0; k < t->inputs_count; k++) {
    int v = s->root[inputs[k]];
    at = later(at, s->written[v]);
    if (is_changed(s, t, v)) at = later(at, s->read[v]);
  }
  return at;
}

/* In a run of the last microbatch, and none of that part comes after it. */
static bool is_possible(const settling *s, spot at) {
  const tsr_program *p = s->p;
  if (at.part < 1 || at.part == p->parts_count - 1) return false;
  return p->runs[at.run].microbatch == p->lowering.microbatches - 1;
}

static void put(settling *s, spot at, int task) {
  entry **list = &s->behind[at.task], *e = tsr_arena_alloc(s->arena, sizeof *e);
  *e = (entry){NULL, task};
  while (*list) list = &(*list)->next;
  *list = e;
  s->is_moved[task] = true;
  s->p->tasks[task].section = s->p->parts[at.part].section;
  s->p->tasks[task].last_only = s->p->lowering.microbatches > 1;
}

static void find_spots(settling *s) {
  const tsr_program *p = s->p;
  int last = p->parts_count - 1;
  for (int k = 0; k <= last; k++)
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++) {
      spot here = {s->last_run[k], k, i}, at = here;
      if (k == last && may_move(s, &p->tasks[i])) {
        at = earliest(s, &p->tasks[i]);
        if (is_possible(s, at)) put(s, at, i);
        else at = here;
      }
      note(s, i, at);
    }
}

static void rebuild(settling *s) {
  tsr_program *p = s->p;
  tsr_task *tasks = tsr_arena_array(p->graph->arena, tsr_task, p->tasks_count + 1);
  int count = 0;
  for (int k = 0; k < p->parts_count; k++) {
    int begin = count;
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++) {
      if (!s->is_moved[i]) tasks[count++] = p->tasks[i];
      for (const entry *e = s->behind[i]; e; e = e->next) tasks[count++] = p->tasks[e->task];
    }
    p->parts[k].begin = begin;
    p->parts[k].end = count;
  }
  p->tasks = tasks;
}

/* Whether an update waits for the norm of all gradients: they live until then in any case. */
static bool waits_for_norm(const settling *s) {
  const tsr_graph *g = s->p->graph;
  for (int i = 0; i < s->p->tasks_count; i++) {
    const tsr_task *t = &s->p->tasks[i];
    bool update = t->op == TSR_OP_ADAMW || t->op == TSR_OP_SGD;
    for (int k = 0; update && k < t->inputs_count; k++) {
      int node = g->values[inputs_of(s, t)[k]].node;
      if (node >= 0 && g->nodes[node].op == TSR_OP_CLIP) return true;
    }
  }
  return false;
}

void tsr_program_sink_updates(tsr_program *p, const tsr_target *target) {
  settling s = {.p = p, .arena = tsr_arena_new()};
  int values = p->graph->values_count;
  s.last_run = tsr_arena_array(s.arena, int, p->parts_count);
  s.written = tsr_arena_array(s.arena, spot, values + 1);
  s.read = tsr_arena_array(s.arena, spot, values + 1);
  s.behind = tsr_arena_array(s.arena, entry *, p->tasks_count + 1);
  s.is_moved = tsr_arena_array(s.arena, bool, p->tasks_count + 1);
  for (int k = 0; k < p->parts_count; k++) s.last_run[k] = -1;
  for (int r = 0; r < p->runs_count; r++) s.last_run[p->runs[r].part] = r;
  for (int v = 0; v < values; v++) s.written[v] = s.read[v] = before_all;
  s.root = tsr_program_roots(p, s.arena);
  s.keeps_norms = target->fuses & 1u << TSR_FUSED_NORMS && waits_for_norm(&s);
  find_spots(&s);
  rebuild(&s);
  tsr_arena_free(s.arena);
}
