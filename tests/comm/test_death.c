// SPDX-License-Identifier: Apache-2.0
/* A process that dies at every message of a collective, silent or with an error: the others have
 * the right result or none, and somebody names the one that is lost. */
#include "../check.h"
#include "collective_case.h"
#include "fake_net.h"
#include <stdlib.h>
#include <string.h>

enum { PROCESSES_MAX = 5, SEEDS = 60, SCALE = 300, IDLE_TURNS = 400 };

typedef struct {
  collective_case *of;
  int processes, lost; /* -1: nobody */
  fake_net *net;
  case_process parts[PROCESSES_MAX];
} job;

static void begin(job *j, int64_t messages, bool fails) {
  tsr_transport t;
  j->net = fake_net_new(j->processes, j->of->seed);
  if (j->lost >= 0) fake_net_stop_at(j->net, j->lost, messages, fails);
  for (int w = 0; w < j->processes; w++) {
    fake_net_endpoint(j->net, w, &t);
    case_process_begin(&j->parts[w], j->of, &t, 5, NULL);
  }
}

/* Until nothing has changed for some turns of everybody. */
static void drive(job *j) {
  uint64_t state = j->of->seed;
  int64_t begun = -1;
  for (int idle = 0; idle < IDLE_TURNS * j->processes; idle++) {
    int w = (int)case_draw(&state, (uint64_t)j->processes);
    case_process *p = &j->parts[w];
    if (p->state != TSR_PENDING || fake_net_is_stopped(j->net, w)) continue;
    p->state = tsr_pending_advance(p->pending);
    if (p->state != TSR_PENDING || fake_net_begun(j->net) != begun) idle = 0;
    begun = fake_net_begun(j->net);
  }
}

static void end(job *j) {
  for (int w = 0; w < j->processes; w++) {
    case_process *p = &j->parts[w];
    if (p->state != TSR_PENDING_DONE || fake_net_is_stopped(j->net, w)) case_process_free(p);
    else
      CHECK_AT(!case_process_end(p), "%s: process %d is done, with other numbers", j->of->name, w);
  }
  fake_net_free(j->net);
}

static bool names(const case_process *p, int lost) {
  char word[32];
  snprintf(word, sizeof word, "process %d", lost);
  if (p->state == TSR_PENDING_FAILED) return strstr(tsr_pending_why(p->pending), word);
  return p->state == TSR_PENDING && tsr_pending_missing(p->pending) >> lost & 1;
}

/* Whoever is left waiting, waits for the one that is lost, or for one who does. Whether anybody is.
 */
static bool check_named(const job *j, int64_t messages) {
  bool waits = false, named = false;
  for (int w = 0; w < j->processes; w++) {
    if (fake_net_is_stopped(j->net, w)) continue;
    waits |= j->parts[w].state != TSR_PENDING_DONE;
    named |= names(&j->parts[w], j->lost);
  }
  CHECK_AT(
      named || !waits, "%s: process %d lost at message %lld is not named", j->of->name, j->lost,
      (long long)messages);
  return waits;
}

int main(void) {
  int64_t deaths = 0, left = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    static const int hosts[PROCESSES_MAX] = {0, 0, 1, 1, 1};
    uint64_t state = seed;
    collective_case c;
    job j = {.of = &c, .processes = 2 + (int)case_draw(&state, PROCESSES_MAX - 1), .lost = -1};
    collective_case_draw(&c, seed, j.processes, SCALE);
    c.pool = false;
    if (case_draw(&state, 2)) c.hosts = hosts;
    collective_case_reference(&c);
    begin(&j, 0, false);
    drive(&j);
    int64_t messages = fake_net_begun(j.net);
    for (int w = 0; w < j.processes; w++) CHECK_INT(j.parts[w].state, TSR_PENDING_DONE);
    end(&j);
    for (int64_t at = 1; at <= messages; at++)
      for (int fails = 0; fails < 2; fails++, deaths++) {
        j.lost = (int)case_draw(&state, (uint64_t)j.processes);
        begin(&j, at, fails);
        drive(&j);
        left += check_named(&j, at);
        end(&j);
      }
    collective_case_free(&c);
  }
  CHECK_AT(
      deaths > 1000 && left > deaths / 2, "%lld deaths, %lld noticed", (long long)deaths,
      (long long)left);
  return check_done("remote.death");
}
