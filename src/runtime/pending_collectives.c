// SPDX-License-Identifier: Apache-2.0
/* Collectives in flight: of groups that have members in other processes, by the transport. */
#include "runtime/executable_internal.h"
#include <assert.h>
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
      .list = plan->lists[c->onto],
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

/* A group's collective is done: an event of its members that are here. What the ranks do meanwhile
 * has events of its own. */
static void record_group(const tsr_task_at *at, int first, int64_t since, bool background) {
  const tsr_executable *b = at->executable;
  const tsr_parallel *p = b->process->options.parallel;
  tsr_event event = {.begin = since, .end = tsr_recorder_now(b->recording)};
  event.task = (int)(at->task - at->program->tasks);
  event.microbatch = (int)at->at.microbatch;
  event.kind = TSR_EVENT_COMMUNICATION;
  event.background = true;
  for (int m = 0; b->recording && m < p->size[at->task->axis]; m++) {
    event.rank = tsr_parallel_member(p, first, at->task->axis, m);
    if (!tsr_executable_is_here(b, event.rank)) continue;
    if (background) tsr_recorder_add(b->recording, event);
    else tsr_recorder_extend(b->recording, event.rank, since);
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
    if (tsr_executable_messages_by_host(at->executable)) tsr_collective_to_host(at, &c, first);
    tsr_pending_call call = call_of(at, &c, plan, first);
    m->firsts[m->count] = first;
    m->calls[m->count++] = tsr_pending_begin(&call, memory);
    memory += tsr_pending_bytes(plan->lists[c.onto], c.members);
  }
}

