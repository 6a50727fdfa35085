/* Every collective × element × size × group shape × hosting between workers, bit for bit what one
 * worker gives.
 *   test_remote            by the fake transport, in seeded orders, and by threads
 *   test_remote threads    by threads alone, for TSan
 *   test_remote slow       64 MB, by threads
 *   test_remote launched   by the transport of the launcher (tests/comm/test_remote.sh) */
#include "../check.h"
#include "collective_case.h"
#include "comm/threads.h"
#include "fake_net.h"
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { WORKERS_MAX = 16, TURNS_MAX = 4000000 };
#define MEGABYTE (INT64_C(1) << 20)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- all workers in one thread ---- */

/* Until all are done, or nothing happens any more. */
static bool drive(case_worker *workers, int count, uint64_t seed) {
  int left = 0;
  for (int i = 0; i < count; i++) left += workers[i].state == TSR_REMOTE_PENDING;
  for (int64_t turn = 0; left && turn < TURNS_MAX; turn++) {
    case_worker *w = &workers[case_draw(&seed, (uint64_t)count)];
    if (w->state != TSR_REMOTE_PENDING) continue;
    w->state = tsr_remote_go_on(w->remote);
    left -= w->state != TSR_REMOTE_PENDING;
  }
  return !left;
}

static void check_fake(collective_case *c, int workers) {
  case_worker parts[WORKERS_MAX];
  tsr_transport t;
  fake_net *net = fake_net_new(workers, c->seed);
  int failed = 0;
  collective_case_reference(c);
  for (int w = 0; w < workers; w++) {
    fake_net_endpoint(net, w, &t);
    case_worker_begin(&parts[w], c, &t, 5);
  }
  CHECK_AT(drive(parts, workers, c->seed), "%s: not done", c->name);
  for (int w = 0; w < workers; w++) {
    CHECK_AT(
        !parts[w].remote || !tsr_remote_missing(parts[w].remote), "%s: somebody missing", c->name);
    failed += case_worker_end(&parts[w]);
  }
  CHECK_AT(!failed, "%s: %d", c->name, failed);
  CHECK_AT(!fake_net_free(net), "%s: messages that nobody took", c->name);
  collective_case_free(c);
}

static void test_random(void) {
  collective_case c;
  for (uint64_t seed = 0; seed < 2400; seed++) {
    uint64_t state = seed;
    int workers = 1 + (int)case_draw(&state, 9);
    int64_t scale = seed % 40 == 0 ? 3000000 : seed % 8 == 0 ? 200000 : 2000;
    collective_case_draw(&c, seed, workers, scale);
    check_fake(&c, workers);
  }
}

/* One element up to several chunks of each owner, and odd counts. */
static void test_sizes(void) {
  static const int64_t counts[] = {1, 2, 3, 5, 17, 1023, 1025, 131071, 131073, 1048577, 2500003};
  collective_case c;
  for (int workers = 2; workers <= 8; workers += workers < 4 ? 1 : 4)
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++) {
      collective_case_plain(&c, TSR_OP_ALL_REDUCE, workers, counts[i]);
      check_fake(&c, workers);
      collective_case_plain(&c, TSR_OP_ALL_GATHER, workers, counts[i] * workers);
      check_fake(&c, workers);
    }
}

/* More rounds than are under way at once, with several members on each worker. */
static void test_rounds(void) {
  collective_case c;
  for (uint64_t seed = 0; seed < 8; seed++) {
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, 6, 1500001);
    c.seed = seed;
    c.in_place = seed & 4;
    for (int m = 0; m < 6; m++) c.worker_of[m] = seed & 2 ? m % 2 : m / 3;
    check_fake(&c, 2);
  }
}

