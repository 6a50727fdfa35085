// SPDX-License-Identifier: Apache-2.0
#include "train/profile_processes.h"
#include <string.h>
#include <time.h>

/* ---- clocks ---- */

enum { ROUNDS = 16 };

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* In a round everybody sends to everybody: what is sent after a round's begin on one process has
 * arrived before its end on every other one. */
static tsr_clock_offset measured(const tsr_span *first, const tsr_span *other) {
  tsr_clock_offset o = {INT64_MIN, INT64_MAX};
  for (int i = 0; i < ROUNDS; i++) {
    int64_t least = first[i].begin - other[i].end, most = first[i].end - other[i].begin;
    if (least > o.least) o.least = least;
    if (most < o.most) o.most = most;
  }
  return o;
}

/* Hosts of one name whose clocks cannot be the same are several. */
static bool is_same_clock(const tsr_transport *t, int process, const tsr_clock_offset *o) {
  const char *first = t->table->host(t->state, 0), *other = t->table->host(t->state, process);
  return !process || (!strcmp(first, other) && o->least <= 0 && o->most >= 0);
}

bool tsr_clocks_compare(tsr_job *job, tsr_clock_offset *ret) {
  const tsr_transport *t = &job->transport;
  if (tsr_job_is_alone(job)) return true;
  char *all = tsr_arena_alloc(job->arena, (size_t)t->processes);
  tsr_span mine[ROUNDS], *spans = tsr_arena_array(job->arena, tsr_span, ROUNDS * t->processes);
  for (int i = 0; i < ROUNDS; i++) {
    mine[i].begin = now();
    if (!tsr_job_gather(job, "", 1, all)) return false;
    mine[i].end = now();
  }
  if (!tsr_job_gather(job, mine, sizeof mine, spans)) return false;
  for (int p = 0; p < t->processes; p++) {
    tsr_clock_offset o = measured(spans, &spans[p * ROUNDS]);
    if (is_same_clock(t, p, &o)) continue;
    bool again = ret[p].least || ret[p].most;
    ret[p].least = again && ret[p].least < o.least ? ret[p].least : o.least;
    ret[p].most = again && ret[p].most > o.most ? ret[p].most : o.most;
  }
  return true;
}

/* ---- events ---- */

/* What processes tell each other of their records. */
typedef struct {
  int64_t origin, events;
  int threads;
} summary;

/* What is added to the times of a process's events. */
static int64_t shift_of(const summary *all, const tsr_clock_offset *offsets, int process) {
  const tsr_clock_offset *o = &offsets[process];
  return all[process].origin - all[0].origin + o->least + (o->most - o->least) / 2;
}

/* A step lasts from its begin on the first process to its end on the last. Processes meet between
 * two steps, so that only the clocks' error could have them overlap. */
static void join_steps(
    tsr_record *record, tsr_span *steps, const summary *all, const tsr_clock_offset *offsets,
    int processes) {
  for (int i = 0; i < record->steps_count; i++) {
    tsr_span whole = steps[i];
    for (int p = 1; p < processes; p++) {
      const tsr_span *of = &steps[p * record->steps_count + i];
      int64_t shift = shift_of(all, offsets, p);
      if (of->begin + shift < whole.begin) whole.begin = of->begin + shift;
      if (of->end + shift > whole.end) whole.end = of->end + shift;
    }
    steps[i] = whole;
  }
  for (int i = 1; i < record->steps_count; i++)
    if (steps[i].begin < steps[i - 1].end) steps[i].begin = steps[i - 1].end;
  record->steps = steps;
}

/* Those of process 0, then those of the others, each in their order. */
static void join_events(
    tsr_record *record, tsr_event *events, const summary *all, const tsr_clock_offset *offsets,
    int processes) {
  int64_t at = 0;
  record->threads = 0;
  for (int p = 0; p < processes; p++) {
    int64_t shift = shift_of(all, offsets, p), error = (offsets[p].most - offsets[p].least + 1) / 2;
    for (int64_t i = 0; i < all[p].events; i++, at++)
      events[at].begin += shift, events[at].end += shift;
    if (error > record->clock_error) record->clock_error = error;
    record->threads += all[p].threads;
  }
  record->events = events;
  record->events_count = at;
}

bool tsr_record_gather(tsr_job *job, const tsr_clock_offset *offsets, tsr_record *record) {
  static const char what[] = "the profile cannot be gathered";
  int processes = job->transport.processes;
  if (tsr_job_is_alone(job)) return true;
  summary mine = {record->origin, record->events_count, record->threads};
  summary *all = tsr_arena_array(job->arena, summary, processes);
  int64_t *bytes = tsr_arena_array(job->arena, int64_t, processes), events = 0;
  if (!tsr_job_gather(job, &mine, sizeof mine, all)) return false;
  bool first = job->transport.process == 0;
  tsr_event *all_events = NULL;
  tsr_span *all_steps = NULL;
  for (int p = 0; p < processes; p++) events += all[p].events;
  for (int p = 0; p < processes; p++) bytes[p] = (int64_t)sizeof *record->events * all[p].events;
  if (first) all_events = tsr_arena_array(job->arena, tsr_event, events + 1);
  if (!tsr_job_collect(job, record->events, bytes, what, all_events)) return false;
  for (int p = 0; p < processes; p++) bytes[p] = (int64_t)sizeof(tsr_span) * record->steps_count;
  if (first) all_steps = tsr_arena_array(job->arena, tsr_span, processes * record->steps_count);
  if (!tsr_job_collect(job, record->steps, bytes, what, all_steps)) return false;
  if (!first) return true;
  record->processes = processes;
  join_steps(record, all_steps, all, offsets, processes);
  join_events(record, all_events, all, offsets, processes);
  return true;
}
