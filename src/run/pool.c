#include "run/pool.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
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

typedef struct {
  tsr_pool *pool;
  int index;
} member;

struct tsr_pool {
  int threads;
  pthread_t *handles;
  tsr_pool_job *job;
  void *context;
  int jobs;
  bool stop;
  atomic_uint round; /* grows by one with every loop */
  atomic_int busy;   /* members still in the loop */
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
};

/* Spins a little (loops follow each other closely), then sleeps. */
static void wait_for_round(tsr_pool *p, unsigned seen) {
  for (int i = 0; i < SPINS; i++, relax())
    if (atomic_load_explicit(&p->round, memory_order_acquire) != seen) return;
  pthread_mutex_lock(&p->lock);
  while (atomic_load_explicit(&p->round, memory_order_acquire) == seen)
    pthread_cond_wait(&p->wake, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

static void *member_main(void *argument) {
  member *m = argument;
  tsr_pool *p = m->pool;
  for (unsigned seen = 0;; seen++) {
    wait_for_round(p, seen);
    if (p->stop) return NULL;
    for (int j = m->index; j < p->jobs; j += p->threads) p->job(p->context, j);
    if (atomic_fetch_sub_explicit(&p->busy, 1, memory_order_acq_rel) == 1) {
      pthread_mutex_lock(&p->lock);
      pthread_cond_signal(&p->done);
      pthread_mutex_unlock(&p->lock);
    }
  }
}

bool tsr_pool_open(tsr_arena *arena, int threads, tsr_pool **ret_pool, tsr_diags *diags) {
  tsr_pool *p = tsr_arena_alloc(arena, sizeof *p);
  p->handles = tsr_arena_array(arena, pthread_t, threads);
  member *members = tsr_arena_array(arena, member, threads);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  p->threads = 1;
  for (int i = 1; i < threads; i++) {
    members[i] = (member){p, i};
    int error = pthread_create(&p->handles[i], NULL, member_main, &members[i]);
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

static void start_round(tsr_pool *p) {
  atomic_store_explicit(&p->busy, p->threads - 1, memory_order_relaxed);
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add_explicit(&p->round, 1, memory_order_release);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
}

void tsr_pool_close(tsr_pool *p) {
  if (!p) return;
  p->stop = true;
  start_round(p);
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
  p->job = job;
  p->context = context;
  p->jobs = jobs;
  start_round(p);
  for (int j = 0; j < jobs; j += p->threads) job(context, j);
  for (int i = 0; i < SPINS; i++, relax())
    if (!atomic_load_explicit(&p->busy, memory_order_acquire)) return;
  pthread_mutex_lock(&p->lock);
  while (atomic_load_explicit(&p->busy, memory_order_acquire))
    pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

int tsr_pool_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set)) return 1;
  int cores = CPU_COUNT(&set);
  return cores > 0 ? cores : 1;
}
