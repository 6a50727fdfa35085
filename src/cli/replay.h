// SPDX-License-Identifier: Apache-2.0
/* Steps of a run again, in this process alone: of a recipe, or of a run with a run.lock. */
#ifndef TSR_CLI_REPLAY_H
#define TSR_CLI_REPLAY_H
#include "cli/console.h"
#include "train/trainer.h"

typedef struct {
  app a;            /* with options of its own */
  const char *name; /* as the user named it */
  bool has_lock;
  tsr_run_lock lock; /* of a run; else not set */
  setup setup;
  prepared prepared;
  int64_t steps; /* that the recipe has */
} replay;

/* Whether a path is a recipe (YAML) and not a run. */
bool replay_is_recipe(const char *path);

/* Reads a run.lock, with the configuration in it, or a recipe. One replay is open at a time. */
bool replay_open(const app *a, const char *path, replay *ret);
/* From the newest checkpoint below `before` that the run has, or from the begin, with
 * observer->last as the last step. */
bool replay_run(replay *r, int64_t before, const tsr_step_observer *observer);
void replay_close(replay *r);

#endif
