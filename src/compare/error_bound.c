// SPDX-License-Identifier: Apache-2.0
#include "compare/error_bound.h"
#include <math.h>
#include <string.h>

/* How many numbers an element of the output is the sum of, at most: of a product of matrices
 * (R, K) and (N, K) to (R, N) K, of a sum over rows their number, of what is made element by
 * element little. */
static double summands(const tsr_graph *g, const tsr_node *n) {
  double out = (double)tsr_value_elements(&g->values[n->outputs[0]]), most = 1;
  for (int i = 0; i < n->inputs_count; i++) {
    double x = (double)tsr_value_elements(&g->values[n->inputs[i]]);
    most = fmax(most, x / out);
    for (int k = 0; k < i; k++)
      most = fmax(most, sqrt(x * (double)tsr_value_elements(&g->values[n->inputs[k]]) / out));
  }
  return most;
}

static double roundoff_of(tsr_dtype type) {
  return tsr_unit_roundoff(type == TSR_BF16 ? "BF16" : type == TSR_F16 ? "F16" : "F32");
}

/* What the optimizer keeps of a gradient has its errors. */
static void add_states(tsr_rounding_path *paths, const tsr_graph *g) {
  for (int v = 0; v < g->values_count; v++) {
    int param = g->values[v].kind == TSR_VALUE_STATE ? g->values[v].param : -1;
    if (param >= 0 && g->grads && g->grads[param] >= 0) paths[v] = paths[g->grads[param]];
  }
}

tsr_rounding_path *tsr_rounding_paths(tsr_arena *arena, const tsr_graph *g, const double *errors) {
  tsr_rounding_path *paths = tsr_arena_array(arena, tsr_rounding_path, g->values_count + 1);
  for (int v = 0; errors && v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM) paths[v].stored = errors[g->values[v].param];
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    tsr_rounding_path longest = {0};
    if (!n->outputs_count) continue;
    for (int k = 0; k < n->inputs_count; k++) {
      longest.roundings = fmax(longest.roundings, paths[n->inputs[k]].roundings);
      longest.stored = fmax(longest.stored, paths[n->inputs[k]].stored);
      longest.sums = fmax(longest.sums, paths[n->inputs[k]].sums);
    }
    bool moves = tsr_op_moves(n->op) && !tsr_op_sums_members(n->op);
    if (!moves) {
      longest.roundings++;
      longest.stored += roundoff_of(g->values[n->outputs[0]].dtype);
      longest.sums += sqrt(summands(g, n));
    }
    for (int k = 0; k < n->outputs_count; k++) paths[n->outputs[k]] = longest;
  }
  add_states(paths, g);
  return paths;
}

double tsr_unit_roundoff(const char *dtype) {
  if (!strcmp(dtype, "F32")) return 0x1p-24;
  if (!strcmp(dtype, "F16")) return 0x1p-11;
  return strcmp(dtype, "BF16") ? 0 : 0x1p-8;
}

double tsr_error_bound(tsr_rounding_path path, double roundoff) {
  return fmax(path.stored, path.roundings * roundoff) + path.sums * 0x1p-24;
}
