// SPDX-License-Identifier: Apache-2.0
/* All-reduces in which each process reads and writes the others' tensors, bit for bit what one
 * process gives.
 *   test_shared_sum            in one process, by the fake transport, in seeded orders
 *   test_shared_sum launched   by the transport of the launcher, in memory that its processes map
 *                              (tests/comm/test_remote.sh) */
#include "../check.h"
#include "collective_case.h"
#include "comm/bootstrap.h"
#include "comm/peer_memory.h"
#include "fake_net.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 8, TURNS_MAX = 100000, REGION_BYTES = 32 << 20 };

/* All-reduces of all kinds: the seeds that give one. */
static bool draw(collective_case *c, uint64_t seed, int processes, int64_t scale) {
  collective_case_draw(c, seed, processes, scale);
  if (c->c.op != TSR_OP_ALL_REDUCE) return false;
  c->ring = false;
  return true;
}

static void begin_regions(collective_case *c, int processes, char **regions) {
  for (int w = 0; w < processes; w++) {
    int64_t bytes = collective_case_shared_bytes(c, w);
    regions[w] = aligned_alloc(64, (size_t)bytes + 64);
    if (!regions[w]) abort();
  }
  c->regions = regions;
}

static void end_regions(int processes, char **regions) {
  for (int w = 0; w < processes; w++) free(regions[w]);
}

static void check_fake(collective_case *c, int processes) {
  case_process parts[PROCESSES_MAX];
  char *regions[PROCESSES_MAX];
  tsr_transport t;
  fake_net *net = fake_net_new(processes, c->seed);
  uint64_t seed = c->seed;
  int left = 0, failed = 0;
  begin_regions(c, processes, regions);
  collective_case_reference(c);
  for (int w = 0; w < processes; w++) {
    fake_net_endpoint(net, w, &t);
    case_process_begin(&parts[w], c, &t, 5, NULL);
    left += parts[w].state == TSR_PENDING;
  }
  for (int turn = 0; left && turn < TURNS_MAX; turn++) {
    case_process *w = &parts[case_draw(&seed, (uint64_t)processes)];
    if (w->state != TSR_PENDING) continue;
    w->state = tsr_pending_advance(w->pending);
    left -= w->state != TSR_PENDING;
  }
  CHECK_AT(!left, "%s: not done", c->name);
  for (int w = 0; w < processes; w++) /* two messages to each other process */
    CHECK_AT(
        fake_net_sent(net, w) <= (processes - 1) * 2 * c->c.element, "%s: process %d sent %lld",
        c->name, w, (long long)fake_net_sent(net, w));
  for (int w = 0; w < processes; w++) failed += case_process_end(&parts[w]);
  CHECK_AT(!failed, "%s: %d", c->name, failed);
  CHECK_AT(!fake_net_free(net), "%s: messages that nobody took", c->name);
  collective_case_free(c);
  end_regions(processes, regions);
}

static void test_random(void) {
  collective_case c;
  int drawn = 0;
  for (uint64_t seed = 0; seed < 1500; seed++) {
    int processes = 1 + (int)(seed % PROCESSES_MAX);
    if (draw(&c, seed, processes, seed % 60 == 0 ? 300000 : seed % 7 == 0 ? 40000 : 2000))
      check_fake(&c, processes), drawn++;
  }
  CHECK_AT(drawn > 100, "%d all-reduces were drawn", drawn);
}

/* Of no piece for some, of one page for each, and between. */
static void test_sizes(void) {
  static const int64_t counts[] = {1, 2, 1023, 1024, 1025, 4096, 4097, 131073};
  collective_case c;
  for (int processes = 2; processes <= 5; processes++)
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++) {
      collective_case_plain(&c, TSR_OP_ALL_REDUCE, processes, counts[i]);
      check_fake(&c, processes);
    }
}

/* A process of three is lost: none of the others ends, and they name it. */
static void test_missing(bool fails) {
  enum { PROCESSES = 3, LOST = 1 };
  collective_case c;
  case_process parts[PROCESSES];
  char *regions[PROCESSES];
  tsr_transport t;
  fake_net *net = fake_net_new(PROCESSES, 3);
  collective_case_plain(&c, TSR_OP_ALL_REDUCE, PROCESSES, 40000);
  begin_regions(&c, PROCESSES, regions);
  collective_case_reference(&c);
  fake_net_stop(net, LOST, fails);
  for (int w = 0; w < PROCESSES; w++) {
    fake_net_endpoint(net, w, &t);
    case_process_begin(&parts[w], &c, &t, 9, NULL);
  }
  for (int turn = 0; turn < 4000; turn++) {
    case_process *p = &parts[turn % PROCESSES];
    if (turn % PROCESSES != LOST && p->state == TSR_PENDING)
      p->state = tsr_pending_advance(p->pending);
  }
  for (int w = 0; w < PROCESSES; w++) {
    if (w == LOST) continue;
    const char *why = tsr_pending_why(parts[w].pending);
    CHECK_INT(parts[w].state, fails ? TSR_PENDING_FAILED : TSR_PENDING);
    if (fails) CHECK_AT(strstr(why, "process 1: process 1 is gone"), "why is '%s'", why);
    else CHECK_INT((long long)tsr_pending_missing(parts[w].pending), 1 << LOST);
  }
  for (int w = 0; w < PROCESSES; w++) case_process_free(&parts[w]);
  fake_net_free(net);
  collective_case_free(&c);
  end_regions(PROCESSES, regions);
}

