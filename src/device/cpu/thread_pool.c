// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/thread_pool.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* About a tenth of a millisecond: longer than a small task, shorter than what a sleeping thread
 * costs to wake. */
enum { SPINS = 2000 };

static inline void relax(void) {
#if defined __x86_64__
  __builtin_ia32_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

/* A loop's number, how many jobs it has and which is next, in one word: whoever takes a job from it
 * knows that it is this loop's, and the loop cannot end before that job is done. */
enum { JOBS_BITS = 18 };
static uint64_t ticket_of(uint64_t round, int jobs) {
  return round << 2 * JOBS_BITS | (uint64_t)jobs << JOBS_BITS;
}
static uint64_t round_of(uint64_t ticket) { return ticket >> 2 * JOBS_BITS; }
static int jobs_of(uint64_t ticket) { return (int)(ticket >> JOBS_BITS & ((1 << JOBS_BITS) - 1)); }
static int next_of(uint64_t ticket) { return (int)(ticket & ((1 << JOBS_BITS) - 1)); }

struct tsr_pool {
  int threads;
  pthread_t *handles;
  _Atomic(tsr_pool_job *) job;
  _Atomic(void *) context;
  atomic_bool stop;
  atomic_ullong ticket;
  atomic_int left; /* jobs of the loop that are not done */
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
};

/* Spins a little (loops follow each other closely), then sleeps. */
static uint64_t wait_for_round(tsr_pool *p, uint64_t seen) {
  uint64_t round = seen;
  for (int i = 0; i < SPINS && round == seen; i++, relax())
    round = round_of(atomic_load_explicit(&p->ticket, memory_order_acquire));
  if (round != seen) return round;
  pthread_mutex_lock(&p->lock);
  while ((round = round_of(atomic_load_explicit(&p->ticket, memory_order_acquire))) == seen)
    pthread_cond_wait(&p->wake, &p->lock);
  pthread_mutex_unlock(&p->lock);
  return round;
}

/* Does jobs of a loop until none is left to take; no thread waits for one that the machine gives
 * no time to. */
static void work(tsr_pool *p, uint64_t round) {
  for (;;) {
    unsigned long long ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    do {
      if (round_of(ticket) != round || next_of(ticket) >= jobs_of(ticket)) return;
    } while (!atomic_compare_exchange_weak_explicit(
        &p->ticket, &ticket, ticket + 1, memory_order_acq_rel, memory_order_acquire));
    tsr_pool_job *job = atomic_load_explicit(&p->job, memory_order_relaxed);
    job(atomic_load_explicit(&p->context, memory_order_relaxed), next_of(ticket));
    if (atomic_fetch_sub_explicit(&p->left, 1, memory_order_acq_rel) > 1) continue;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
    return;
  }
}

static void *member_main(void *argument) {
  tsr_pool *p = argument;
  for (uint64_t seen = 0;;) {
    seen = wait_for_round(p, seen);
    if (atomic_load_explicit(&p->stop, memory_order_acquire)) return NULL;
    work(p, seen);
  }
}

bool tsr_pool_open(tsr_arena *arena, int threads, tsr_pool **ret_pool, tsr_diags *diags) {
  tsr_pool *p = tsr_arena_alloc(arena, sizeof *p);
  p->handles = tsr_arena_array(arena, pthread_t, threads);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  p->threads = 1;
  for (int i = 1; i < threads; i++) {
    int error = pthread_create(&p->handles[i], NULL, member_main, p);
    if (error) {
      tsr_pool_close(p);
      return tsr_diag_failure(
          diags, TSR_NOWHERE, "cannot start thread %d of %d: %s", i + 1, threads, strerror(error));
    }
    p->threads = i + 1;
  }
  *ret_pool = p;
  return true;
}

static uint64_t start_round(tsr_pool *p, int jobs) {
  uint64_t round = round_of(atomic_load_explicit(&p->ticket, memory_order_relaxed)) + 1;
  atomic_store_explicit(&p->left, jobs, memory_order_relaxed);
  pthread_mutex_lock(&p->lock);
  atomic_store_explicit(&p->ticket, ticket_of(round, jobs), memory_order_release);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  return round;
}

void tsr_pool_close(tsr_pool *p) {
  if (!p) return;
  atomic_store_explicit(&p->stop, true, memory_order_release);
  start_round(p, 0);
  for (int i = 1; i < p->threads; i++) pthread_join(p->handles[i], NULL);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->wake);
  pthread_cond_destroy(&p->done);
}

void tsr_pool_run(tsr_pool *p, tsr_pool_job *job, void *context, int jobs) {
  if (p->threads == 1 || jobs == 1) {
    for (int j = 0; j < jobs; j++) job(context, j);
    return;
  }
  assert(jobs < 1 << JOBS_BITS);
  atomic_store_explicit(&p->job, job, memory_order_relaxed);
  atomic_store_explicit(&p->context, context, memory_order_relaxed);
  work(p, start_round(p, jobs));
  for (int i = 0; i < SPINS; i++, relax())
    if (!atomic_load_explicit(&p->left, memory_order_acquire)) return;
  pthread_mutex_lock(&p->lock);
  while (atomic_load_explicit(&p->left, memory_order_acquire))
    pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

int tsr_pool_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set)) return 1;
  int cores = CPU_COUNT(&set);
  return cores > 0 ? cores : 1;
}
