// SPDX-License-Identifier: Apache-2.0
/* A program's collectives: their groups that have a member in this process, and the lists of steps
 * that carry them out, which are planned when a program is bound. */
#include "runtime/executable_internal.h"
#include "comm/algorithm.h"
#include "comm/task_collective.h"
#include <assert.h>
#include <string.h>

static bool accumulates(const tsr_task_at *at) {
  return tsr_node_accumulates(&at->program->graph->nodes[at->task->node]);
}

void tsr_task_describe(const tsr_task_at *at, tsr_collective *c) {
  *c = tsr_collective_of(at->program, at->task);
  c->onto = accumulates(at) && at->at.microbatch > 0;
  c->k = at->executable->process->options.kernels;
  c->in = at->executable->process->in;
  c->out = at->executable->process->out;
}

/* Whether it is in work memory that this process has or maps. */
static bool is_shared(const tsr_executable *b, int value, int rank) {
  const tsr_tensor *t = &tsr_executable_program(b, rank)->tensors[value];
  return t->segment == TSR_SEGMENT_WORK && b->ranks[rank].base[TSR_SEGMENT_WORK];
}

/* NULL: it is in another process's memory alone. */
static float *find_address(const tsr_executable *b, int value, int rank, int64_t microbatch) {
  bool has = tsr_executable_is_here(b, rank) || is_shared(b, value, rank);
  return has ? tsr_executable_address(b, value, rank, microbatch) : NULL;
}

int tsr_task_next_group(
    const tsr_task_at *at, const tsr_collective *c, int *next, bool *ret_all_here) {
  tsr_executable *b = at->executable;
  tsr_process *w = b->process;
  const tsr_parallel *p = w->options.parallel;
  int axis = at->task->axis;
  for (; *next < p->ranks; ++*next) {
    int first = *next, here = 0;
    bool other_stage = axis != TSR_PP && b->ranks[first].coord[TSR_PP] != at->program->stage;
    if (b->ranks[first].coord[axis] || other_stage) continue;
    if (!tsr_task_runs_on(at->program, at->task, b->ranks[first].coord)) continue;
    for (int m = 0; m < c->members; m++) {
      int member = tsr_parallel_member(p, first, axis, m);
      bool is_here = tsr_executable_is_here(b, member);
      here += is_here;
      w->process_of[m] = tsr_rank_map_process(&w->options.rank_map, member);
      int64_t i = at->at.microbatch;
      w->in[m] = find_address(b, at->task->inputs[0].value, member, i);
      w->out[m] = find_address(b, at->task->outputs[0].value, member, i);
    }
    if (!here) continue;
    *ret_all_here = here == c->members;
    ++*next;
    return first;
  }
  return -1;
}

/* ---- lists ---- */

/* What was planned so far: few collectives of a program differ. */
typedef struct {
  tsr_arena *arena;
  struct planned {
    tsr_collective_request request;
    tsr_collective collective;
    const tsr_step_list *list;
  } * lists;
  int lists_count, lists_room;
  const tsr_layout **layouts;
  int layouts_count, layouts_room;
} planning;

static bool has_processes(const tsr_layout *l, const int *numbers, int members) {
  bool same = l->members == members;
  for (int m = 0; same && m < members; m++) same = l->number[l->process_of[m]] == numbers[m];
  return same;
}

static const tsr_layout *find_layout(planning *p, const tsr_process *w, int members) {
  const tsr_rank_map *h = &w->options.rank_map;
  for (int i = 0; i < p->layouts_count; i++)
    if (has_processes(p->layouts[i], w->process_of, members)) return p->layouts[i];
  void *layouts = (void *)p->layouts;
  tsr_arena_grow(p->arena, &layouts, sizeof *p->layouts, p->layouts_count, &p->layouts_room);
  p->layouts = layouts;
  return p->layouts[p->layouts_count++] =
             tsr_layout_new(p->arena, members, w->process_of, h->hosts, h->process);
}

