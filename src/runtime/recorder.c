// SPDX-License-Identifier: Apache-2.0
#include "runtime/recorder.h"
#include "runtime/executable_internal.h"
#include <assert.h>
#include <string.h>
#include <time.h>

struct tsr_recorder {
  const tsr_executable *executable;
  tsr_event *events; /* event i stands at i % capacity */
  int64_t capacity, count;
  tsr_span *steps;
  int steps_count, steps_max;
  int64_t first_step;
  int64_t origin;
  tsr_span *jobs; /* of the loop that runs */
  int jobs_max;
  tsr_span *present;                                    /* per rank; begin NEVER: it has none */
  int64_t *waits;                                       /* per stage: since when, or NEVER */
  void (*ended)(void *context, tsr_recorder *recorder); /* NULL: nobody is told */
  void *context;
};
#define NEVER INT64_MAX

const char *tsr_event_kind_name(tsr_event_kind kind) {
  static const char *const names[] = {"compute", "input", "communication", "wait"};
  return names[kind];
}

static int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t tsr_recorder_now(const tsr_recorder *r) { return r ? clock_ns() - r->origin : 0; }

/* ---- before the first step, and after the last ---- */

/* A task is one event, and one more where its stage may have to wait for it. */
int64_t tsr_recorder_events_of_step(const tsr_programs *programs, const tsr_parallel *parallel) {
  int64_t events = 0;
  for (int s = 0; s < programs->pipeline->stages; s++) {
    const tsr_program *p = programs->of_stage[s];
    for (int i = 0; i < p->runs_count; i++) {
      const tsr_part *part = &p->parts[p->runs[i].part];
      events += part->section == TSR_FORWARD;
      for (int t = part->begin; t < part->end; t++) {
        const tsr_task *task = &p->tasks[t];
        bool may_wait =
            task->op == TSR_OP_RECEIVE || task->op == TSR_OP_WAIT || task->axis == TSR_PP;
        events += may_wait ? 2 : 1;
      }
    }
  }
  return events * (parallel->ranks / programs->pipeline->stages);
}

tsr_recorder *tsr_executable_record(
    tsr_arena *arena, tsr_executable *executable, int64_t first_step, int steps, int64_t events) {
  const tsr_process_options *o = &executable->process->options;
  int stages = executable->programs->pipeline->stages;
  assert(events > 0);
  tsr_recorder *r = tsr_arena_alloc(arena, sizeof *r);
  *r = (tsr_recorder){.executable = executable, .capacity = events, .steps_max = steps};
  r->first_step = first_step;
  r->origin = clock_ns();
  r->steps = tsr_arena_array(arena, tsr_span, steps);
  r->events = tsr_arena_array(arena, tsr_event, events);
  memset(r->events, 0, sizeof *r->events * (size_t)events); /* no page is touched first in a step */
  r->jobs_max = tsr_cpu_jobs_max(o->parallel->ranks, o->threads);
  r->jobs = tsr_arena_array(arena, tsr_span, r->jobs_max);
  r->present = tsr_arena_array(arena, tsr_span, o->parallel->ranks);
  for (int i = 0; i < o->parallel->ranks; i++) r->present[i].begin = NEVER;
  r->waits = tsr_arena_array(arena, int64_t, stages);
  for (int s = 0; s < stages; s++) r->waits[s] = NEVER;
  executable->recorder = r;
  return r;
}

tsr_record tsr_recorder_read(tsr_arena *arena, const tsr_recorder *r) {
  const tsr_process_options *o = &r->executable->process->options;
  tsr_record record = {
      .programs = r->executable->programs,
      .parallel = o->parallel,
      .threads = r->executable->process->device->threads,
      .origin = r->origin};
  record.steps = r->steps;
  record.steps_count = r->steps_count;
  record.events = r->events;
  record.events_count = r->count < r->capacity ? r->count : r->capacity;
  record.lost = r->count - record.events_count;
  if (!record.lost) return record;
  tsr_event *events = tsr_arena_array(arena, tsr_event, r->capacity);
  for (int64_t i = 0; i < r->capacity; i++) events[i] = r->events[(r->count + i) % r->capacity];
  record.events = events;
  return record;
}

