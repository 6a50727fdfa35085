// SPDX-License-Identifier: Apache-2.0
#include "cli/kernel_bench/bench.h"
#include "cli/kernel_bench/cache_sizes.h"
#include "device/cpu/thread_pool.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* A round is so many calls that a clock can tell its time; the least of the rounds counts. */
static const double round_seconds = 2e-3, all_seconds = 0.06;
enum { ROUNDS_LEAST = 5, LINE = 64, PAGE = 4096, LIMIT_FLOATS = 16 << 20 };

typedef struct {
  const tsr_bench_case *what;
  bool is_large;
} chosen;

struct tsr_bench {
  const tsr_kernels *k;
  tsr_pool *pool;
  int threads;
  tsr_bench_caches caches;
  chosen *cases;
  int count, capacity;
  /* of each thread */
  tsr_bench_call *calls;
  char *memory; /* for the largest case */
  int64_t memory_bytes;
  float *limit_memory;
  int64_t limit_floats;

  tsr_peak_rates before; /* as measured after the row before */
  int64_t repeat;        /* calls of a round */
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- which cases ---- */

static void choose_case(tsr_arena *arena, tsr_bench *b, const tsr_bench_case *what, bool is_large) {
  tsr_arena_grow(arena, (void **)&b->cases, sizeof *b->cases, b->count, &b->capacity);
  b->cases[b->count++] = (chosen){what, is_large};
}

static void choose_cases(tsr_arena *arena, tsr_bench *b, const char *filter) {
  for (const tsr_bench_group *const *g = tsr_bench_groups(); *g; g++)
    for (int i = 0; i < (*g)->count; i++) {
      const tsr_bench_case *what = &(*g)->cases[i];
      char name[TSR_BENCH_NAME_MAX];
      tsr_bench_name(what, name);
      if (filter && !strstr(name, filter)) continue;
      if (!what->is_small && !what->fix) choose_case(arena, b, what, true);
      choose_case(arena, b, what, false);
    }
}

/* ---- memory ---- */

static int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

/* Streams that are at the same place of their pages at a time get into each other's way, so arrays
 * begin at different ones. */
static int64_t array_bytes(const tsr_bench_size *s, int array) {
  int64_t floats = array < s->arrays ? s->elements : s->few;
  return round_up(floats * 4, PAGE) + 13 * LINE;
}

static int64_t thread_bytes(const tsr_bench_size *s) {
  int64_t bytes = s->scratch_bytes;
  for (int i = 0; i < TSR_BENCH_ARRAYS; i++) bytes += array_bytes(s, i);
  return round_up(bytes, PAGE);
}

static tsr_bench_size size_of(const tsr_bench *b, int index) {
  const chosen *c = &b->cases[index];
  return tsr_bench_size_of(c->what, b->k, c->is_large ? 4 * b->caches.last : b->caches.second / 2);
}

/* Memory that is committed before it is written to. */
static bool open_memory(int64_t bytes, const char *what, void **ret_memory, tsr_diags *diags) {
  void *memory = mmap(
      NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
      0);
  if (memory == MAP_FAILED)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "cannot allocate %s for %s: %s", tsr_text_bytes(bytes).text, what,
        strerror(errno));
  madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
  *ret_memory = memory;
  return true;
}

static bool open_memories(tsr_bench *b, tsr_diags *diags) {
  void *memory;
  for (int i = 0; i < b->count; i++) {
    tsr_bench_size size = size_of(b, i);
    int64_t bytes = thread_bytes(&size);
    if (bytes > b->memory_bytes) b->memory_bytes = bytes;
  }
  if (!open_memory(b->memory_bytes * b->threads, "the arrays of kernels", &memory, diags))
    return false;
  b->memory = memory;
  b->limit_floats = b->caches.last / 2 > LIMIT_FLOATS ? b->caches.last / 2 : LIMIT_FLOATS;
  b->limit_floats = round_up(b->limit_floats, 128);
  int64_t bytes = b->limit_floats * 4 * b->threads;
  if (!open_memory(bytes, "what is read from memory", &memory, diags)) return false;
  b->limit_memory = memory;
  return true;
}

static void touch(void *context, int thread) {
  tsr_bench *b = context;
  memset(b->limit_memory + b->limit_floats * thread, 1, 4 * (size_t)b->limit_floats);
}

static tsr_peak_rates measure_limits(const tsr_bench *b) {
  tsr_peak_rates limits;
  tsr_peak_rates_measure_on(b->pool, b->k, b->threads, b->limit_memory, b->limit_floats, &limits);
  return limits;
}

bool tsr_bench_open(
    tsr_arena *arena, const tsr_kernels *kernels, int threads, const char *filter,
    tsr_bench **ret_bench, tsr_diags *diags) {
  tsr_bench *b = tsr_arena_array(arena, tsr_bench, 1);
  *ret_bench = b;
  b->k = kernels;
  b->threads = threads;
  b->calls = tsr_arena_array(arena, tsr_bench_call, threads);
  b->caches = tsr_bench_caches_find();
  choose_cases(arena, b, filter);
  if (!b->count)
    return tsr_diag_error(diags, TSR_NOWHERE, "--filter: no kernel's name has '%s' in it", filter);
  if (!open_memories(b, diags) || !tsr_pool_open(arena, threads, &b->pool, diags)) return false;
  tsr_pool_run(b->pool, touch, b, threads);
  b->before = measure_limits(b);
  return true;
}

