// SPDX-License-Identifier: Apache-2.0
/* requires: a graph that is a part of another one (what a model evaluates or generates with), and
 * that one, both with stages
 * produces: the parameters of the whole one, in its order and on its stages, so that both have one
 * memory; those that the part does not use, too. An error for one that only the part has, or that
 * differs
 * invalidates: indices of parameters */
#include "passes/passes.h"
#include <string.h>

/* Begins at `*next`, and leaves there what follows: both graphs name most parameters in one
 * order. */
static int find_param(const tsr_graph *g, const char *name, int *next) {
  for (int i = 0; i < g->params_count; i++) {
    int p = (*next + i) % g->params_count;
    if (strcmp(g->params[p].name, name) != 0) continue;
    *next = p + 1;
    return p;
  }
  return -1;
}

/* Both have one memory, so each parameter of the part is one of the whole's. */
static bool check_params(const tsr_graph *g, const tsr_graph *whole, tsr_diags *diags) {
  for (int p = 0, next = 0; p < g->params_count; p++) {
    const tsr_param *param = &g->params[p];
    int q = find_param(whole, param->name, &next);
    if (q < 0)
      return tsr_diag_error(
          diags, param->location, "training has no parameter '%s', and this graph has",
          param->name);
    if (!tsr_params_match(param, &whole->params[q]))
      return tsr_diag_error(
          diags, param->location, "parameter '%s' has another shape or placement in training",
          param->name);
  }
  return true;
}

bool tsr_pass_take_params(tsr_graph *g, const tsr_graph *whole, tsr_diags *diags) {
  if (!check_params(g, whole, diags)) return false;
  for (int q = 0, next = 0; q < whole->params_count; q++)
    if (find_param(g, whole->params[q].name, &next) < 0) tsr_graph_param(g, &whole->params[q]);
  tsr_param *sorted = tsr_arena_array(g->arena, tsr_param, g->params_count + 1);
  int *location = tsr_arena_array(g->arena, int, g->params_count + 1), count = 0;
  for (int p = 0; p < g->params_count; p++) location[p] = -1;
  for (int q = 0, next = 0; q < whole->params_count; q++) {
    int p = find_param(g, whole->params[q].name, &next);
    sorted[count] = g->params[p];
    sorted[count].stage = whole->params[q].stage;
    location[p] = count++;
  }
  memcpy(g->params, sorted, sizeof *sorted * (size_t)count);
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].param >= 0) g->values[v].param = location[g->values[v].param];
  return true;
}