/* 2 N (W - 1) / W from each worker, also where several members are on each. */
static void test_traffic(void) {
  enum { WORKERS = 4, ELEMENTS = 1 << 20 };
  for (int members = WORKERS; members <= 4 * WORKERS; members *= 2) {
    collective_case c;
    case_worker parts[WORKERS];
    tsr_transport t;
    fake_net *net = fake_net_new(WORKERS, 1);
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, members, ELEMENTS);
    for (int m = 0; m < members; m++) c.worker_of[m] = m * WORKERS / members;
    collective_case_reference(&c);
    for (int w = 0; w < WORKERS; w++) {
      fake_net_endpoint(net, w, &t);
      case_worker_begin(&parts[w], &c, &t, 0);
    }
    CHECK(drive(parts, WORKERS, 7));
    for (int w = 0; w < WORKERS; w++) {
      CHECK_INT(fake_net_sent(net, w), 2 * INT64_C(4) * ELEMENTS * (WORKERS - 1) / WORKERS);
      CHECK_INT(case_worker_end(&parts[w]), 0);
    }
    CHECK_INT(fake_net_free(net), 0);
    collective_case_free(&c);
  }
}

/* ---- what goes wrong ---- */

static void test_missing(bool fails) {
  enum { WORKERS = 4, LOST = 2 };
  static const tsr_op ops[] = {TSR_OP_ALL_REDUCE, TSR_OP_ALL_GATHER};
  for (int i = 0; i < 2; i++) {
    collective_case c;
    case_worker parts[WORKERS];
    tsr_transport t;
    fake_net *net = fake_net_new(WORKERS, 3);
    collective_case_plain(&c, ops[i], WORKERS, 4000);
    collective_case_reference(&c);
    fake_net_stop(net, LOST, fails);
    for (int w = 0; w < WORKERS; w++) {
      fake_net_endpoint(net, w, &t);
      case_worker_begin(&parts[w], &c, &t, 9);
    }
    for (int turn = 0; turn < 4000; turn++) {
      case_worker *p = &parts[turn % WORKERS];
      if (turn % WORKERS != LOST) p->state = tsr_remote_go_on(p->remote);
    }
    for (int w = 0; w < WORKERS; w++) {
      if (w == LOST) continue;
      CHECK_INT(parts[w].state, fails ? TSR_REMOTE_FAILED : TSR_REMOTE_PENDING);
      if (!fails) CHECK_INT((long long)tsr_remote_missing(parts[w].remote), 1 << LOST);
      else
        CHECK_AT(
            !strcmp(tsr_remote_why(parts[w].remote), "receiving from worker 2: worker 2 is gone") ||
                !strcmp(tsr_remote_why(parts[w].remote), "sending to worker 2: worker 2 is gone"),
            "why is '%s'", tsr_remote_why(parts[w].remote));
    }
    for (int w = 0; w < WORKERS; w++) case_worker_free(&parts[w]);
    fake_net_free(net);
    collective_case_free(&c);
  }
}

/* Two workers that do not mean the same collective. */
static void test_disagreement(void) {
  collective_case c[2];
  case_worker parts[2];
  tsr_transport t;
  fake_net *net = fake_net_new(2, 3);
  for (int w = 0; w < 2; w++) {
    collective_case_plain(&c[w], TSR_OP_ALL_REDUCE, 2, 100 + 2 * w);
    collective_case_reference(&c[w]);
    fake_net_endpoint(net, w, &t);
    case_worker_begin(&parts[w], &c[w], &t, 9);
  }
  CHECK(drive(parts, 2, 1));
  CHECK_INT(parts[0].state, TSR_REMOTE_FAILED);
  const char *why = strstr(tsr_remote_why(parts[0].remote), "worker 1: ");
  CHECK_AT(why && strstr(why, "bytes were sent"), "why is '%s'", tsr_remote_why(parts[0].remote));
  for (int w = 0; w < 2; w++) case_worker_free(&parts[w]);
  fake_net_free(net);
  for (int w = 0; w < 2; w++) collective_case_free(&c[w]);
}

/* ---- a thread, or a process, for each worker ---- */

enum { PATIENCE_S = 300 };

static int run_worker(const collective_case *c, const tsr_transport *t, int tag) {
  case_worker w;
  double begin = now();
  case_worker_begin(&w, c, t, tag);
  while (w.state == TSR_REMOTE_PENDING && now() - begin < PATIENCE_S) {
    w.state = tsr_remote_go_on(w.remote);
    if (w.state == TSR_REMOTE_PENDING) sched_yield();
  }
  if (w.state == TSR_REMOTE_PENDING) {
    fprintf(stderr, "%s: worker %d gives up\n", c->name, t->worker);
    _Exit(1);
  }
  return case_worker_end(&w);
}

