// SPDX-License-Identifier: Apache-2.0
/* Every collective × element × size × group shape × rank_map between processes, bit for bit what
 * one process gives.
 *   test_remote            by the fake transport, in seeded orders, and by threads
 *   test_remote threads    by threads alone, for TSan
 *   test_remote slow       64 MB, by threads
 *   test_remote launched   by the transport of the launcher (tests/comm/test_remote.sh) */
#include "../check.h"
#include "collective_case.h"
#include "comm/transport_threads.h"
#include "fake_net.h"
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { PROCESSES_MAX = 16, TURNS_MAX = 4000000 };
#define MEGABYTE (INT64_C(1) << 20)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- all processes in one thread ---- */

/* Until all are done, or nothing happens any more. */
static bool drive(case_process *processes, int count, uint64_t seed) {
  int left = 0;
  for (int i = 0; i < count; i++) left += processes[i].state == TSR_PENDING;
  for (int64_t turn = 0; left && turn < TURNS_MAX; turn++) {
    case_process *w = &processes[case_draw(&seed, (uint64_t)count)];
    if (w->state != TSR_PENDING) continue;
    w->state = tsr_pending_advance(w->pending);
    left -= w->state != TSR_PENDING;
  }
  return !left;
}

/* Returns the bytes that crossed between hosts. */
static int64_t check_fake(collective_case *c, int processes, const int *hosts) {
  case_process parts[PROCESSES_MAX];
  tsr_transport t;
  fake_net *net = fake_net_new(processes, c->seed);
  int failed = 0;
  if (hosts) fake_net_set_hosts(net, hosts);
  collective_case_reference(c);
  for (int w = 0; w < processes; w++) {
    fake_net_endpoint(net, w, &t);
    case_process_begin(&parts[w], c, &t, 5, NULL);
  }
  CHECK_AT(drive(parts, processes, c->seed), "%s: not done", c->name);
  for (int w = 0; w < processes; w++) {
    CHECK_AT(
        !parts[w].pending || !tsr_pending_missing(parts[w].pending), "%s: somebody missing",
        c->name);
    failed += case_process_end(&parts[w]);
  }
  CHECK_AT(!failed, "%s: %d", c->name, failed);
  int64_t crossed = fake_net_crossed(net);
  CHECK_AT(!fake_net_free(net), "%s: messages that nobody took", c->name);
  collective_case_free(c);
  return crossed;
}

static void test_random(void) {
  collective_case c;
  for (uint64_t seed = 0; seed < 2400; seed++) {
    uint64_t state = seed;
    int processes = 1 + (int)case_draw(&state, 9);
    int64_t scale = seed % 40 == 0 ? 3000000 : seed % 8 == 0 ? 200000 : 2000;
    collective_case_draw(&c, seed, processes, scale);
    check_fake(&c, processes, NULL);
  }
}

/* One element up to several chunks of each owner, and odd counts. */
static void test_sizes(void) {
  static const int64_t counts[] = {1, 2, 3, 5, 17, 1023, 1025, 131071, 131073, 1048577, 2500003};
  collective_case c;
  for (int processes = 2; processes <= 8; processes += processes < 4 ? 1 : 4)
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++) {
      collective_case_plain(&c, TSR_OP_ALL_REDUCE, processes, counts[i]);
      check_fake(&c, processes, NULL);
      collective_case_plain(&c, TSR_OP_ALL_GATHER, processes, counts[i] * processes);
      check_fake(&c, processes, NULL);
    }
}

/* More rounds than are under way at once, with several members on each process. */
static void test_rounds(void) {
  collective_case c;
  for (uint64_t seed = 0; seed < 8; seed++) {
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, 6, 1500001);
    c.seed = seed;
    c.in_place = seed & 4;
    for (int m = 0; m < 6; m++) c.process_of[m] = seed & 2 ? m % 2 : m / 3;
    check_fake(&c, 2, NULL);
  }
}