void tsr_bench_close(tsr_bench *b) {
  if (b->pool) tsr_pool_close(b->pool);
  if (b->memory) munmap(b->memory, (size_t)(b->memory_bytes * b->threads));
  if (b->limit_memory) munmap(b->limit_memory, (size_t)(b->limit_floats * 4 * b->threads));
}

int tsr_bench_rows_count(const tsr_bench *b) { return b->count; }

/* ---- a case's calls ---- */

/* Numbers from -2 to 2 without a pattern that a branch or a prefetch could learn. */
static void fill(float *x, int64_t n, int seed) {
  enum { DRAWN = 1 << 14 };
  int64_t drawn = n < DRAWN ? n : DRAWN;
  for (int64_t i = 0; i < drawn; i++) {
    uint64_t bits = (uint64_t)(i * TSR_BENCH_ARRAYS + seed + 1) * 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 29)) * 0xBF58476D1CE4E5B9u;
    x[i] = (float)(bits >> 40) / 4194304.0f - 2;
  }
  for (int64_t done = drawn; done < n; done += drawn)
    memcpy(x + done, x, sizeof *x * (size_t)(n - done < drawn ? n - done : drawn));
}

static void open_call(void *context, int thread) {
  tsr_bench *b = context;
  tsr_bench_call *c = &b->calls[thread];
  char *at = b->memory + b->memory_bytes * thread;
  for (int i = 0; i < TSR_BENCH_ARRAYS; at += array_bytes(&c->size, i), i++) {
    c->x[i] = (float *)at;
    fill(c->x[i], i < c->size.arrays ? c->size.elements : c->size.few, i);
  }
  c->scratch = at;
  memset(c->scratch, 0, (size_t)c->size.scratch_bytes);
  if (c->what->prepare) c->what->prepare(c);
}

static void open_calls(tsr_bench *b, const tsr_bench_case *what, tsr_bench_size size) {
  for (int i = 0; i < b->threads; i++)
    b->calls[i] = (tsr_bench_call){.k = b->k, .what = what, .size = size};
  tsr_pool_run(b->pool, open_call, b, b->threads);
}

/* ---- its time ---- */

static void run_round(void *context, int thread) {
  const tsr_bench *b = context;
  const tsr_bench_call *c = &b->calls[thread];
  for (int64_t i = 0; i < b->repeat; i++) c->what->run(c);
}

/* Of a call. */
static double time_round(tsr_bench *b) {
  double begin = now();
  tsr_pool_run(b->pool, run_round, b, b->threads);
  return (now() - begin) / (double)b->repeat;
}

/* The first two rounds are for warm-up, and determine how many calls are measured as one. */
static double least_seconds(tsr_bench *b) {
  b->repeat = 1;
  time_round(b);
  double once = time_round(b), least = 1e30, spent = 0;
  if (once < round_seconds) b->repeat = (int64_t)(round_seconds / (once + 1e-9)) + 1;
  for (int i = 0; i < ROUNDS_LEAST || spent < all_seconds; i++) {
    double seconds = time_round(b);
    spent += seconds * (double)b->repeat;
    if (seconds < least) least = seconds;
  }
  return least;
}

/* ---- and its limit ---- */

static tsr_peak_rates mean_of(tsr_peak_rates a, tsr_peak_rates b) {
  return (tsr_peak_rates){
      (a.flops + b.flops) / 2, (a.bytes + b.bytes) / 2, (a.dot_flops + b.dot_flops) / 2};
}

static tsr_bench_limit limit_of(const tsr_bench_row *r, bool fits) {
  bool computes = r->flops / r->limits.flops > r->bytes / r->limits.bytes;
  if (computes) return TSR_BENCH_COMPUTE;
  return fits ? TSR_BENCH_CACHE : TSR_BENCH_MEMORY;
}

static double share_of(const tsr_bench_row *r) {
  double least[] = {
      [TSR_BENCH_COMPUTE] = r->flops / r->limits.flops,
      [TSR_BENCH_MEMORY] = r->bytes / r->limits.bytes,
      [TSR_BENCH_CACHE] = 0};
  return least[r->limit] / r->seconds;
}

void tsr_bench_measure(tsr_bench *b, int index, tsr_bench_row *ret_row) {
  const chosen *c = &b->cases[index];
  tsr_bench_size size = size_of(b, index);
  tsr_bench_row *r = ret_row;
  *r = (tsr_bench_row){0};
  open_calls(b, c->what, size);
  r->seconds = least_seconds(b);
  tsr_peak_rates after = measure_limits(b);
  r->limits = mean_of(b->before, after);
  b->before = after;
  if (size.is_dot) r->limits.flops = r->limits.dot_flops;
  tsr_bench_name(c->what, r->name);
  memcpy(r->shape, size.shape, sizeof r->shape);
  r->flops = size.flops * b->threads;
  r->bytes = 4 * size.floats * b->threads;
  r->limit = limit_of(r, !c->is_large && r->bytes <= (double)b->caches.last);
  r->is_fixed = c->what->fix != NULL;
  r->share = share_of(r);
}
