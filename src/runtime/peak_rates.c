// SPDX-License-Identifier: Apache-2.0
#include "runtime/peak_rates.h"
#include "base/memory.h"
#include "base/text.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 8, FLOATS = 16 << 20, TURNS = 1 << 20 };

typedef struct {
  const tsr_kernels *k;
  int64_t flops;     /* of one job */
  float *memory;     /* of all threads */
  int64_t floats;    /* of each */
  _Atomic float sum; /* of no use; so that the compiler leaves nothing out */
} measuring;

static void run_fused(void *context, int job) {
  measuring *m = context;
  float sum;
  int64_t flops = m->k->limit_fused(TURNS, 0.9999f, &sum);
  m->sum = sum;
  if (!job) m->flops = flops;
}

static void run_dot(void *context, int job) {
  measuring *m = context;
  float sum;
  int64_t flops = m->k->limit_dot(TURNS / 8, &sum);
  m->sum = sum;
  if (!job) m->flops = flops;
}

static void run_touch(void *context, int job) {
  measuring *m = context;
  memset(m->memory + job * m->floats, 1, sizeof(float) * (size_t)m->floats);
}

static void run_read(void *context, int job) {
  measuring *m = context;
  m->sum = m->k->limit_read(m->memory + job * m->floats, m->floats);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double least_seconds(tsr_pool *pool, tsr_pool_job *job, measuring *m, int threads) {
  double least = 1e30;
  for (int i = 0; i < ROUNDS; i++) {
    double begin = now();
    tsr_pool_run(pool, job, m, threads);
    double seconds = now() - begin;
    if (seconds < least) least = seconds;
  }
  return least;
}

void tsr_peak_rates_measure_on(
    tsr_pool *pool, const tsr_kernels *k, int threads, float *memory, int64_t floats,
    tsr_peak_rates *ret_limits) {
  measuring m = {.k = k, .memory = memory, .floats = floats};
  double bytes = sizeof(float) * (double)floats * threads;
  ret_limits->bytes = bytes / least_seconds(pool, run_read, &m, threads);
  double seconds = least_seconds(pool, run_fused, &m, threads);
  ret_limits->flops = (double)m.flops * threads / seconds;
  seconds = least_seconds(pool, run_dot, &m, threads);
  ret_limits->dot_flops = (double)m.flops * threads / seconds;
}

static bool
measure(tsr_pool *pool, const tsr_kernels *k, int threads, tsr_peak_rates *ret, tsr_diags *diags) {
  size_t bytes = sizeof(float) * FLOATS * (size_t)threads;
  void *memory = tsr_memory_map(bytes);
  if (!memory)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "cannot allocate %s to measure how fast memory is read: %s",
        tsr_text_bytes((int64_t)bytes).text, strerror(errno));
  madvise(memory, bytes, MADV_HUGEPAGE);
  measuring m = {.k = k, .memory = memory, .floats = FLOATS};
  tsr_pool_run(pool, run_touch, &m, threads);
  tsr_peak_rates_measure_on(pool, k, threads, memory, FLOATS, ret);
  munmap(memory, bytes);
  return true;
}

bool tsr_peak_rates_measure(
    const tsr_kernels *k, int threads, tsr_peak_rates *ret_limits, tsr_diags *diags) {
  tsr_arena *arena = tsr_arena_new();
  tsr_pool *pool;
  *ret_limits = (tsr_peak_rates){0};
  bool ok = tsr_pool_open(arena, threads, &pool, diags);
  if (ok) {
    ok = measure(pool, k, threads, ret_limits, diags);
    tsr_pool_close(pool);
  }
  tsr_arena_free(arena);
  return ok;
}

double tsr_peak_rates_share(const tsr_peak_rates *l, double flops, double bytes, double seconds) {
  if (l->flops <= 0 || l->bytes <= 0 || seconds <= 0) return 0;
  double by_flops = flops / l->flops, by_bytes = bytes / l->bytes;
  return (by_flops > by_bytes ? by_flops : by_bytes) / seconds;
}