/* But for buffers. */
static bool is_same(const tsr_collective *a, const tsr_collective *b) {
  return a->op == b->op && a->members == b->members && a->groups == b->groups &&
         a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim) &&
         a->from == b->from && a->to == b->to && a->root == b->root && a->by == b->by &&
         a->zigzag == b->zigzag && a->tree == b->tree && a->onto == b->onto &&
         a->element == b->element;
}

static const tsr_step_list *find_list(planning *p, const tsr_collective_request *r) {
  for (int i = 0; i < p->lists_count; i++) {
    const struct planned *l = &p->lists[i];
    if (l->request.layout == r->layout && l->request.library == r->library &&
        l->request.on_device == r->on_device && l->request.shared == r->shared &&
        is_same(&l->collective, r->collective))
      return l->list;
  }
  void *lists = p->lists;
  tsr_arena_grow(p->arena, &lists, sizeof *p->lists, p->lists_count, &p->lists_room);
  p->lists = lists;
  const tsr_step_list *list = tsr_algorithm_plan(p->arena, r);
  p->lists[p->lists_count++] = (struct planned){*r, *r->collective, list};
  return list;
}

/* Whether all members' buffers of the task have addresses here. */
static bool has_addresses(const tsr_task_at *at, int first, int members) {
  const tsr_executable *b = at->executable;
  bool all = true;
  for (int m = 0; all && m < members; m++) {
    int member = tsr_parallel_member(b->process->options.parallel, first, at->task->axis, m);
    all = is_shared(b, at->task->inputs[0].value, member) &&
          is_shared(b, at->task->outputs[0].value, member);
  }
  return all;
}

static tsr_group_plan *plan_task(planning *p, const tsr_task_at *at) {
  tsr_process *w = at->executable->process;
  const tsr_rank_map *h = &w->options.rank_map;
  tsr_collective c;
  bool all_here;
  int count = 0, room = 0;
  void *groups = NULL;
  tsr_task_describe(at, &c);
  for (int next = 0, first; (first = tsr_task_next_group(at, &c, &next, &all_here)) >= 0; count++) {
    tsr_collective_request request = {.collective = &c, .layout = find_layout(p, w, c.members)};
    request.on_device = h->communicators && !all_here;
    bool chosen = c.op == TSR_OP_ALL_REDUCE;
    request.ignores_hosts = chosen && w->options.all_reduce == TSR_ALL_REDUCE_TREE;
    request.shared = chosen && w->shared && has_addresses(at, first, c.members);
    request.ring = chosen && w->options.all_reduce == TSR_ALL_REDUCE_RING;
    void *group = h->groups ? h->groups[at->task->axis * w->options.parallel->ranks + first] : NULL;
    request.library = h->communicators ? w->options.fast : group != NULL;
    tsr_arena_grow(p->arena, &groups, sizeof(tsr_group_plan), count, &room);
    tsr_group_plan *plan = &((tsr_group_plan *)groups)[count];
    *plan = (tsr_group_plan){.layout = request.layout};
    for (int onto = 0; onto < 2; onto++) {
      c.onto = onto && accumulates(at);
      plan->lists[onto] = find_list(p, &request);
    }
  }
  return groups;
}

void tsr_executable_plan_collectives(tsr_arena *arena, tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  planning p = {.arena = arena};
  b->plans = tsr_arena_array(arena, tsr_group_plan **, stages);
  for (int s = 0; s < stages; s++) {
    const tsr_program *program = b->programs->of_stage[s];
    b->plans[s] = tsr_arena_array(arena, tsr_group_plan *, program->tasks_count);
    for (int i = 0; b->ranks_count[s] && i < program->tasks_count; i++) {
      tsr_task_at at = {.executable = b, .program = program, .task = &program->tasks[i]};
      if (tsr_op_is_collective(at.task->op)) b->plans[s][i] = plan_task(&p, &at);
    }
  }
}

const tsr_group_plan *tsr_task_plans(const tsr_task_at *at) {
  return at->executable->plans[at->program->stage][at->task - at->program->tasks];
}
