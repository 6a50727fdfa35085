// SPDX-License-Identifier: Apache-2.0
#include "sweep/halving.h"
#include <math.h>
#include <stdlib.h>

bool tsr_halving_rungs(
    int64_t eta, int64_t min_steps, int64_t max_steps, int64_t *ret, int *ret_count) {
  int64_t steps = min_steps;
  *ret_count = 0;
  for (;; steps *= eta) {
    ret[(*ret_count)++] = steps;
    if (steps > max_steps / eta) return steps == max_steps;
  }
}

static int by_objective(const void *a, const void *b) {
  const tsr_sweep_score *x = a, *y = b;
  bool xs = isfinite(x->objective), ys = isfinite(y->objective);
  if (xs != ys) return xs ? -1 : 1;
  if (xs && x->objective != y->objective) return x->objective < y->objective ? -1 : 1;
  return (x->run > y->run) - (x->run < y->run);
}

void tsr_sweep_rank(tsr_sweep_score *scores, int count) {
  qsort(scores, (size_t)count, sizeof *scores, by_objective);
}

int tsr_halving_kept(const tsr_sweep_score *scores, int count, int64_t eta) {
  int kept = eta > count ? 1 : (int)(count / eta), finite = 0;
  while (finite < count && isfinite(scores[finite].objective)) finite++;
  return kept < finite ? kept : finite;
}
