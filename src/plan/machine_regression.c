// SPDX-License-Identifier: Apache-2.0
#include "plan/machine_regression.h"
#include "plan/plan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A task takes the device's overhead and the sum of these, each at least 0. */
enum { BYTES, FLOPS, CALLS, FIGURES };

/* ---- non-negative least squares ---- */

/* The normal equations A^T A x = A^T y. Rows are divided by their seconds, so that errors are
 * relative; columns are scaled to length 1. */
typedef struct {
  double a[FIGURES][FIGURES], y[FIGURES], scale[FIGURES];
  int rows;
} equations;

static void add_row(const tsr_fit_sample *s, double overhead, equations *e) {
  double row[FIGURES], left = fmax(0, s->seconds - overhead) / s->seconds;
  row[BYTES] = s->work.bytes / s->seconds;
  row[FLOPS] = s->work.flops / s->seconds;
  row[CALLS] = s->work.calls / s->seconds;
  for (int r = 0; r < FIGURES; r++) {
    for (int c = 0; c < FIGURES; c++) e->a[r][c] += row[r] * row[c];
    e->y[r] += row[r] * left;
  }
  e->rows++;
}

static void scale_equations(equations *e) {
  for (int r = 0; r < FIGURES; r++) e->scale[r] = sqrt(e->a[r][r]);
  for (int r = 0; r < FIGURES; r++) {
    if (e->scale[r] == 0) continue;
    for (int c = 0; c < FIGURES; c++)
      if (e->scale[c] > 0) e->a[r][c] /= e->scale[r] * e->scale[c];
    e->y[r] /= e->scale[r];
  }
}

/* Each figure in turn becomes what is best for the others' present values; the sum of squares is
 * convex, so this ends at its least; where samples do not tell figures apart, with the first. */
static void solve(const equations *e, double ret[FIGURES]) {
  enum { ROUNDS = 20000 };
  double x[FIGURES] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    double moved = 0;
    for (int i = 0; i < FIGURES; i++) {
      if (e->scale[i] == 0) continue;
      double error = e->y[i];
      for (int k = 0; k < FIGURES; k++)
        if (e->scale[k] > 0) error -= e->a[i][k] * x[k];
      double next = fmax(0, x[i] + error);
      moved = fmax(moved, fabs(next - x[i]));
      x[i] = next;
    }
    if (moved < 1e-13) break;
  }
  for (int i = 0; i < FIGURES; i++) ret[i] = e->scale[i] > 0 ? x[i] / e->scale[i] : 0;
}

/* ---- figures as people write them ---- */

/* Three digits are more than is known. */
static double rounded(double value) {
  char text[32];
  if (!(value > 0) || !isfinite(value)) return 0;
  snprintf(text, sizeof text, "%.3g", value);
  return strtod(text, NULL);
}

/* What takes less than `least` takes no time. */
static double rate_of(double seconds_each, double least) {
  return seconds_each > least ? rounded(1 / seconds_each) : 0;
}

/* ---- the machine ---- */

typedef enum { KIND_PRODUCTS, KIND_ATTENTION, KIND_MEMORY, KINDS } op_kind;

static op_kind kind_of(tsr_op op) {
  if (op == TSR_OP_ATTENTION || op == TSR_OP_ATTENTION_DX) return KIND_ATTENTION;
  if (op == TSR_OP_DOCUMENT_ATTENTION || op == TSR_OP_DOCUMENT_ATTENTION_DX) return KIND_ATTENTION;
  bool is_product = tsr_task_is_product(&(tsr_task){.op = op});
  return is_product ? KIND_PRODUCTS : KIND_MEMORY;
}

/* Whether an op goes through all of its bytes, once. */
static bool touches_all(tsr_op op) {
  return op == TSR_OP_ADD || op == TSR_OP_MUL || op == TSR_OP_ADAMW || op == TSR_OP_SGD;
}

