// SPDX-License-Identifier: Apache-2.0
/* Programs of small graphs against the interpreter: the loss and the gradient of every parameter,
 * on one rank, with recipes that split sums into units and without. */
/* usage: test_run_oracle [CASE [RECIPE]]: that case alone, with the recipe of that number, from 0
 */
#include "oracle.h"
#include "oracle_cases.h"
#include "tests/check.h"
#include <stdlib.h>

/* Compiles one that is thrown away, so that an error is one case's and not the test's end. */
static bool check_accepted(const oracle_case *c, const oracle_recipe *r, bool refused) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  harness_options o = oracle_options(r);
  harness h;
  bool ok = harness_compile(oracle_build(arena, c, r), &o, &h, diags);
  CHECK_AT(
      ok != refused, "%s, %s: %s", c->name, r->name,
      ok ? "accepted; the table says that it is refused" : "refused");
  if (!ok && !refused) tsr_diags_print(diags, stderr);
  tsr_arena_free(arena);
  return ok;
}

/* Tokens must fall on both sides of what is ignored, and stay below what is padding. */
static void check_targets(const harness *h) {
  int64_t ignored = 0, counted = 0;
  for (int v = 0; v < h->graph->values_count; v++) {
    const tsr_value *value = &h->graph->values[v];
    if (value->kind != TSR_VALUE_INPUT || strcmp(value->name, "targets")) continue;
    int64_t n = tsr_value_elements(value), row = n / value->shape[0];
    for (int64_t i = 0; i < n; i++) {
      double target = harness_number(&h->options, "targets", true, i / row, i % row);
      ignored += target < 0;
      counted += target >= 0;
    }
    CHECK_AT(ignored && counted, "%s: no target is ignored, or all are", h->graph->name);
  }
}

static void
check_gradient(const oracle_recipe *r, const harness *h, const tsr_interpreter *t, int param) {
  tsr_arena *arena = h->graph->arena;
  const char *name = h->graph->params[param].name, *graph = h->graph->name;
  const double *want = tsr_interpreter_gradient(t, param);
  int64_t n, count = 0;
  harness_read_param(arena, h, param, &n);
  float *got = harness_read(arena, h, tsr_arena_printf(arena, "d.%s", name), &count);
  CHECK_AT(got && count == n, "%s, %s: '%s' has no gradient", graph, r->name, name);
  if (!got || count != n) return;
  double scale = oracle_largest(want, n);
  CHECK_AT(scale > 1e-5, "%s, %s: the gradient of '%s' is all but zero", graph, r->name, name);
  for (int64_t i = 0; i < n; i++) {
    bool near = fabs((double)got[i] - want[i]) <= 1e-5 * scale;
    CHECK_AT(
        near, "%s, %s: the gradient of '%s' at %d is %.9g, not %.9g (of at most %.3g)", graph,
        r->name, name, (int)i, (double)got[i], want[i], scale);
    if (!near) break; /* the first of each says enough */
  }
}

static void run(const oracle_case *c, const oracle_recipe *r) {
  tsr_arena *arena = tsr_arena_new();
  tsr_graph *g = oracle_build(arena, c, r);
  tsr_interpreter *t = tsr_interpreter_new(arena, g);
  harness_options o = oracle_options(r);
  harness h = harness_open(arena, g, &o);
  check_targets(&h);
  harness_step(&h, 0);
  double want = oracle_run(t, &h, 0);
  int64_t n = 0;
  float *loss = harness_read(arena, &h, "loss", &n);
  CHECK_AT(
      loss && n == 1 && want > 1e-3 && fabs((double)*loss - want) <= 2e-6 * want,
      "%s, %s: the loss is %.9g, not %.9g", c->name, r->name, loss ? (double)*loss : 0, want);
  CHECK_AT(g->params_count > 0, "%s has no parameters", c->name);
  for (int p = 0; p < g->params_count; p++) check_gradient(r, &h, t, p);
  harness_close(&h);
  tsr_arena_free(arena);
}

int main(int argc, char **argv) {
  int seen = 0, compared = 0;
  for (int i = 0; i < oracle_cases_count; i++) {
    const oracle_case *c = &oracle_cases[i];
    if (argc > 1 && strcmp(argv[1], c->name)) continue;
    for (int k = 0; k < ORACLE_RECIPES; k++) {
      if (argc > 2 && atoi(argv[2]) != k) continue;
      seen++;
      if (!check_accepted(c, &oracle_recipes[k], c->refused >> k & 1)) continue;
      run(c, &oracle_recipes[k]);
      compared++;
    }
  }
  CHECK_AT(seen > 0, "there is no case '%s'", argc > 1 ? argv[1] : "");
  CHECK_AT(argc > 1 || compared >= 3 * oracle_cases_count, "only %d were compared", compared);
  return check_done("oracle");
}