void tsr_recorder_on_step(
    tsr_recorder *r, void (*ended)(void *context, tsr_recorder *recorder), void *context) {
  r->ended = ended;
  r->context = context;
}

void tsr_recorder_clear(tsr_recorder *r) { r->count = r->steps_count = 0; }

/* ---- in the steps ---- */

bool tsr_recorder_begin_step(tsr_recorder *r, int64_t step) {
  if (step < r->first_step || r->steps_count == r->steps_max) return false;
  r->steps[r->steps_count].begin = tsr_recorder_now(r);
  return true;
}

void tsr_recorder_end_step(tsr_recorder *r) {
  r->steps[r->steps_count++].end = tsr_recorder_now(r);
  if (r->ended) r->ended(r->context, r);
}

typedef struct {
  tsr_recorder *recorder;
  tsr_pool_job *job;
  void *context;
} timed_loop;

static void run_timed(void *context, int job) {
  const timed_loop *l = context;
  tsr_span *span = &l->recorder->jobs[job];
  span->begin = tsr_recorder_now(l->recorder);
  l->job(l->context, job);
  span->end = tsr_recorder_now(l->recorder);
}

static void extend(tsr_span *span, int64_t begin, int64_t end) {
  if (span->begin == NEVER) span->end = end;
  if (begin < span->begin) span->begin = begin;
  if (end > span->end) span->end = end;
}

void tsr_recorder_run(
    tsr_recorder *r, tsr_pool *pool, tsr_pool_job *job, void *context, int jobs, const int *ranks,
    int each) {
  timed_loop loop = {r, job, context};
  assert(jobs <= r->jobs_max);
  tsr_pool_run(pool, run_timed, &loop, jobs);
  for (int j = 0; j < jobs; j++)
    extend(&r->present[ranks[j / each]], r->jobs[j].begin, r->jobs[j].end);
}

void tsr_recorder_extend(tsr_recorder *r, int rank, int64_t begin) {
  extend(&r->present[rank], begin, tsr_recorder_now(r));
}

static void timer_loop(
    void *context, tsr_pool *pool, tsr_pool_job *job, void *of, int jobs, const int *ranks,
    int each) {
  tsr_recorder_run(context, pool, job, of, jobs, ranks, each);
}
static int64_t timer_now(void *context) { return tsr_recorder_now(context); }
static void timer_extend(void *context, int rank, int64_t begin) {
  tsr_recorder_extend(context, rank, begin);
}

tsr_task_timer tsr_recorder_timer(tsr_recorder *r) {
  return (tsr_task_timer){r, timer_loop, timer_now, timer_extend};
}

void tsr_recorder_wait(tsr_recorder *r, int stage) {
  if (r->waits[stage] == NEVER) r->waits[stage] = tsr_recorder_now(r);
}

void tsr_recorder_add(tsr_recorder *r, tsr_event event) {
  assert(event.begin <= event.end);
  event.step = r->steps_count;
  r->events[r->count++ % r->capacity] = event;
}

/* The wait of one rank: until its event begins, which may be before the task was asked for again
 * when another stage ran it for all. */
static void add_wait(tsr_recorder *r, tsr_event event, int64_t since, int64_t until) {
  event.kind = TSR_EVENT_WAIT;
  event.begin = since;
  event.end = until > since ? until : since;
  tsr_recorder_add(r, event);
}

void tsr_recorder_end(tsr_recorder *r, int stage, int64_t begin, tsr_event event) {
  int64_t since = r->waits[stage];
  for (int i = 0; i < r->executable->ranks_count[stage]; i++) {
    event.rank = r->executable->ranks_of_stage[stage][i];
    tsr_span *present = &r->present[event.rank];
    if (since != NEVER) add_wait(r, event, since, present->begin < begin ? present->begin : begin);
    if (present->begin == NEVER) continue;
    event.begin = present->begin;
    event.end = present->end;
    tsr_recorder_add(r, event);
    present->begin = NEVER;
  }
  r->waits[stage] = NEVER;
}
