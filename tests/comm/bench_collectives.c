// SPDX-License-Identifier: Apache-2.0
/* Not a test: all-reduce in the order of a tree, in shared memory and by its two algorithms with
 * messages, and by a group's sum (policy fast), against the library's own, in turn, on the
 * processes of one launcher. mpirun -n 4 bench_collectives [BYTES (16 MiB)] [ROUNDS (20)]
 * Prints of each the median, the middle half and the best time, and the quotients of median and
 * best with the library's. A round's time is the slowest process's: everybody begins together. */
#include "base/arena.h"
#include "comm/algorithm.h"
#include "comm/bootstrap.h"
#include "comm/engine_transport.h"
#include "comm/peer_memory.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop(const tsr_transport *t, const char *why) {
  fprintf(stderr, "process %d: %s\n", t->process, why);
  t->table->abort(t->state, 1);
}

static void library_all_reduce(const tsr_transport *t, float *numbers, int64_t count) {
  char why[TSR_WHY_BYTES] = "";
  if (!t->table->all_reduce(t->state, numbers, count, why)) stop(t, why);
}

typedef struct {
  tsr_pending_call call;
  tsr_collective collective;
  float *in[64];
  int process_of[64];
  void *staging;
} remote;

typedef struct {
  const char *name;
  bool shared, fast, ring;
  tsr_tree_shape tree;
} kind;

/* The first one is the library's own call. */
static const kind kinds[] = {
    {.name = "its own"},
    {.name = "shared", .shared = true},
    {.name = "tree"},
    {.name = "ring", .ring = true},
    {.name = "flat, tree", .tree = TSR_TREE_FLAT},
    {.name = "flat, ring", .tree = TSR_TREE_FLAT, .ring = true},
    {.name = "fast", .fast = true},
};

static void remote_prepare(
    tsr_arena *arena, remote *r, tsr_transport *t, float *const *numbers, int64_t count,
    const kind *k, void *group) {
  *r = (remote){
      .collective = {
          .op = TSR_OP_ALL_REDUCE,
          .members = t->processes,
          .groups = 1,
          .ndim = 1,
          .shape = {count},
          .from = -1,
          .to = -1,
          .tree = k->tree,
          .element = 4}};
  for (int w = 0; w < t->processes; w++) r->process_of[w] = w;
  memcpy((void *)r->in, (const void *)numbers, sizeof *numbers * (size_t)t->processes);
  r->collective.in = r->collective.out = r->in;
  r->collective.k = tsr_kernels_get(NULL);
  tsr_collective_request request = {
      .collective = &r->collective, .library = k->fast, .ring = k->ring, .shared = k->shared};
  request.layout = tsr_layout_new(arena, t->processes, r->process_of, NULL, t->process);
  r->call = (tsr_pending_call){
      .transport = t,
      .list = tsr_algorithm_plan(arena, &request),
      .layout = request.layout,
      .collective = &r->collective,
      .tag = 1,
      .group = k->fast ? group : NULL,
      .threads = 1};
  int64_t bytes = tsr_pending_bytes(r->call.list, t->processes);
  r->staging = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
  if (!r->staging) stop(t, "no memory");
  memset(r->staging, 0, (size_t)bytes);
}

static void remote_all_reduce(remote *r) {
  tsr_pending *begun = tsr_pending_begin(&r->call, r->staging);
  tsr_pending_state state;
  while ((state = tsr_pending_advance(begun)) == TSR_PENDING) sched_yield();
  if (state == TSR_PENDING_FAILED) stop(r->call.transport, tsr_pending_why(begun));
}

static void *form_group(const tsr_transport *t) {
  int processes[64];
  char why[TSR_WHY_BYTES] = "";
  void *group = NULL;
  for (int w = 0; w < t->processes; w++) processes[w] = w;
  if (!t->table->form(t->state, processes, t->processes, &group, why)) stop(t, why);
  return group;
}

