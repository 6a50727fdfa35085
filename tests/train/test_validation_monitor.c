// SPDX-License-Identifier: Apache-2.0
/* Which evaluations are the best, and when a run ends early. */
#include "train/validation_monitor.h"
#include "tests/check.h"

static tsr_config config;
static tsr_validation_state state;

static void start(int64_t keep_best, int64_t patience, double min_delta) {
  config.checkpoint.keep_best = keep_best;
  config.training.early_stop_patience = patience;
  config.training.early_stop_min_delta = min_delta;
  state = (tsr_validation_state){0};
}

/* The steps of the best, and whether the run is over after each of the losses. */
static void check(const double *losses, int count, const char *best, const char *over) {
  char got[256] = "", ends[64] = "";
  for (int i = 0; i < count; i++) {
    tsr_validation_update(&config, &state, 10 * (i + 1), losses[i], true);
    ends[i] = tsr_validation_is_over(&config, &state) ? 'x' : '-';
  }
  for (int i = 0; i < state.best_count; i++)
    snprintf(got + strlen(got), 32, "%s%d", i ? " " : "", (int)state.best[i].step);
  CHECK_STR(got, best);
  CHECK_STR(ends, over);
}

int main(void) {
  static const double falls[] = {5, 4, 3, 2}, rises[] = {3, 2, 2.5, 2.5, 2, 1},
                      odd[] = {NAN, 3, INFINITY, 4};
  start(0, 0, 0);
  CHECK(!tsr_validation_is_monitored(&config));
  start(2, 2, 0);
  CHECK(tsr_validation_is_monitored(&config));
  check(falls, 4, "40 30", "----");
  start(3, 3, 0);
  check(rises, 6, "60 20 50", "----x-"); /* of equal losses the first; no improvement */
  start(16, 1, 0);
  check(rises, 6, "60 20 50 30 40 10", "--xxx-");
  start(0, 2, 0.9);
  check(falls, 4, "", "----");
  start(0, 1, 1);
  check(falls, 4, "", "-x-x"); /* 3 is below 5 by more than 1; 4 and, behind 3, 2 are not */
  start(1, 2, 0);
  check(odd, 4, "20", "---x");
  start(1, 2, 0);
  check((double[]){NAN, NAN, NAN}, 3, "", "-xx");

  /* the evaluation behind the last step may be the best one, and is no part of the patience */
  start(1, 1, 0);
  CHECK(tsr_validation_update(&config, &state, 5, 1, true));
  CHECK(!tsr_validation_update(&config, &state, 7, 2, false));
  CHECK(!tsr_validation_is_over(&config, &state));
  CHECK(tsr_validation_update(&config, &state, 8, 0.5, false));
  CHECK(state.best[0].step == 8 && state.improved.step == 5 && state.stale == 0);
  CHECK(!tsr_validation_update(&config, &state, 10, 1, true));
  CHECK(tsr_validation_is_over(&config, &state));

  /* fewer are kept from now on */
  start(3, 0, 0);
  check(falls, 3, "30 20 10", "---");
  config.checkpoint.keep_best = 1;
  CHECK(!tsr_validation_update(&config, &state, 40, 4.5, true));
  CHECK(state.best_count == 1 && state.best[0].step == 30);
  return check_done("validation_monitor");
}
