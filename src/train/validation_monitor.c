// SPDX-License-Identifier: Apache-2.0
#include "train/validation_monitor.h"
#include <math.h>
#include <string.h>

bool tsr_validation_is_monitored(const tsr_config *c) {
  return c->checkpoint.keep_best || c->training.early_stop_patience;
}

/* Of equal losses the earlier one is better. */
static bool add_best(const tsr_config *c, tsr_validation_state *s, tsr_evaluated_step evaluated) {
  int most = (int)c->checkpoint.keep_best, at = s->best_count;
  while (at > 0 && evaluated.loss < s->best[at - 1].loss) at--;
  if (at < most) {
    int behind = (s->best_count < most ? s->best_count : most - 1) - at;
    memmove(&s->best[at + 1], &s->best[at], sizeof *s->best * (size_t)behind);
    s->best[at] = evaluated;
    s->best_count++;
  }
  if (s->best_count > most) s->best_count = most; /* another number may have been kept before */
  return at < most;
}

bool tsr_validation_update(
    const tsr_config *c, tsr_validation_state *s, int64_t step, double loss, bool due) {
  double delta = c->training.early_stop_min_delta;
  bool improved = isfinite(loss) && (!s->improved.step || loss < s->improved.loss - delta);
  if (due && improved) s->improved = (tsr_evaluated_step){step, loss};
  if (due) s->stale = improved ? 0 : s->stale + 1;
  return isfinite(loss) && add_best(c, s, (tsr_evaluated_step){step, loss});
}

bool tsr_validation_is_over(const tsr_config *c, const tsr_validation_state *s) {
  return c->training.early_stop_patience && s->stale >= c->training.early_stop_patience;
}