/* ---- memory of another process ---- */

/* What a child writes is here; a descriptor of other memory, and none, are refused. */
static void test_memory(void) {
  tsr_shared_memory own, other;
  char *memory = tsr_shared_memory_new(3 * 4096, &own);
  CHECK(memory && own.file >= 0 && own.pid == getpid());
  void *second = tsr_shared_memory_new(4096, &other);
  int written = 0;
  for (int i = 0; i < 3 * 4096; i++) written += memory[i] != 0;
  CHECK_INT(written, 0);
  pid_t child = fork();
  if (child == 0) {
    char *mapped = tsr_shared_memory_map(&own);
    if (!mapped || mapped == memory || mapped[7]) _exit(1);
    mapped[2 * 4096 + 5] = 42;
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_INT(memory[2 * 4096 + 5], 42);
  tsr_shared_memory wrong = own;
  wrong.file = other.file;
  errno = 0;
  CHECK(!tsr_shared_memory_map(&wrong) && errno == ESRCH);
  wrong = own;
  wrong.pid = child; /* which has ended */
  errno = 0;
  CHECK(!tsr_shared_memory_map(&wrong) && errno == ENOENT);
  tsr_shared_memory_close(&own);
  tsr_shared_memory_close(&other);
  CHECK_INT(memory[2 * 4096 + 5], 42);
  munmap(memory, 3 * 4096);
  munmap(second, 4096);
}

/* ---- under a launcher ---- */

static int run_process(const collective_case *c, const tsr_transport *t, int tag) {
  case_process w;
  case_process_begin(&w, c, t, tag, NULL);
  while (w.state == TSR_PENDING) {
    w.state = tsr_pending_advance(w.pending);
    if (w.state == TSR_PENDING) sched_yield();
  }
  return case_process_end(&w);
}

static void check_launched(collective_case *c, const tsr_transport *t, char **regions, int tag) {
  c->regions = regions;
  if (collective_case_shared_bytes(c, t->process) > REGION_BYTES) abort();
  collective_case_reference(c);
  CHECK_AT(!run_process(c, t, tag), "%s", c->name);
  collective_case_free(c);
}

/* One that cannot share its memory: all do without, and know why. */
static void check_refused(const tsr_transport *t) {
  tsr_shared_memory own;
  tsr_peer_block blocks[PROCESSES_MAX] = {0};
  char why[TSR_WHY_BYTES] = "";
  void *memory = tsr_shared_memory_new(4096, &own);
  bool answered = tsr_peer_memory_map(t, NULL, &own, 1, t->process != 1, blocks, 60, why);
  CHECK(memory && answered);
  for (int w = 0; w < t->processes; w++) CHECK(!blocks[w].memory);
  CHECK_AT(!strcmp(why, "process 1 has no shared memory"), "why is '%s'", why);
  munmap(memory, 4096);
}

static int test_launched(void) {
  static const int64_t counts[] = {1, 3, 1025, 300007, 1 << 20};
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_transport t;
  tsr_shared_memory own;
  tsr_peer_block blocks[PROCESSES_MAX] = {0};
  char *regions[PROCESSES_MAX], why[TSR_WHY_BYTES] = "";
  if (!tsr_transport_open(arena, &t, diags) || !t.table || t.processes > PROCESSES_MAX) {
    tsr_diags_print(diags, stderr);
    return 1;
  }
  if (t.process == 0) printf("%d processes, %s\n", t.processes, t.why);
  void *memory = tsr_shared_memory_new(REGION_BYTES, &own);
  bool mapped = tsr_peer_memory_map(&t, NULL, &own, 1, memory != NULL, blocks, 60, why);
  CHECK_AT(mapped && !*why, "why is '%s'", why);
  for (int w = 0; w < t.processes; w++) regions[w] = w == t.process ? memory : blocks[w].memory;
  collective_case c;
  int tag = 0;
  for (int i = 0; mapped && i < (int)(sizeof counts / sizeof *counts); i++) {
    collective_case_plain(&c, TSR_OP_ALL_REDUCE, t.processes, counts[i]);
    check_launched(&c, &t, regions, tag++);
  }
  for (uint64_t seed = 0; mapped && seed < 400; seed++)
    if (draw(&c, 70000 + seed, t.processes, seed % 50 == 0 ? 200000 : 5000))
      check_launched(&c, &t, regions, tag++);
  check_refused(&t);
  tsr_transport_close(&t);
  tsr_arena_free(arena);
  return check_done("remote");
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "launched")) return test_launched();
  test_memory();
  test_random();
  test_sizes();
  test_missing(false);
  test_missing(true);
  return check_done("shared_sum");
}
