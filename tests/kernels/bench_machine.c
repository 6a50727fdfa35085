// SPDX-License-Identifier: Apache-2.0
/* What this machine can do at most, of which scripts/bench shows the program's share:
 *   bench_machine flops|dot|read [THREADS [ROUNDS [MIB]]]
 * flops: multiplications and additions of f32 a second, at the widest level that the program would
 * take; dot: those of GEMMs in bf16, at the level that it would take for them; read: bytes a second read from MIB of memory, which is to be much more than the caches
 * hold. Each thread keeps to one CPU of those that the process may use. Prints the level, and then
 * a line a round: 1e9 FLOP or bytes a second of all threads, by the clock of the slowest of them.
 */
#include "kernels/kernels.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const double round_seconds = 0.05;

typedef struct {
  const tsr_kernels *k;
  bool reads, dots;
  int threads, rounds;
  int64_t floats;       /* to read, of each thread */
  int64_t repeat;       /* turns or readings of a round; thread 0 decides it in the first round */
  double *rates;        /* of the rounds, by thread 0 */
  volatile float value; /* what was computed */
  pthread_barrier_t barrier;
} bench;

typedef struct {
  bench *bench;
  int index, cpu;
} thread;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The operations, or the bytes. */
static double run_round(bench *b, const float *memory) {
  float value = 0;
  double work = 4.0 * (double)b->floats * (double)b->repeat;
  if (b->dots) work = (double)b->k->limit_dot(b->repeat, &value);
  else if (!b->reads) work = (double)b->k->limit_fused(b->repeat, 0.9999f, &value);
  else
    for (int64_t i = 0; i < b->repeat; i++) value += b->k->limit_read(memory, b->floats);
  b->value = value;
  return work;
}

/* Large pages, where the system has them: what the memory can do is asked, not the page tables. */
static float *open_memory(int64_t floats) {
  size_t bytes = sizeof(float) * (size_t)floats;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "bench_machine: no memory: %zu bytes for a thread\n", bytes);
    exit(1);
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  memset(memory, 0x3f, bytes);
  return memory;
}

static void *run_thread(void *context) {
  thread *t = context;
  bench *b = t->bench;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(t->cpu, &mask);
  pthread_setaffinity_np(pthread_self(), sizeof mask, &mask);
  float *memory = b->reads ? open_memory(b->floats) : NULL;
  /* the first round only finds out how much is one */
  for (int round = -1; round < b->rounds; round++) {
    pthread_barrier_wait(&b->barrier);
    double start = now();
    double work = run_round(b, memory);
    pthread_barrier_wait(&b->barrier);
    double seconds = now() - start;
    if (t->index) continue;
    double more = round_seconds / seconds;
    if (round >= 0) b->rates[round] = 1e-9 * work * b->threads / seconds;
    else if (more > 1) b->repeat = (int64_t)((double)b->repeat * more);
  }
  if (memory) munmap(memory, sizeof(float) * (size_t)b->floats);
  return NULL;
}

/* The CPUs of the mask in turn. */
static void place_threads(bench *b, thread *threads) {
  cpu_set_t mask;
  sched_getaffinity(0, sizeof mask, &mask);
  int cpu = -1;
  for (int i = 0; i < b->threads; i++) {
    do cpu = (cpu + 1) % CPU_SETSIZE;
    while (!CPU_ISSET(cpu, &mask));
    threads[i] = (thread){b, i, cpu};
  }
}

static int usage(void) {
  fputs("usage: bench_machine flops|dot|read [THREADS [ROUNDS [MIB]]]\n", stderr);
  return 2;
}

int main(int argc, char **argv) {
  bool flops = argc > 1 && !strcmp(argv[1], "flops"), reads = argc > 1 && !strcmp(argv[1], "read"),
       dots = argc > 1 && !strcmp(argv[1], "dot");
  long threads_count = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
  long rounds = argc > 3 ? strtol(argv[3], NULL, 10) : 10;
  long mib = argc > 4 ? strtol(argv[4], NULL, 10) : 512;
  bool fits = threads_count >= 1 && threads_count <= 4096 && rounds >= 1 && rounds <= 1000000 &&
              mib >= threads_count && mib <= 1 << 24;
  if ((!flops && !reads && !dots) || !fits || argc > 5) return usage();
  bench b = {.reads = reads, .dots = dots, .threads = (int)threads_count, .rounds = (int)rounds};
  b.k = dots ? tsr_kernels_get_for_bf16() : tsr_kernels_get(NULL);
  b.floats = (int64_t)mib * (1 << 18) / b.threads / 1024 * 1024;
  b.repeat = reads ? 1 : 100000;
  b.rates = calloc((size_t)rounds, sizeof *b.rates);
  thread *threads = calloc((size_t)threads_count, sizeof *threads);
  pthread_t *handles = calloc((size_t)threads_count, sizeof *handles);
  if (!b.rates || !threads || !handles) return 1;
  pthread_barrier_init(&b.barrier, NULL, (unsigned)threads_count);
  place_threads(&b, threads);
  for (long i = 1; i < threads_count; i++)
    if (pthread_create(&handles[i], NULL, run_thread, &threads[i])) return 1;
  run_thread(&threads[0]);
  for (long i = 1; i < threads_count; i++) pthread_join(handles[i], NULL);
  printf("level %s, %d thread%s\n", b.k->isa, b.threads, b.threads > 1 ? "s" : "");
  for (long i = 0; i < rounds; i++) printf("%.3f\n", b.rates[i]);
  pthread_barrier_destroy(&b.barrier);
  free(handles);
  free(threads);
  free(b.rates);
  return 0;
}
