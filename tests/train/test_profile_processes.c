// SPDX-License-Identifier: Apache-2.0
/* Records of several processes, here threads, become one: by their origins, by clocks that are
 * apart, with every event; and clocks that are the same are found to be. */
#include "comm/transport_threads.h"
#include "tests/check.h"
#include "train/profile_processes.h"
#include <pthread.h>
#include <stdlib.h>

enum { PROCESSES = 3, STEPS = 2, MICROSECOND = 1000 };

typedef struct {
  int process;
  tsr_job job;
  tsr_record record;
  tsr_clock_offset offsets[PROCESSES], measured[PROCESSES];
  tsr_span steps[STEPS];
  tsr_event events[PROCESSES];
  bool ok;
} member;

/* Process p's recorder was made p microseconds later, by a clock that is p seconds early: the
 * messages have proved that to 100 ns. It has p events, which begin and end with its steps. */
static void make_record(member *m) {
  int64_t second = 1000000000, p = m->process;
  m->record = (tsr_record){.threads = m->process + 1, .steps = m->steps, .steps_count = STEPS};
  m->record.events = m->events;
  m->record.events_count = p;
  m->record.origin = 5000 * second + p * MICROSECOND - p * second;
  for (int i = 0; i < STEPS; i++) m->steps[i] = (tsr_span){100000 * i + 10, 100000 * i + 60000 + p};
  for (int i = 0; i < p; i++)
    m->events[i] =
        (tsr_event){.begin = m->steps[i].begin, .end = m->steps[i].end, .step = i, .rank = (int)p};
  for (int i = 1; i < PROCESSES; i++)
    m->offsets[i] = (tsr_clock_offset){i * second - 100, i * second + 100};
}

static void *run(void *context) {
  member *m = context;
  m->ok = tsr_clocks_compare(&m->job, m->measured) && tsr_clocks_compare(&m->job, m->measured) &&
          tsr_record_gather(&m->job, m->offsets, &m->record);
  return NULL;
}

static void check_joined(const tsr_record *r) {
  CHECK_INT(r->processes, PROCESSES);
  CHECK_INT(r->threads, 1 + 2 + 3);
  CHECK_INT(r->clock_error, 100);
  CHECK_INT(r->events_count, 0 + 1 + 2);
  CHECK_INT(r->steps_count, STEPS);
  for (int i = 0; i < STEPS; i++) {
    CHECK_INT(r->steps[i].begin, 100000 * i + 10);
    CHECK_INT(r->steps[i].end, 100000 * i + 60000 + 2 + 2 * MICROSECOND);
  }
  static const int ranks[] = {1, 2, 2}, steps[] = {0, 0, 1};
  for (int i = 0; i < r->events_count; i++) {
    const tsr_event *e = &r->events[i];
    CHECK_INT(e->rank, ranks[i]);
    CHECK_INT(e->step, steps[i]);
    CHECK_INT(e->begin, 100000 * steps[i] + 10 + ranks[i] * MICROSECOND);
    CHECK_INT(e->end, 100000 * steps[i] + 60000 + ranks[i] + ranks[i] * MICROSECOND);
  }
}

static void start(tsr_threads *all, member *m, int process) {
  *m = (member){.process = process};
  m->job = (tsr_job){.arena = tsr_arena_new(), .timeout_s = 60};
  m->job.diags = tsr_diags_new(m->job.arena);
  tsr_threads_endpoint(all, process, &m->job.transport);
  make_record(m);
}

/* On one host the clock is one; on several, threads of one process cannot be proved apart. */
static void check_clocks(const member *m, int hosts) {
  for (int p = 0; p < PROCESSES; p++) {
    const tsr_clock_offset *o = &m->measured[p];
    CHECK(o->least <= 0 && o->most >= 0);
    if (hosts == 1 || !p) CHECK(!o->least && !o->most);
    else CHECK(o->most > o->least);
  }
}

static void test(int per_host, int hosts) {
  tsr_threads *all =
      tsr_threads_new(&(tsr_threads_options){.processes = PROCESSES, .per_host = per_host});
  member members[PROCESSES];
  pthread_t threads[PROCESSES];
  for (int p = 0; p < PROCESSES; p++) start(all, &members[p], p);
  for (int p = 0; p < PROCESSES; p++)
    if (pthread_create(&threads[p], NULL, run, &members[p])) abort();
  for (int p = 0; p < PROCESSES; p++) pthread_join(threads[p], NULL);
  for (int p = 0; p < PROCESSES; p++) {
    CHECK(members[p].ok);
    check_clocks(&members[p], hosts);
    if (p) CHECK_INT(members[p].record.events_count, p);
  }
  check_joined(&members[0].record);
  for (int p = 0; p < PROCESSES; p++) tsr_arena_free(members[p].job.arena);
  tsr_threads_free(all);
}

int main(void) {
  test(0, 1);
  test(1, PROCESSES);
  return check_done("profile of processes");
}