/* 2 N (W - 1) / W from each process, also where several members are on each. */
static void test_traffic(void) {
  enum { PROCESSES = 4, ELEMENTS = 1 << 20 };
  for (int members = PROCESSES; members <= 4 * PROCESSES; members *= 2) {
    collective_case c;
    case_process parts[PROCESSES];
    tsr_transport t;
    fake_net *net = fake_net_new(PROCESSES, 1);
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, members, ELEMENTS);
    for (int m = 0; m < members; m++) c.process_of[m] = m * PROCESSES / members;
    collective_case_reference(&c);
    for (int w = 0; w < PROCESSES; w++) {
      fake_net_endpoint(net, w, &t);
      case_process_begin(&parts[w], &c, &t, 0, NULL);
    }
    CHECK(drive(parts, PROCESSES, 7));
    for (int w = 0; w < PROCESSES; w++) {
      CHECK_INT(fake_net_sent(net, w), 2 * INT64_C(4) * ELEMENTS * (PROCESSES - 1) / PROCESSES);
      CHECK_INT(case_process_end(&parts[w]), 0);
    }
    CHECK_INT(fake_net_free(net), 0);
    collective_case_free(&c);
  }
}

/* ---- several hosts ---- */

static const struct layout {
  int processes;
  int hosts[8];
} layouts[] = {
    {4, {0, 0, 1, 1}},
    {4, {0, 1, 0, 1}},
    {6, {0, 0, 0, 1, 1, 1}},
    {6, {2, 0, 1, 2, 0, 1}},
    {8, {0, 0, 1, 1, 1, 1, 1, 1}},
    {8, {3, 3, 2, 2, 1, 1, 0, 0}},
    {8, {0, 0, 0, 0, 1, 1, 1, 1}},
    {8, {0, 1, 1, 0, 1, 0, 0, 1}},
    {5, {1, 0, 0, 0, 0}},
    {3, {0, 1, 2}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* The same cases as on one host, bit for bit. */
static void test_hosts(void) {
  collective_case c;
  for (int i = 0; i < LAYOUTS; i++)
    for (uint64_t seed = 0; seed < 200; seed++) {
      const struct layout *l = &layouts[i];
      int64_t scale = seed % 20 == 0 ? 200000 : 2000;
      collective_case_draw(&c, 5000 + 200 * (uint64_t)i + seed, l->processes, scale);
      c.hosts = l->hosts;
      check_fake(&c, l->processes, l->hosts);
    }
}

/* Elements up to many rounds, also with several members on each process. */
static void test_hosts_sizes(void) {
  static const int64_t counts[] = {1, 2, 7, 1023, 131073, 2200001};
  collective_case c;
  for (int i = 0; i < LAYOUTS; i++)
    for (int n = 0; n < (int)(sizeof counts / sizeof *counts); n++)
      for (int each = 1; each <= 2; each++) {
        const struct layout *l = &layouts[i];
        if (counts[n] > 1000000 && (i % 4 || each > 1)) continue;
        collective_case_plain(&c, TSR_OP_ALL_REDUCE, l->processes * each, counts[n]);
        for (int m = 0; m < c.c.members; m++) c.process_of[m] = n % 2 ? m / each : m % l->processes;
        c.hosts = l->hosts;
        c.in_place = n % 3 == 0;
        c.seed = (uint64_t)n;
        check_fake(&c, l->processes, l->hosts);
      }
}

/* What crosses between hosts, in bytes: N elements among H hosts that are each a subtree go once
 * out of and once into each, (H - 1) / H of them at a time; as on one host, from every process. */
static void test_hosts_traffic(void) {
  enum { ELEMENTS = 3 << 14 };
  static const struct {
    int layout, each;             /* members on a process */
    double summands, flat;        /* times N: what crosses of all_reduce's first half */
    double results, flat_results; /* and of its second */
  } wants[] = {
      {0, 1, 1, 2, 1, 2}, /* 2 + 2 */
      {0, 4, 1, 2, 1, 2}, /* of 16 members */
      {2, 1, 1, 3, 1, 3}, /* 3 + 3 */
      {4, 1, 1.25, 3, 1,
       3}, /* 2 + 6: the six are two subtrees, of which 2 / 8 go to the two's owners */
      {5, 1, 3, 6, 3, 6}, /* 2 + 2 + 2 + 2 */
      {6, 1, 1, 4, 1, 4}, /* 4 + 4 */
      {1, 1, 2, 2, 1, 2}, /* in turn: there is nothing that could be added on a host */
  };
  for (int i = 0; i < (int)(sizeof wants / sizeof *wants); i++)
    for (int op = 0; op < 2; op++)
      for (int flat = 0; flat < 2; flat++) {
        const struct layout *l = &layouts[wants[i].layout];
        collective_case c;
        collective_case_plain(
            &c, op ? TSR_OP_REDUCE_SCATTER : TSR_OP_ALL_REDUCE, l->processes * wants[i].each,
            ELEMENTS);
        c.c.to = op ? 0 : -1;
        for (int m = 0; m < c.c.members; m++) c.process_of[m] = m / wants[i].each;
        c.hosts = l->hosts;
        c.ignores_hosts = flat;
        double want = flat ? wants[i].flat : wants[i].summands;
        if (!op) want += flat ? wants[i].flat_results : wants[i].results;
        CHECK_INT(check_fake(&c, l->processes, l->hosts), (int64_t)(want * 4 * ELEMENTS));
      }
}

/* ---- what goes wrong ---- */

/* A process of four is lost; with two hosts the other one of its host may be the one whom another
 * host waits for. */
static void test_missing(bool fails, const int *hosts) {
  enum { PROCESSES = 4, LOST = 2 };
  static const tsr_op ops[] = {TSR_OP_ALL_REDUCE, TSR_OP_ALL_GATHER};
  for (int i = 0; i < 2; i++) {
    collective_case c;
    case_process parts[PROCESSES];
    tsr_transport t;
    fake_net *net = fake_net_new(PROCESSES, 3);
    collective_case_plain(&c, ops[i], PROCESSES, 4000);
    c.hosts = hosts;
    collective_case_reference(&c);
    fake_net_stop(net, LOST, fails);
    for (int w = 0; w < PROCESSES; w++) {
      fake_net_endpoint(net, w, &t);
      case_process_begin(&parts[w], &c, &t, 9, NULL);
    }
    for (int turn = 0; turn < 4000; turn++) {
      case_process *p = &parts[turn % PROCESSES];
      if (turn % PROCESSES != LOST) p->state = tsr_pending_advance(p->pending);
    }
    for (int w = 0; w < PROCESSES; w++) {
      if (w == LOST) continue;
      uint64_t missing = tsr_pending_missing(parts[w].pending);
      if (hosts && ops[i] == TSR_OP_ALL_REDUCE) {
        CHECK_AT(missing >> LOST & 1, "process %d misses %llx", w, (unsigned long long)missing);
        continue;
      }
      CHECK_INT(parts[w].state, fails ? TSR_PENDING_FAILED : TSR_PENDING);
      if (!fails) CHECK_INT((long long)missing, 1 << LOST);
      else
        CHECK_AT(
            !strcmp(
                tsr_pending_why(parts[w].pending), "receiving from process 2: process 2 is gone") ||
                !strcmp(
                    tsr_pending_why(parts[w].pending), "sending to process 2: process 2 is gone"),
            "why is '%s'", tsr_pending_why(parts[w].pending));
    }
    for (int w = 0; w < PROCESSES; w++) case_process_free(&parts[w]);
    fake_net_free(net);
    collective_case_free(&c);
  }
}

/* Two processes that do not mean the same collective. */
static void test_disagreement(void) {
  collective_case c[2];
  case_process parts[2];
  tsr_transport t;
  fake_net *net = fake_net_new(2, 3);
  for (int w = 0; w < 2; w++) {
    collective_case_plain(&c[w], TSR_OP_ALL_REDUCE, 2, 100 + 2 * w);
    collective_case_reference(&c[w]);
    fake_net_endpoint(net, w, &t);
    case_process_begin(&parts[w], &c[w], &t, 9, NULL);
  }
  CHECK(drive(parts, 2, 1));
  CHECK_INT(parts[0].state, TSR_PENDING_FAILED);
  const char *why = strstr(tsr_pending_why(parts[0].pending), "process 1: ");
  CHECK_AT(why && strstr(why, "bytes were sent"), "why is '%s'", tsr_pending_why(parts[0].pending));
  for (int w = 0; w < 2; w++) case_process_free(&parts[w]);
  fake_net_free(net);
  for (int w = 0; w < 2; w++) collective_case_free(&c[w]);
}

/* ---- a thread, or a process, for each process ---- */

enum { TIMEOUT_S = 300 };

static int
run_process(const collective_case *c, const tsr_transport *t, int tag, case_groups *groups) {
  case_process w;
  double begin = now();
  case_process_begin(&w, c, t, tag, groups);
  while (w.state == TSR_PENDING && now() - begin < TIMEOUT_S) {
    w.state = tsr_pending_advance(w.pending);
    if (w.state == TSR_PENDING) sched_yield();
  }
  if (w.state == TSR_PENDING) {
    fprintf(stderr, "%s: process %d gives up\n", c->name, t->process);
    _Exit(1);
  }
  return case_process_end(&w);
}

typedef struct {
  const collective_case *cases;
  int count;
  tsr_transport transport;
  case_groups *groups;
  int failed;
} process_thread;

static void *run_process_thread(void *context) {
  process_thread *w = context;
  for (int i = 0; i < w->count; i++)
    w->failed += run_process(&w->cases[i], &w->transport, i, w->groups);
  return NULL;
}

/* All the cases, one after the other, without a meeting between them. */
static void check_threads(
    const collective_case *cases, int count, int processes, int delay, case_groups *groups) {
  pthread_t ids[PROCESSES_MAX];
  process_thread parts[PROCESSES_MAX];
  tsr_threads *threads =
      tsr_threads_new(&(tsr_threads_options){.processes = processes, .delay = delay, .seed = 11});
  for (int w = 0; w < processes; w++) {
    parts[w] =
        (process_thread){.cases = cases, .count = count, .groups = groups ? groups + w : NULL};
    tsr_threads_endpoint(threads, w, &parts[w].transport);
    if (pthread_create(&ids[w], NULL, run_process_thread, &parts[w])) abort();
  }
  for (int w = 0; w < processes; w++) {
    pthread_join(ids[w], NULL);
    CHECK_INT(parts[w].failed, 0);
  }
  tsr_threads_free(threads);
}

/* Every other case on hosts of two processes each, or of processes in turn. */
static const int pairs[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};
static const int turns[] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
static const int *hosts_of(int i) { return i % 2 == 0 ? NULL : i % 4 == 1 ? pairs : turns; }

static void test_threads(int count_of_cases) {
  for (int processes = 2; processes <= 8; processes += processes < 4 ? 1 : 4)
    for (int delay = 0; delay <= 20; delay += 20) {
      enum { CASES = 40 };
      collective_case cases[CASES];
      for (int i = 0; i < count_of_cases; i++) {
        uint64_t seed = (uint64_t)(10000 * processes + 1000 * delay + i);
        collective_case_draw(&cases[i], seed, processes, i % 20 == 19 ? 1500000 : 5000);
        cases[i].hosts = hosts_of(i);
        collective_case_reference(&cases[i]);
      }
      check_threads(cases, count_of_cases, processes, delay, NULL);
      for (int i = 0; i < count_of_cases; i++) collective_case_free(&cases[i]);
    }
}

/* The transport's own sums, within rounding of the reference, and in another order than its. */
static void test_threads_fast(int count_of_cases) {
  enum { CASES = 60, PROCESSES = 5 };
  static case_groups groups[PROCESSES];
  collective_case cases[CASES];
  for (int i = 0; i < count_of_cases; i++) {
    collective_case_draw(&cases[i], (uint64_t)(500 + i), PROCESSES, i % 20 == 19 ? 300000 : 5000);
    collective_case_reference(&cases[i]);
  }
  check_threads(cases, count_of_cases, PROCESSES, 3, groups);
  CHECK_AT(groups[0].sums > 1000, "%lld elements were summed", (long long)groups[0].sums);
  CHECK_AT(groups[0].others > 0, "of %lld sums all are the tree's", (long long)groups[0].sums);
  for (int i = 0; i < count_of_cases; i++) collective_case_free(&cases[i]);
}

static void test_slow(void) {
  static const tsr_op ops[] = {TSR_OP_ALL_REDUCE, TSR_OP_ALL_GATHER};
  for (int i = 0; i < 2; i++) {
    collective_case c;
    collective_case_plain(&c, ops[i], 3, 16 * MEGABYTE - 16 * MEGABYTE % 3);
    collective_case_reference(&c);
    check_threads(&c, 1, 3, 0, NULL);
    collective_case_free(&c);
  }
}

static void
check_launched(collective_case *c, const tsr_transport *t, int tag, case_groups *groups) {
  collective_case_reference(c);
  CHECK_AT(!run_process(c, t, tag, groups), "%s", c->name);
  collective_case_free(c);
}

/* Everybody draws the same cases. */
static void check_all_launched(const tsr_transport *t, int cases, case_groups *groups) {
  static const int64_t counts[] = {1, 3, 1025, 300007, 4 * MEGABYTE};
  collective_case c;
  int tag = groups ? 100 : 0;
  for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++) {
    for (int hosts = 0; hosts < (groups ? 1 : 2); hosts++) {
      collective_case_plain(&c, TSR_OP_ALL_REDUCE, t->processes, counts[i]);
      c.hosts = hosts_of(hosts);
      check_launched(&c, t, tag++, groups);
    }
    if (counts[i] > MEGABYTE) break;
    collective_case_plain(&c, TSR_OP_ALL_GATHER, t->processes, counts[i] * t->processes);
    check_launched(&c, t, tag++, groups);
  }
  for (int i = 0; i < cases; i++) {
    collective_case_draw(&c, (uint64_t)(90000 + i), t->processes, i % 20 == 19 ? 1000000 : 5000);
    c.hosts = groups ? NULL : hosts_of(i);
    check_launched(&c, t, TSR_TRANSPORT_TAGS - 1 - i, groups);
  }
}

static int test_launched(int cases) {
  static case_groups groups;
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_transport t;
  if (!tsr_transport_open(arena, &t, diags)) {
    tsr_diags_print(diags, stderr);
    return tsr_diags_exit_code(diags);
  }
  if (t.process == 0) printf("%d processes, %s\n", t.processes, t.why);
  if (t.table) check_all_launched(&t, cases, NULL);
  if (t.table) check_all_launched(&t, cases, &groups);
  CHECK_AT(!t.table || groups.sums > 1000, "%lld elements", (long long)groups.sums);
  tsr_transport_close(&t);
  tsr_arena_free(arena);
  return 0;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  int wrong = 0;
  mallopt(M_MMAP_THRESHOLD, 1 << 30); /* the system zeroes what it gives, again and again */
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  if (!strcmp(mode, "launched")) wrong = test_launched(argc > 2 ? atoi(argv[2]) : 100);
  else if (!strcmp(mode, "slow")) test_slow();
  else {
    test_threads(*mode ? 10 : 40);
    test_threads_fast(*mode ? 20 : 60);
  }
  if (!*mode) {
    test_sizes();
    test_rounds();
    test_random();
    test_traffic();
    test_hosts();
    test_hosts_sizes();
    test_hosts_traffic();
    test_missing(false, NULL);
    test_missing(true, NULL);
    test_missing(false, layouts[0].hosts);
    test_disagreement();
  }
  return check_done("remote") || wrong;
}
