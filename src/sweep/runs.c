// SPDX-License-Identifier: Apache-2.0
#include "sweep/runs.h"
#include <inttypes.h>
#include <string.h>

/* Of values that can be counted; INT64_MAX: more, or a distribution. */
static int64_t combinations(const tsr_sweep *s) {
  int64_t count = 1;
  for (int i = 0; i < s->parameters_count; i++)
    if (!s->parameters[i].count || __builtin_mul_overflow(count, s->parameters[i].count, &count))
      return INT64_MAX;
  return count;
}

static bool refuse_many(const tsr_sweep *s, int64_t count, tsr_diags *diags) {
  if (count == INT64_MAX)
    tsr_diag_error(
        diags, s->parameters[0].location, "the grid has more combinations than can be counted");
  else
    tsr_diag_error(
        diags, s->random_runs ? s->method : s->parameters[0].location,
        "the sweep has %s runs, and %s at most are possible", tsr_text_count(count).text,
        tsr_text_count(TSR_SWEEP_RUNS_MAX).text);
  if (!s->random_runs) tsr_diag_hint(diags, "--random N draws N of them");
  return false;
}

static void make_grid(tsr_arena *arena, const tsr_sweep *s, tsr_sweep_run *runs, int count) {
  for (int r = 0; r < count; r++) {
    int64_t rest = r;
    for (int i = s->parameters_count - 1; i >= 0; i--) {
      const tsr_sweep_parameter *p = &s->parameters[i];
      runs[r].values[i] = tsr_sweep_parameter_value(arena, p, rest % p->count);
      rest /= p->count;
    }
  }
}

static bool is_new(const tsr_sweep *s, const tsr_sweep_run *runs, int r) {
  for (int k = 0; k < r; k++) {
    int i = 0;
    while (i < s->parameters_count && !strcmp(runs[k].values[i], runs[r].values[i])) i++;
    if (i == s->parameters_count) return false;
  }
  return true;
}

/* A run that is like one before it is drawn again. */
static bool
draw(tsr_arena *arena, const tsr_sweep *s, tsr_sweep_run *runs, int count, tsr_diags *diags) {
  enum { ATTEMPTS = 1 << 18 };
  for (int r = 0; r < count; r++) {
    int attempt = 0;
    do {
      for (int i = 0; i < s->parameters_count; i++)
        runs[r].values[i] =
            tsr_sweep_parameter_draw(arena, &s->parameters[i], s->seed, r + 1, attempt);
    } while (!is_new(s, runs, r) && ++attempt < ATTEMPTS);
    if (attempt < ATTEMPTS) continue;
    return tsr_diag_error(
        diags, s->method, "%d runs are asked for, and after %d the draws repeat themselves", count,
        r);
  }
  return true;
}

bool tsr_sweep_make_runs(
    tsr_arena *arena, const tsr_sweep *s, tsr_sweep_run **ret, int *ret_count, tsr_diags *diags) {
  int64_t all = combinations(s), count = s->random_runs ? s->random_runs : all;
  if (count > TSR_SWEEP_RUNS_MAX) return refuse_many(s, count, diags);
  if (count > all)
    return tsr_diag_error(
        diags, s->method,
        "%" PRId64 " runs are asked for, and the values have %" PRId64 " combinations", count, all);
  *ret_count = (int)count;
  *ret = tsr_arena_array(arena, tsr_sweep_run, count);
  for (int64_t r = 0; r < count; r++)
    (*ret)[r].values = tsr_arena_array(arena, const char *, s->parameters_count);
  if (s->random_runs) return draw(arena, s, *ret, (int)count, diags);
  make_grid(arena, s, *ret, (int)count);
  return true;
}

void tsr_sweep_run_print(const tsr_sweep *s, const tsr_sweep_run *run, tsr_text *text) {
  for (int i = 0; i < s->parameters_count; i++)
    tsr_text_add(text, "%s%s=%s", i ? " " : "", s->parameters[i].name, run->values[i]);
}