/* What a kind does a second, over all its samples and at best. */
typedef struct {
  double work, seconds, best;
} reached;

static void count_reached(const tsr_fit_sample *samples, int count, reached kinds[KINDS]) {
  memset(kinds, 0, sizeof *kinds * KINDS);
  for (int i = 0; i < count; i++) {
    const tsr_fit_sample *s = &samples[i];
    op_kind kind = kind_of(s->op);
    if (s->dtype != TSR_MACHINE_F32 || (kind == KIND_MEMORY && !touches_all(s->op))) continue;
    reached *r = &kinds[kind];
    double work = kind == KIND_MEMORY ? s->work.bytes : s->work.flops;
    r->work += work;
    r->seconds += s->seconds;
    r->best = fmax(r->best, work / s->seconds);
  }
}

static double share(double rate, double peak) {
  return rate > 0 && peak > 0 ? fmin(1, rounded(rate / peak)) : 1;
}

static void set_device(tsr_machine *m, const tsr_fit_sample *samples, int count) {
  reached kinds[KINDS];
  double rates[KINDS];
  count_reached(samples, count, kinds);
  for (int k = 0; k < KINDS; k++)
    rates[k] = kinds[k].seconds > 0 ? kinds[k].work / kinds[k].seconds : 0;
  if (kinds[KIND_PRODUCTS].best > 0) m->flops[TSR_MACHINE_F32] = rounded(kinds[KIND_PRODUCTS].best);
  if (kinds[KIND_MEMORY].best > 0) m->memory_bandwidth = rounded(kinds[KIND_MEMORY].best);
  m->efficiency_products = share(rates[KIND_PRODUCTS], m->flops[TSR_MACHINE_F32]);
  m->efficiency_attention = share(rates[KIND_ATTENTION], m->flops[TSR_MACHINE_F32]);
  m->efficiency_memory = share(rates[KIND_MEMORY], m->memory_bandwidth);
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* What every task takes: what the shortest ones do. */
static double overhead_of(tsr_arena *arena, const tsr_fit_sample *samples, int count) {
  enum { SHORTEST = 20 }; /* one of so many */
  double *seconds = tsr_arena_array(arena, double, count + 1);
  for (int i = 0; i < count; i++) seconds[i] = samples[i].seconds;
  qsort(seconds, (size_t)count, sizeof *seconds, compare_doubles);
  return count ? rounded(seconds[count / SHORTEST]) : 0;
}

static void fit_rate(
    tsr_arena *arena, tsr_machine *m, const tsr_fit_sample *samples, int count, int op, int dtype) {
  equations e = {0};
  double figures[FIGURES];
  for (int i = 0; i < count; i++)
    if ((int)samples[i].op == op && (int)samples[i].dtype == dtype)
      add_row(&samples[i], m->overhead, &e);
  if (!e.rows) return;
  scale_equations(&e);
  solve(&e, figures);
  tsr_machine_rate rate = {.op = tsr_op_name((tsr_op)op), .dtype = dtype, .overhead = m->overhead};
  if (dtype == TSR_MACHINE_F32) rate.dtype = TSR_MACHINE_EVERY_DTYPE;
  rate.call = figures[CALLS] > 1e-12 ? rounded(figures[CALLS]) : 0;
  rate.flops = rate_of(figures[FLOPS], 1e-18);
  rate.bytes = rate_of(figures[BYTES], 1e-18);
  tsr_machine_set_rate(arena, m, &rate);
}

void tsr_machine_fit(tsr_arena *arena, tsr_machine *m, const tsr_fit_sample *samples, int count) {
  set_device(m, samples, count);
  m->overhead = overhead_of(arena, samples, count);
  for (int op = 0; op < TSR_OPS; op++)
    for (int dtype = 0; dtype < TSR_MACHINE_DTYPES; dtype++)
      fit_rate(arena, m, samples, count, op, dtype);
}
