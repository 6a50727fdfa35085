/* Not a test: all-reduce in the tree's order against the library's own, in turn, on the workers of
 * one launcher.
 *   mpirun -n 4 bench_collectives [BYTES (16 MiB)] [ROUNDS (20)]
 * Prints of each the median and the best time, and the quotients. A round's time is the slowest
 * worker's: everybody begins together. */
#include "base/arena.h"
#include "comm/remote.h"
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
  fprintf(stderr, "worker %d: %s\n", t->worker, why);
  t->table->abort(t->state, 1);
}

static void library_all_reduce(const tsr_transport *t, float *numbers, int64_t count) {
  char why[TSR_WHY_BYTES] = "";
  if (!t->table->all_reduce(t->state, numbers, count, why)) stop(t, why);
}

typedef struct {
  tsr_remote_call call;
  tsr_collective collective;
  float *in[64];
  int worker_of[64];
  void *staging;
} tree;

static void tree_prepare(tree *r, tsr_transport *t, float *numbers, int64_t count) {
  *r = (tree){
      .collective = {
          .op = TSR_OP_ALL_REDUCE,
          .members = t->workers,
          .groups = 1,
          .ndim = 1,
          .shape = {count},
          .from = -1,
          .to = -1,
          .element = 4}};
  for (int w = 0; w < t->workers; w++) r->worker_of[w] = w;
  r->in[t->worker] = numbers;
  r->collective.in = r->collective.out = r->in;
  r->collective.k = tsr_kernels_get(NULL);
  r->call = (tsr_remote_call){t, &r->collective, r->worker_of, 1, NULL, NULL, 1};
  int64_t bytes = tsr_remote_bytes(&r->call);
  r->staging = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
  if (!r->staging) stop(t, "no memory");
  memset(r->staging, 0, (size_t)bytes);
}

static void tree_all_reduce(tree *r) {
  tsr_remote *remote = tsr_remote_begin(&r->call, r->staging);
  tsr_remote_state state;
  while ((state = tsr_remote_go_on(remote)) == TSR_REMOTE_PENDING) sched_yield();
  if (state == TSR_REMOTE_FAILED) stop(r->call.transport, tsr_remote_why(remote));
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The slowest worker's, by a sum of one number for each worker. */
static double slowest(const tsr_transport *t, double ms) {
  float each[64] = {0};
  double most = 0;
  each[t->worker] = (float)ms;
  library_all_reduce(t, each, t->workers);
  for (int w = 0; w < t->workers; w++)
    if (each[w] > most) most = each[w];
  return most;
}

int main(int argc, char **argv) {
  enum { ROUNDS_MAX = 1000 };
  static double ms[2][ROUNDS_MAX];
  int64_t count = (argc > 1 ? atoll(argv[1]) : INT64_C(16) << 20) / 4;
  int rounds = argc > 2 ? atoi(argv[2]) : 20;
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_transport t;
  if (!tsr_transport_open(arena, &t, diags) || !t.table || t.workers > 64) {
    tsr_diags_print(diags, stderr);
    fprintf(stderr, "run it by mpirun, with 2 to 64 workers\n");
    return 1;
  }
  float *numbers = aligned_alloc(64, (size_t)(count + 16) / 16 * 64);
  if (!numbers) stop(&t, "no memory");
  tree r;
  tree_prepare(&r, &t, numbers, count);
  if (rounds > ROUNDS_MAX) rounds = ROUNDS_MAX;
  for (int i = -2; i < 2 * rounds; i++) {
    int which = i & 1;
    for (int64_t k = 0; k < count; k++) numbers[k] = (float)(k % 1000) * 1e-3f;
    slowest(&t, 0);
    double begin = now();
    if (which) tree_all_reduce(&r);
    else library_all_reduce(&t, numbers, count);
    double took = slowest(&t, (now() - begin) * 1e3);
    if (i >= 0) ms[which][i / 2] = took;
  }
  for (int which = 0; which < 2; which++) qsort(ms[which], (size_t)rounds, sizeof(double), compare);
  if (t.worker == 0)
    printf(
        "%s, %lld bytes among %d workers, %d rounds: its own %.2f ms (best %.2f), the tree %.2f ms "
        "(best %.2f): %.2f times (best %.2f)\n",
        t.why, (long long)count * 4, t.workers, rounds, ms[0][rounds / 2], ms[0][0],
        ms[1][rounds / 2], ms[1][0], ms[1][rounds / 2] / ms[0][rounds / 2], ms[1][0] / ms[0][0]);
  free(numbers);
  free(r.staging);
  tsr_transport_close(&t);
  tsr_arena_free(arena);
  return 0;
}
