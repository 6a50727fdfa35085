// SPDX-License-Identifier: Apache-2.0
/* The command `verify`: steps of a run again, on another mesh, against its run.lock. */
#include "cli/mesh_override.h"
#include "base/command_progress.h"
#include "cli/run_begin.h"
#include "cli/train_run.h"
#include "train/locked_checkpoint.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  app *a;
  setup setup;
  tsr_run_lock lock;
  tsr_locked_run locked;
  tsr_checkpoint_manager_options keep;
  tsr_checkpoint_hold hold; /* of the checkpoint, until the process ends */
  int64_t first;            /* the first step that is to be compared; where the run begins at its
                             * last step, as a fork may, this one, of which the lock has weights */
} verification;

static bool read_lock(verification *v) {
  app *a = v->a;
  const tsr_run_lock *l = &v->lock;
  if (!tsr_run_lock_read(a->arena, a->options.arguments.items[0], &v->lock, a->diags)) return false;
  bool has_steps = l->steps_count > 0;
  if (!has_steps && (!l->first.step || a->options.first_step))
    return tsr_diag_error(
        a->diags, (tsr_location){.file = l->path}, "the run has made no step%s",
        l->first.step ? " of its own" : "");
  if (!has_steps) v->first = v->locked.last = l->first.step;
  if (!has_steps) return true;
  v->first = a->options.first_step ? a->options.first_step : l->first.step + 1;
  v->locked.last = a->options.last_step ? a->options.last_step : tsr_run_lock_last(l);
  if (v->first > l->first.step && v->locked.last <= tsr_run_lock_last(l)) return true;
  return tsr_diag_error(
      a->diags, TSR_NOWHERE, "--steps: '%s' has the steps %" PRId64 " to %" PRId64, l->path,
      l->first.step + 1, tsr_run_lock_last(l));
}

/* Samples by rank are as many in all as they were on the run's ranks. */
static void keep_samples(const app *a, tsr_config *c, const tsr_manifest *recipe) {
  tsr_config_training *t = &c->training;
  const char *samples = tsr_recipe_value(recipe, "samples_per_step");
  int64_t all = samples ? strtoll(samples, NULL, 10) : 0;
  bool by_rank = t->batch_size_per_rank && !t->batch_size_given;
  if (!by_rank || mesh_override_has_set(a, "training_config.batch_size")) return;
  if (all < 1 || all % t->gradient_accumulation_steps) return;
  t->batch_size = all / t->gradient_accumulation_steps;
  t->batch_size_given = true;
  t->batch_size_per_rank = 0;
}

/* The configuration of the run, on one rank unless options lay out ranks. */
static bool read_config(verification *v) {
  app *a = v->a;
  const tsr_run_lock *l = &v->lock;
  setup *s = &v->setup;
  const tsr_manifest recipe = {.recipe = l->recipe, .recipe_count = l->recipe_count};
  a->options.config = tsr_arena_printf(a->arena, "%s: config", l->path);
  mesh_override_sections(a, "verify");
  if (!tsr_config_parse(
          a->arena, a->options.config, l->config, strlen(l->config), a->options.sets,
          a->options.sets_count, true, &s->config, a->diags) ||
      !setup_use_config(a, s))
    return false;
  tsr_cp_layout layout = s->config->device.cp_layout;
  if (!a->options.mesh) mesh_override_by_one_rank(a, s->config);
  s->config->device.cp_layout = layout; /* orders the sums of the sequence's units */
  keep_samples(a, s->config, &recipe);
  return run_begin_take_recipe(a, s->config, &recipe, l->path);
}

static bool find_begin(verification *v) {
  app *a = v->a;
  tsr_checkpoint_manager_options *keep = &v->keep;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  const char *folder = v->setup.config->training.checkpoint_dir;
  int errors = tsr_diags_errors(a->diags);
  keep->version = TSR_VERSION;
  if (tsr_locked_checkpoint_find_held(
          a->arena, &v->lock, folder, v->first, m, &v->hold, a->diags)) {
    keep->resume = m;
    keep->resumes = keep->named = true;
  }
  return tsr_diags_errors(a->diags) == errors && run_begin_find_weights(a, v->setup.config, keep) &&
         run_begin_find_adapter(a, v->setup.config, keep);
}

static int64_t steps_of(const verification *v) {
  return v->locked.last - (v->keep.resume ? v->keep.resume->state.step : 0);
}

static void print_result(const verification *v) {
  int64_t steps = steps_of(v);
  if (v->lock.steps_count)
    printf(
        "verified: steps %" PRId64 " to %" PRId64 " of '%s' have the same losses and weights",
        v->first, v->locked.last, v->lock.path);
  else
    printf(
        "verified: the weights after step %" PRId64 ", at which the run of '%s' begins, are the "
        "same",
        v->first, v->lock.path);
  if (v->keep.resume) printf("; repeated from '%s'", v->keep.resume->folder);
  else printf("; repeated from the begin");
  printf(
      ", %" PRId64 " step%s, on %d rank%s\n", steps, steps == 1 ? "" : "s",
      v->setup.parallel->ranks, v->setup.parallel->ranks == 1 ? "" : "s");
}

int app_run_verify(app *a) {
  verification v = {.a = a, .locked = {.lock = &v.lock, .data_may_differ = true}};
  bool quiet = a->options.quiet;
  bool ok = app_join(a, true) && train_run_check_variables(a->diags) && read_lock(&v) &&
            read_config(&v) && find_begin(&v);
  a->options.quiet = true;
  tsr_command_progress_begin("repeating", steps_of(&v), "steps");
  int code = train_run(a, &v.setup, &v.keep, &v.locked, ok);
  tsr_command_progress_end();
  if (!code && !quiet && a->job.transport.process == 0) print_result(&v);
  return code;
}