typedef struct {
  const collective_case *cases;
  int count;
  tsr_transport transport;
  int failed;
} worker_thread;

static void *run_worker_thread(void *context) {
  worker_thread *w = context;
  for (int i = 0; i < w->count; i++) w->failed += run_worker(&w->cases[i], &w->transport, i);
  return NULL;
}

/* All the cases, one after the other, without a meeting between them. */
static void check_threads(const collective_case *cases, int count, int workers, int delay) {
  pthread_t ids[WORKERS_MAX];
  worker_thread parts[WORKERS_MAX];
  tsr_threads *threads =
      tsr_threads_new(&(tsr_threads_options){.workers = workers, .delay = delay, .seed = 11});
  for (int w = 0; w < workers; w++) {
    parts[w] = (worker_thread){.cases = cases, .count = count};
    tsr_threads_endpoint(threads, w, &parts[w].transport);
    if (pthread_create(&ids[w], NULL, run_worker_thread, &parts[w])) abort();
  }
  for (int w = 0; w < workers; w++) {
    pthread_join(ids[w], NULL);
    CHECK_INT(parts[w].failed, 0);
  }
  tsr_threads_free(threads);
}

static void test_threads(int count_of_cases) {
  for (int workers = 2; workers <= 8; workers += workers < 4 ? 1 : 4)
    for (int delay = 0; delay <= 20; delay += 20) {
      enum { CASES = 40 };
      collective_case cases[CASES];
      for (int i = 0; i < count_of_cases; i++) {
        uint64_t seed = (uint64_t)(10000 * workers + 1000 * delay + i);
        collective_case_draw(&cases[i], seed, workers, i % 20 == 19 ? 1500000 : 5000);
        collective_case_reference(&cases[i]);
      }
      check_threads(cases, count_of_cases, workers, delay);
      for (int i = 0; i < count_of_cases; i++) collective_case_free(&cases[i]);
    }
}

static void test_slow(void) {
  static const tsr_op ops[] = {TSR_OP_ALL_REDUCE, TSR_OP_ALL_GATHER};
  for (int i = 0; i < 2; i++) {
    collective_case c;
    collective_case_plain(&c, ops[i], 3, 16 * MEGABYTE - 16 * MEGABYTE % 3);
    collective_case_reference(&c);
    check_threads(&c, 1, 3, 0);
    collective_case_free(&c);
  }
}

static void check_launched(collective_case *c, const tsr_transport *t, int tag) {
  collective_case_reference(c);
  CHECK_AT(!run_worker(c, t, tag), "%s", c->name);
  collective_case_free(c);
}

/* Everybody draws the same cases. */
static int test_launched(int cases) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_transport t;
  if (!tsr_transport_open(arena, &t, diags)) {
    tsr_diags_print(diags, stderr);
    return tsr_diags_exit_code(diags);
  }
  if (t.worker == 0) printf("%d workers, %s\n", t.workers, t.why);
  static const int64_t counts[] = {1, 3, 1025, 300007, 4 * MEGABYTE};
  collective_case c;
  int tag = 0;
  for (int i = 0; i < (int)(sizeof counts / sizeof *counts) && t.table; i++) {
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, t.workers, counts[i]);
    check_launched(&c, &t, tag++);
    if (counts[i] > MEGABYTE) break;
    collective_case_plain(&c, TSR_OP_ALL_GATHER, t.workers, counts[i] * t.workers);
    check_launched(&c, &t, tag++);
  }
  for (int i = 0; i < cases; i++) {
    collective_case_draw(&c, (uint64_t)(90000 + i), t.workers, i % 20 == 19 ? 1000000 : 5000);
    check_launched(&c, &t, TSR_TRANSPORT_TAGS - 1 - i);
  }
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
  else test_threads(*mode ? 10 : 40);
  if (!*mode) {
    test_sizes();
    test_rounds();
    test_random();
    test_traffic();
    test_missing(false);
    test_missing(true);
    test_disagreement();
  }
  return check_done("remote") || wrong;
}
