// SPDX-License-Identifier: Apache-2.0
#include "train/adapter_magnitudes.h"
#include "passes/passes.h"
#include <math.h>

/* The norms of the rows of a weight, into DoRA's magnitudes of it. */
static void begin_magnitude(tsr_executable *executable, const tsr_param *w, int weight, int m) {
  tsr_arena *scratch = tsr_arena_new();
  int64_t rows = w->shape[0], columns = w->shape[1];
  float *x = tsr_arena_array(scratch, float, rows *columns);
  float *norms = tsr_arena_array(scratch, float, rows);
  tsr_executable_read(executable, tsr_executable_param(executable, weight), x);
  for (int64_t r = 0; r < rows; r++) {
    double squares = 0;
    for (int64_t i = r * columns; i < (r + 1) * columns; i++)
      squares += (double)x[i] * (double)x[i];
    norms[r] = (float)sqrt(squares);
  }
  tsr_executable_write(executable, tsr_executable_param(executable, m), norms);
  tsr_arena_free(scratch);
}

void tsr_magnitudes_begin(tsr_executable *executable, const tsr_graph *g) {
  for (int p = 0; p < g->params_count; p++) {
    tsr_adapter adapter;
    if (!g->params[p].is_frozen || !tsr_adapter_find(g, p, &adapter) || adapter.m < 0) continue;
    begin_magnitude(executable, &g->params[p], p, adapter.m);
  }
}
