// SPDX-License-Identifier: Apache-2.0
#include "cli/replay.h"
#include "base/command_progress.h"
#include "cli/run_begin.h"
#include "base/file_read.h"
#include "train/epochs.h"
#include "train/locked_checkpoint.h"
#include <string.h>

bool replay_is_recipe(const char *path) {
  return tsr_path_ends(path, ".yaml") || tsr_path_ends(path, ".yml");
}

static bool read_locked_config(replay *r) {
  app *a = &r->a;
  const tsr_run_lock *l = &r->lock;
  const tsr_manifest recipe = {.recipe = l->recipe, .recipe_count = l->recipe_count};
  a->options.config = tsr_arena_printf(a->arena, "%s: config", l->path);
  return tsr_config_parse(
             a->arena, a->options.config, l->config, strlen(l->config), a->options.sets,
             a->options.sets_count, true, &r->setup.config, a->diags) &&
         setup_use_config(a, &r->setup) &&
         run_begin_take_recipe(a, r->setup.config, &recipe, l->path);
}

static bool read_config(replay *r) {
  app *a = &r->a;
  if (r->has_lock)
    return tsr_run_lock_read(a->arena, r->name, &r->lock, a->diags) && read_locked_config(r);
  a->options.config = r->name;
  return setup_load_config(a, &r->setup);
}

bool replay_open(const app *a, const char *path, replay *r) {
  *r = (replay){.a = *a, .name = path, .has_lock = !replay_is_recipe(path)};
  r->a.options.quiet = true;
  if (!read_config(r) || !prepare(&r->a, &r->setup, &r->prepared)) {
    if (r->setup.config) prepare_explain_model(&r->a, &r->setup, &r->prepared);
    return false;
  }
  const tsr_compiled *c = &r->prepared.training;
  if (c->graph->loss < 0)
    return tsr_diag_error(
        a->diags, (tsr_location){.file = path}, "the graph has no loss: it makes no steps");
  int64_t samples = c->batch * c->programs.pipeline->microbatches;
  r->steps = tsr_epochs_steps(r->setup.config, &r->prepared.data, samples);
  if (r->setup.config->training.max_steps < r->steps)
    r->steps = r->setup.config->training.max_steps;
  int64_t made = r->has_lock ? tsr_run_lock_last(&r->lock) : 0;
  if (made > r->steps) r->steps = made; /* it was resumed, to make more than it began with */
  return true;
}

/* A run's own checkpoints. */
static bool find_begin(replay *r, int64_t before, tsr_checkpoint_manager_options *keep) {
  app *a = &r->a;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  keep->version = TSR_VERSION;
  if (r->has_lock &&
      tsr_locked_checkpoint_find(
          a->arena, &r->lock, r->setup.config->training.checkpoint_dir, before, m, a->diags)) {
    keep->resume = m;
    keep->resumes = keep->named = true;
  }
  return run_begin_find_weights(a, r->setup.config, keep) &&
         run_begin_find_adapter(a, r->setup.config, keep);
}

bool replay_run(replay *r, int64_t before, const tsr_step_observer *observer) {
  app *a = &r->a;
  const setup *s = &r->setup;
  int ended_by = 0;
  tsr_trainer_options o = {
      .arena = a->arena, .config = s->config, .parallel = s->parallel, .data = &r->prepared.data};
  if (!find_begin(r, before, &o.keep) ||
      !tsr_metrics_open(a->arena, NULL, NULL, &o.metrics, a->diags))
    return false;
  o.kernels = s->compute.kernels;
  o.threads = s->compute.cpu.threads;
  o.device = s->compute.device;
  o.quiet = true;
  o.mesh_text = setup_mesh_text(s, a->arena);
  o.stop = a->stop;
  o.observer = observer;
  o.rank_map = s->ranks;
  int64_t first = o.keep.resume ? o.keep.resume->state.step : 0;
  tsr_command_progress_begin("repeating", observer->last - first, "steps");
  bool ok = tsr_train(&o, &r->prepared.training, NULL, NULL, &ended_by, a->diags);
  tsr_command_progress_end();
  tsr_metrics_close(o.metrics);
  return ok && !ended_by;
}

void replay_close(replay *r) {
  tsr_compute_close(&r->setup.compute);
  tsr_parallelism_context_close();
}