/* Begins what is not begun. */
static bool advance(const tsr_task_at *at, tsr_pending_task *m, bool background) {
  if (m->node < 0) begin(at, m);
  int kept = 0;
  for (int i = 0; i < m->count; i++) {
    tsr_pending_state state = tsr_pending_advance(m->calls[i]);
    if (state == TSR_PENDING_DONE && tsr_executable_messages_by_host(at->executable))
      tsr_collective_from_host(at, m->firsts[i]);
    if (state == TSR_PENDING_DONE) record_group(at, m->firsts[i], m->since, background);
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

bool tsr_task_is_pending(const tsr_task_at *at) { return pending_of(at)->node >= 0; }
bool tsr_task_advance(const tsr_task_at *at) { return advance(at, pending_of(at), false); }

/* ---- in the background ---- */

/* Digests are taken where a collective's task is. */
bool tsr_background_begin(const tsr_task_at *at) {
  tsr_executable *b = at->executable;
  if (!at->task->bucket || !b->background || b->digests) return false;
  tsr_background *g = &b->background[at->program->stage];
  assert(g->count < g->room);
  g->begun[(g->first + g->count++) % g->room] = *at;
  tsr_background_advance(b);
  return true;
}

static bool advance_stage(tsr_background *g) {
  bool any = false;
  while (g->count && advance(&g->begun[g->first], &g->in_flight, true)) {
    g->first = (g->first + 1) % g->room;
    g->count--;
    any = true;
  }
  return any;
}

bool tsr_background_advance(tsr_executable *b) {
  bool any = false;
  for (int s = 0; b->background && s < b->programs->pipeline->stages; s++)
    any = advance_stage(&b->background[s]) || any;
  return any;
}

bool tsr_background_has_ended(const tsr_task_at *at) {
  if (!at->executable->background) return true;
  tsr_background *g = &at->executable->background[at->program->stage];
  advance_stage(g);
  for (int i = 0; i < g->count; i++)
    if (g->begun[(g->first + i) % g->room].task->bucket == at->task->bucket) return false;
  return true;
}

bool tsr_background_precedes(const tsr_task_at *at) {
  const tsr_executable *b = at->executable;
  if (!b->background || at->task->bucket || !b->background[at->program->stage].count) return false;
  int64_t tags = (int64_t)b->programs->graph->nodes_count * b->process->options.parallel->ranks;
  return tsr_executable_rank_map(b)->groups || tags > TSR_TAGS_HALF - 2;
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
    int64_t bytes = tsr_pending_bytes(plan->lists[0], c.members),
            onto = tsr_pending_bytes(plan->lists[1], c.members);
    sum += bytes > onto ? bytes : onto;
    ++*ret_calls;
  }
  return sum;
}

static void make_room(tsr_arena *arena, tsr_pending_task *m, int calls) {
  m->node = -1;
  m->calls = tsr_arena_array(arena, tsr_pending *, calls + 1);
  m->firsts = tsr_arena_array(arena, int, calls + 1);
}

/* Only of the host: a device's work would have to end before each begins. */
static void plan_background(tsr_arena *arena, tsr_executable *b, int stage) {
  const tsr_program *p = b->programs->of_stage[stage];
  int most = 0, room = 0;
  int64_t bytes = 0;
  for (int i = 0; b->ranks_count[stage] && i < p->tasks_count; i++) {
    tsr_task_at at = {.executable = b, .program = p, .task = &p->tasks[i]};
    if (!at.task->bucket || !tsr_op_is_collective(at.task->op)) continue;
    int calls = 0;
    int64_t each = task_bytes(&at, &calls);
    if (each > bytes) bytes = each;
    if (calls > most) most = calls;
    room++;
  }
  if (!room) return;
  if (!b->background)
    b->background = tsr_arena_array(arena, tsr_background, b->programs->pipeline->stages);
  tsr_background *g = &b->background[stage];
  g->begun = tsr_arena_array(arena, tsr_task_at, room);
  g->room = room;
  g->in_flight.bytes = bytes;
  make_room(arena, &g->in_flight, most);
}

/* What its own tasks need, by stage; and of the stages together those over pp. */
static void plan_tasks(tsr_arena *arena, tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  int *calls = tsr_arena_array(arena, int, stages + 1);
  for (int s = 0; s < stages; s++) {
    const tsr_program *p = b->programs->of_stage[s];
    for (int i = 0; b->ranks_count[s] && i < p->tasks_count; i++) {
      tsr_task_at at = {.executable = b, .program = p, .task = &p->tasks[i]};
      if (!tsr_op_is_collective(at.task->op)) continue;
      int of = at.task->axis == TSR_PP ? stages : s, count = 0;
      int64_t bytes = task_bytes(&at, &count);
      if (bytes > b->pending[of].bytes) b->pending[of].bytes = bytes;
      if (count > calls[of]) calls[of] = count;
    }
  }
  for (int s = 0; s <= stages; s++) make_room(arena, &b->pending[s], calls[s]);
}

void tsr_executable_plan_pending(tsr_arena *arena, tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  b->pending = tsr_arena_array(arena, tsr_pending_task, stages + 1);
  for (int s = 0; s <= stages; s++) b->pending[s].node = -1;
  if (tsr_executable_is_alone(b)) return;
  if (!tsr_executable_rank_map(b)->communicators) plan_tasks(arena, b);
  bool on_host = b->process->device == b->process->host;
  for (int s = 0; on_host && s < stages; s++) plan_background(arena, b, s);
  b->reports = tsr_arena_array(arena, tsr_report, tsr_executable_rank_map(b)->processes);
  b->failure_report = tsr_arena_array(arena, char, TSR_FAILURE_REPORT_BYTES);
}

int64_t tsr_executable_staging_bytes(const tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  int64_t sum = b->pending[stages].bytes;
  for (int s = 0; s < stages; s++) {
    sum += b->pending[s].bytes;
    if (b->background) sum += b->background[s].in_flight.bytes;
  }
  return sum;
}

static char *place(tsr_pending_task *m, char *staging) {
  m->staging = staging;
  return staging ? staging + m->bytes : NULL;
}

void tsr_executable_place_pending(tsr_executable *b, char *staging) {
  int stages = b->programs->pipeline->stages;
  for (int s = 0; s <= stages; s++) staging = place(&b->pending[s], staging);
  for (int s = 0; b->background && s < stages; s++)
    staging = place(&b->background[s].in_flight, staging);
}