/* Every process's tensor, at an address of this one's. */
static void share_numbers(tsr_transport *t, int64_t bytes, float **ret) {
  char why[TSR_WHY_BYTES] = "";
  tsr_shared_memory own;
  tsr_peer_block others[64] = {0};
  tsr_arena *arena = tsr_arena_new(); /* who the processes are is only needed here */
  void *numbers = tsr_shared_memory_new(bytes, &own);
  if (!tsr_peers_exchange(arena, t, 60, why) ||
      !tsr_peer_memory_map(t, NULL, &own, 1, numbers != NULL, others, 60, why) || *why)
    stop(t, why);
  for (int w = 0; w < t->processes; w++) ret[w] = w == t->process ? numbers : others[w].memory;
  t->peers = NULL;
  tsr_arena_free(arena);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The slowest process's, by a sum of one number for each process. */
static double slowest(const tsr_transport *t, double ms) {
  float each[64] = {0};
  double most = 0;
  each[t->process] = (float)ms;
  library_all_reduce(t, each, t->processes);
  for (int w = 0; w < t->processes; w++)
    if (each[w] > most) most = each[w];
  return most;
}

int main(int argc, char **argv) {
  enum { ROUNDS_MAX = 1000, KINDS = sizeof kinds / sizeof *kinds };
  static double ms[KINDS][ROUNDS_MAX];
  int64_t count = (argc > 1 ? atoll(argv[1]) : INT64_C(16) << 20) / 4;
  int rounds = argc > 2 ? atoi(argv[2]) : 20;
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_transport t;
  if (!tsr_transport_open(arena, &t, diags) || !t.table || t.processes > 64) {
    tsr_diags_print(diags, stderr);
    fprintf(stderr, "run it by mpirun, with 2 to 64 processes\n");
    return 1;
  }
  float *all[64] = {0};
  share_numbers(&t, (count + 16) / 16 * 64, all);
  /* The library's own call has no use for shared memory. */
  float *private = aligned_alloc(64, (size_t)(count + 16) / 16 * 64);
  if (!private) stop(&t, "no memory");
  static remote r[KINDS];
  void *group = form_group(&t);
  for (int k = 1; k < KINDS; k++) remote_prepare(arena, &r[k], &t, all, count, &kinds[k], group);
  if (rounds > ROUNDS_MAX) rounds = ROUNDS_MAX;
  for (int i = 0; i < KINDS * (rounds + 1); i++) {
    int which = i % KINDS;
    float *numbers = which ? all[t.process] : private;
    for (int64_t k = 0; k < count; k++) numbers[k] = (float)(k % 1000) * 1e-3f;
    slowest(&t, 0);
    double begin = now();
    if (which) remote_all_reduce(&r[which]);
    else library_all_reduce(&t, numbers, count);
    double took = slowest(&t, (now() - begin) * 1e3);
    if (i >= KINDS) ms[which][i / KINDS - 1] = took; /* the first round is not counted */
  }
  for (int k = 0; k < KINDS; k++) qsort(ms[k], (size_t)rounds, sizeof(double), compare);
  if (t.process == 0)
    printf(
        "%s, %lld bytes among %d processes, %d rounds\n", t.why, (long long)count * 4, t.processes,
        rounds);
  for (int k = 0; k < KINDS && t.process == 0; k++)
    printf(
        "%-10s  %8.2f ms (%.2f to %.2f), best %8.2f: %5.2f times, best %5.2f\n", kinds[k].name,
        ms[k][rounds / 2], ms[k][rounds / 4], ms[k][rounds * 3 / 4], ms[k][0],
        ms[k][rounds / 2] / ms[0][rounds / 2], ms[k][0] / ms[0][0]);
  free(private);
  for (int k = 1; k < KINDS; k++) free(r[k].staging);
  tsr_transport_close(&t);
  tsr_arena_free(arena);
  return 0;
}
