// SPDX-License-Identifier: Apache-2.0
/* Collectives in flight: of groups that have members in other processes, by the transport. */
#include "runtime/executable_internal.h"
#include <string.h>

/* Tags of a node and a group. */
static int group_tag(const tsr_executable *b, int node, int first) {
  int64_t ranks = b->process->options.parallel->ranks;
  return TSR_TAGS_HALF + (int)((node * ranks + first) % (TSR_TAGS_HALF - 2));
}

static void run_jobs(void *pool, void (*job)(void *, int), void *context, int jobs) {
  tsr_pool_run(pool, job, context, jobs);
}

static tsr_pending_call
call_of(const tsr_task_at *at, const tsr_collective *c, const tsr_group_plan *plan, int first) {
  tsr_process *w = at->executable->process;
  const tsr_rank_map *h = &w->options.rank_map;
  return (tsr_pending_call){
      .transport = h->transport,
      .list = plan->list,
      .layout = plan->layout,
      .collective = c,
      .group = h->groups[at->task->axis * w->options.parallel->ranks + first],
      .tag = group_tag(at->executable, at->task->node, first),
      .run = run_jobs,
      .pool = w->pool,
      .threads = w->options.threads};
}

static tsr_pending_task *pending_of(const tsr_task_at *at) {
  int stages = at->program->pipeline->stages;
  return &at->executable->pending[at->task->axis == TSR_PP ? stages : at->program->stage];
}

/* A group's collective is done: an event of its members that are here. */
static void record_group(const tsr_task_at *at, int first, int64_t since) {
  const tsr_executable *b = at->executable;
  const tsr_parallel *p = b->process->options.parallel;
  for (int m = 0; b->recording && m < p->size[at->task->axis]; m++) {
    int member = tsr_parallel_member(p, first, at->task->axis, m);
    if (tsr_executable_is_here(b, member)) tsr_recorder_extend(b->recording, member, since);
  }
}

static void begin(const tsr_task_at *at, tsr_pending_task *m) {
  tsr_collective c;
  tsr_task_describe(at, &c);
  char *memory = m->staging;
  bool all_here;
  m->node = at->task->node;
  m->count = 0;
  m->since = tsr_recorder_now(at->executable->recording);
  const tsr_group_plan *plan = tsr_task_plans(at);
  for (int next = 0, first; (first = tsr_task_next_group(at, &c, &next, &all_here)) >= 0; plan++) {
    if (all_here) continue;
    tsr_pending_call call = call_of(at, &c, plan, first);
    m->firsts[m->count] = first;
    m->calls[m->count++] = tsr_pending_begin(&call, memory);
    memory += tsr_pending_bytes(plan->list, c.members);
  }
}

bool tsr_task_is_pending(const tsr_task_at *at) { return pending_of(at)->node >= 0; }

bool tsr_task_advance(const tsr_task_at *at) {
  tsr_pending_task *m = pending_of(at);
  if (m->node < 0) begin(at, m);
  int kept = 0;
  for (int i = 0; i < m->count; i++) {
    tsr_pending_state state = tsr_pending_advance(m->calls[i]);
    if (state == TSR_PENDING_DONE) record_group(at, m->firsts[i], m->since);
    if (state == TSR_PENDING_DONE) continue;
    m->firsts[kept] = m->firsts[i];
    m->calls[kept++] = m->calls[i];
    if (state == TSR_PENDING) continue;
    m->count = kept;
    tsr_wait_lost(
        &(tsr_waiting){.executable = at->executable, .stage = at->program->stage},
        tsr_pending_why(m->calls[kept - 1]));
  }
  m->count = kept;
  if (!kept) m->node = -1;
  return !kept;
}

/* ---- what they need ---- */

/* Bytes and calls of one task. */
static int64_t task_bytes(const tsr_task_at *at, int *ret_calls) {
  tsr_collective c;
  int64_t sum = 0;
  bool all_here;
  const tsr_group_plan *plan = tsr_task_plans(at);
  tsr_task_describe(at, &c);
  for (int next = 0; tsr_task_next_group(at, &c, &next, &all_here) >= 0; plan++) {
    if (all_here) continue;
    sum += tsr_pending_bytes(plan->list, c.members);
    ++*ret_calls;
  }
  return sum;
}

void tsr_executable_plan_pending(tsr_arena *arena, tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  b->pending = tsr_arena_array(arena, tsr_pending_task, stages + 1);
  for (int s = 0; s <= stages; s++) b->pending[s].node = -1;
  if (tsr_executable_is_alone(b)) return;
  int *calls = tsr_arena_array(arena, int, stages + 1);
  for (int s = 0; s < stages; s++) {
    const tsr_program *p = b->programs->of_stage[s];
    for (int i = 0; b->ranks_count[s] && i < p->tasks_count; i++) {
      tsr_task_at at = {.executable = b, .program = p, .task = &p->tasks[i]};
      if (!tsr_op_is_collective(at.task->op) || tsr_executable_rank_map(b)->communicators) continue;
      int of = at.task->axis == TSR_PP ? stages : s, count = 0;
      int64_t bytes = task_bytes(&at, &count);
      if (bytes > b->pending[of].bytes) b->pending[of].bytes = bytes;
      if (count > calls[of]) calls[of] = count;
    }
  }
  for (int s = 0; s <= stages; s++) {
    b->pending[s].calls = tsr_arena_array(arena, tsr_pending *, calls[s] + 1);
    b->pending[s].firsts = tsr_arena_array(arena, int, calls[s] + 1);
  }
  b->reports = tsr_arena_array(arena, tsr_report, tsr_executable_rank_map(b)->processes);
  b->failure_report = tsr_arena_array(arena, char, TSR_FAILURE_REPORT_BYTES);
}

int64_t tsr_executable_staging_bytes(const tsr_executable *b) {
  int64_t sum = 0;
  for (int s = 0; s <= b->programs->pipeline->stages; s++) sum += b->pending[s].bytes;
  return sum;
}

void tsr_executable_place_pending(tsr_executable *b, char *staging) {
  for (int s = 0; s <= b->programs->pipeline->stages; s++) {
    b->pending[s].staging = staging;
    if (staging) staging += b->pending[s].bytes;
  }
}
