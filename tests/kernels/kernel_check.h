// SPDX-License-Identifier: Apache-2.0
/* What the kernel tests share: inputs, guarded outputs, splits of a range, and the loop over
 * levels.
 *
 * Every output is computed twice: by one call over the whole range (pass 0) and by calls over a
 * random split of it (pass 1). Both must have the same bits, leave the guards around them alone and
 * be near the reference, which the test computes in double. */
#ifndef TSR_TESTS_KERNEL_CHECK_H
#define TSR_TESTS_KERNEL_CHECK_H
#include "../check.h"
#include "kernels/kernels.h"
#include <stdint.h>
#include <stdlib.h>

enum { GUARD = 64 };
static const uint32_t guard_bits = 0x7FA5A5A5u; /* a NaN: what is read before it is written shows */

static uint64_t check_state = 88172645463325252u;

static inline uint64_t check_random(void) { /* xorshift */
  check_state ^= check_state << 13;
  check_state ^= check_state >> 7;
  return check_state ^= check_state << 17;
}

static inline float check_uniform(void) { /* in [-1, 1) */
  return (float)((double)(check_random() >> 40) * 0x1p-23 - 1);
}

static inline void *check_alloc(size_t bytes) {
  void *p = malloc(bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

static inline float *input_new(int64_t n, float size) {
  float *x = check_alloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = check_uniform() * size;
  return x;
}

static inline double *reference_new(int64_t n) {
  double *x = check_alloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = 0;
  return x;
}

typedef struct {
  float *pass[2];
  int64_t n;
} output;

static inline output output_new(int64_t n) {
  output o = {.n = n};
  for (int p = 0; p < 2; p++) {
    float *x = check_alloc((size_t)(n + 2 * GUARD) * sizeof *x);
    for (int64_t i = 0; i < n + 2 * GUARD; i++) memcpy(&x[i], &guard_bits, sizeof guard_bits);
    o.pass[p] = x + GUARD;
  }
  return o;
}

static inline output output_from(const float *x, int64_t n) {
  output o = output_new(n);
  for (int p = 0; p < 2; p++) memcpy(o.pass[p], x, (size_t)n * sizeof *x);
  return o;
}

static inline void output_free(output *o) {
  for (int p = 0; p < 2; p++) free(o->pass[p] - GUARD);
}

static inline bool guard_intact(const float *x) {
  for (int i = 0; i < GUARD; i++)
    if (memcmp(&x[i], &guard_bits, sizeof guard_bits)) return false;
  return true;
}

/* Near: within `relative` of the larger of |want| and `floor`. want NULL: bits and guards only. */
static inline void output_check(
    const output *o, const double *want, double relative, double floor, const char *what,
    const char *isa, const char *file, int line) {
  check_count++;
  const char *wrong = NULL;
  int64_t at = -1;
  for (int p = 0; p < 2; p++)
    if (!guard_intact(o->pass[p] - GUARD) || !guard_intact(o->pass[p] + o->n))
      wrong = "wrote outside its output";
  for (int64_t i = 0; !wrong && i < o->n; i++)
    if (memcmp(&o->pass[0][i], &o->pass[1][i], sizeof(float)))
      wrong = "depends on the split", at = i;
  for (int64_t i = 0; !wrong && want && i < o->n; i++) {
    double executable = relative * (fabs(want[i]) > floor ? fabs(want[i]) : floor);
    if (!(fabs(o->pass[0][i] - want[i]) <= executable) && o->pass[0][i] != want[i])
      wrong = "is wrong", at = i;
  }
  if (!wrong) return;
  check_failed++;
  fprintf(stderr, "%s:%d: %s (%s, n %lld) %s", file, line, what, isa, (long long)o->n, wrong);
  if (at >= 0)
    fprintf(stderr, " at %lld: %.9g, %.9g", (long long)at, o->pass[0][at], o->pass[1][at]);
  if (at >= 0 && want) fprintf(stderr, ", want %.12g", want[at]);
  fputc('\n', stderr);
}

#define CHECK_OUTPUT(o, want, relative, floor)                                                     \
  output_check(&(o), want, relative, floor, #o, k->isa, __FILE__, __LINE__)

static inline int64_t split_next(int64_t begin, int64_t items) {
  int64_t left = items - begin, widest = left < 40 ? left : check_random() % 4 ? 40 : left;
  return begin + 1 + (int64_t)(check_random() % (uint64_t)widest);
}

/* The call sees begin, end and the pass; an output is o.pass[pass]. */
#define RUN(items, call)                                                                           \
  for (int pass = 0; pass < 2; pass++)                                                             \
    for (int64_t begin = 0, end; begin < (items); begin = end) {                                   \
      end = pass ? split_next(begin, items) : (items);                                             \
      call;                                                                                        \
    }

/* Instrumented, each level takes minutes: the shortest vectors have the sources of longer ones, and
 * an instruction for bf16 has tests of its own. */
static inline bool is_checked_level(const char *name) {
#ifdef __SANITIZE_ADDRESS__
  bool is_shortest = !strcmp(name, "x86-64") && tsr_kernels_get("x86-64-v3");
  return !is_shortest && !strstr(name, "bf16");
#else
  (void)name;
  return true;
#endif
}

typedef void level_test(const tsr_kernels *k);

static inline void each_level(level_test *test) {
  int run = 0;
  for (const char *const *name = tsr_kernels_levels(); *name; name++) {
    const tsr_kernels *k = tsr_kernels_get(*name);
    if (!k) {
      printf("level %s: not on this CPU\n", *name);
      continue;
    }
    if (!is_checked_level(*name)) continue;
    CHECK_STR(k->isa, *name);
    test(k);
    run++;
  }
  CHECK(run > 0);
}

/* The slope of `f` at x by central differences. */
typedef double loss_function(const double *x, void *context);

static inline double slope_at(loss_function *f, double *x, int64_t i, void *context) {
  double kept = x[i], step = 1e-5;
  x[i] = kept + step;
  double above = f(x, context);
  x[i] = kept - step;
  double below = f(x, context);
  x[i] = kept;
  return (above - below) / (2 * step);
}

static inline double *to_double(const float *x, int64_t n) {
  double *y = reference_new(n);
  for (int64_t i = 0; i < n; i++) y[i] = x[i];
  return y;
}

static const int64_t odd_sizes[] = {1, 3, 7, 17, 33, 65, 100, 257, 1037};
#define EACH_SIZE(n)                                                                               \
  for (size_t size_ = 0; size_ < sizeof odd_sizes / sizeof odd_sizes[0]; size_++)                  \
    for (int64_t n = odd_sizes[size_], once_ = 1; once_; once_ = 0)

#endif
