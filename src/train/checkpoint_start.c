// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint_start.h"
#include "base/file_read.h"
#include "checkpoint/load.h"
#include "checkpoint/peft.h"
#include "train/adapter_magnitudes.h"
#include "train/resume_recipe.h"
#include <stdlib.h>
#include <string.h>

/* The recipe has the samples of a step, so the position follows from the step. */
static bool
check_position(const tsr_checkpoint_manager_run *r, const tsr_manifest *m, tsr_diags *diags) {
  if (m->state.samples == m->state.step * r->samples_per_step) return true;
  return tsr_diag_failure(
      diags, TSR_NOWHERE, "'%s' is after %lld samples, and %lld steps of this run have %lld",
      m->folder, (long long)m->state.samples, (long long)m->state.step,
      (long long)(m->state.step * r->samples_per_step));
}

static bool
load(tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_manifest *m, tsr_diags *diags) {
  bool verify = k->run.config->checkpoint.verify;
  bool ok = tsr_checkpoint_load(arena, m, k->run.executable, TSR_LOAD_RUN, verify, diags) &&
            tsr_checkpoint_history(arena, m, k->loss, k->norm, diags);
  if (!tsr_executable_agree(k->run.executable, !ok)) return true;
  if (ok) tsr_diag_failure(diags, TSR_NOWHERE, "another process cannot read '%s'", m->folder);
  return false;
}

/* Whether all processes have the same number: some bit of a larger one is not in a smaller one. */
bool tsr_checkpoint_start_has_same(const tsr_checkpoint_manager *k, int64_t number) {
  uint64_t bits = (uint64_t)number, set = tsr_executable_agree(k->run.executable, bits),
           clear = tsr_executable_agree(k->run.executable, ~bits);
  return !(set & clear);
}

/* Of the run's folder, the newest that is older and that all processes have; NULL: there is none.
 * */
static const tsr_manifest *
before(tsr_arena *arena, const tsr_checkpoint_manager *k, const tsr_manifest *m, tsr_diags *diags) {
  tsr_manifest *older = tsr_arena_alloc(arena, sizeof *older);
  bool found = tsr_checkpoints_newest(arena, k->options.folder, m->state.step, older, diags);
  if (!tsr_checkpoint_start_has_same(k, found ? older->state.step : -1)) return NULL;
  return found ? older : NULL;
}

bool tsr_checkpoint_manager_none_whole(const char *folder, tsr_diags *diags) {
  tsr_diag_failure(diags, TSR_NOWHERE, "'%s' has checkpoints, and none can be read", folder);
  tsr_diag_hint(
      diags,
      "--overwrite without --resume discards them; `checkpoint verify` reports what is damaged");
  return false;
}

/* A fork has steps of its own behind the checkpoint, or ends there. */
static bool
check_fork(const tsr_checkpoint_manager_run *r, const tsr_manifest *m, tsr_diags *diags) {
  if (!r->forks || m->state.step <= r->total_steps) return true;
  return tsr_diag_error(
      diags, tsr_config_location(r->config, "training_config.max_steps"),
      "'%s' is after step %lld, and the run that forks from it has %lld", m->folder,
      (long long)m->state.step, (long long)r->total_steps);
}

/* Whether the run is the one that a checkpoint is of. */
bool tsr_checkpoint_start_check(
    const tsr_checkpoint_manager *k, const tsr_manifest *m, const tsr_recipe_entry *recipe,
    int count, tsr_diags *diags) {
  if (!m->has_state)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' holds weights alone: training_config.model_path begins with them",
        m->folder);
  return tsr_resume_recipe_check(&k->run, m, recipe, count, diags) &&
         check_fork(&k->run, m, diags) && check_position(&k->run, m, diags);
}

/* A run whose steps are all made is done again, for scripts that ask for it; one that has made more
 * is another run than the user thinks. */
static void report_excess(const tsr_checkpoint_manager *k, int64_t step, tsr_diags *diags) {
  int64_t last = k->run.total_steps;
  if (step < last) return;
  if (!k->run.quiet) printf("nothing is left to train: the run has %lld steps\n", (long long)last);
  if (step == last) return;
  const char *key = "training_config.max_steps";
  if (last < k->run.config->training.max_steps) key = "training_config.num_epochs";
  tsr_diag_warning(
      diags, tsr_config_location(k->run.config, key),
      "the checkpoint is after step %lld, behind the run's last step, %lld", (long long)step,
      (long long)last);
}

static bool go_on(
    tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_recipe_entry *recipe, int count,
    tsr_run_state *state, tsr_diags *diags) {
  const tsr_manifest *m = k->options.resume;
  for (;;) {
    tsr_diags *errors = k->options.named ? diags : tsr_diags_new(arena);
    if (load(arena, k, m, errors)) break;
    if (errors == diags) return false;
    tsr_checkpoint_pass_over(m->folder, errors, diags);
    m = k->options.resume = before(arena, k, m, diags);
    if (!m) return tsr_checkpoint_manager_none_whole(k->options.folder, diags);
    if (!tsr_checkpoint_start_check(k, m, recipe, count, diags)) return false;
  }
  *state = m->state;
  if (!k->run.quiet)
    printf(
        "%s from '%s', after step %lld\n", k->run.forks ? "forks" : "resumes", m->folder,
        (long long)state->step);
  report_excess(k, state->step, diags);
  return true;
}

static bool load_adapter(tsr_arena *arena, tsr_checkpoint_manager *k, tsr_diags *diags) {
  const char *folder = k->options.adapter;
  tsr_location location = tsr_config_location(k->run.config, "lora_config.path");
  tsr_trained_values values = tsr_trained_values_new(arena, k->run.training->graph);
  if (!tsr_peft_read(arena, folder, location, &values, diags)) return false;
  tsr_trained_values_load(arena, &values, k->run.executable);
  if (!k->run.quiet) printf("adapters: '%s'\n", folder);
  return true;
}

static bool have_same_names(const tsr_config_names *a, const tsr_config_names *b) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++) same = !strcmp(a->items[i].text, b->items[i].text);
  return same;
}

/* The classes of a model that a run begins with may have other names, or another order. */
static void warn_of_labels(tsr_arena *arena, const tsr_checkpoint_manager *k, tsr_diags *diags) {
  const tsr_manifest *m = k->options.weights;
  const tsr_config_data *data = &k->run.config->data;
  tsr_config *other;
  if (data->format != TSR_FILES_LABELS || !data->labels.count || !m->config) return;
  const char *path = tsr_path_join(arena, m->folder, m->config);
  if (!tsr_config_load(arena, path, NULL, 0, &other, tsr_diags_new(arena)) ||
      !other->data.labels.count || have_same_names(&other->data.labels, &data->labels))
    return;
  tsr_diag_warning(
      diags, tsr_config_location(k->run.config, "training_config.model_path"),
      "the names of this run's classes are not those of '%s', whose weights it begins with",
      m->folder);
  tsr_diag_hint(diags, "data.labels: [NAME, …] gives the names an order; theirs is in '%s'", path);
}

bool tsr_checkpoint_start_load(
    tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_recipe_entry *recipe, int count,
    tsr_run_state *state, tsr_diags *diags) {
  const tsr_manifest *weights = k->options.weights;
  bool verify = k->run.config->checkpoint.verify;
  tsr_load_kind kind = k->options.resume ? TSR_LOAD_BASE : TSR_LOAD_START;
  if (weights && !tsr_checkpoint_load(arena, weights, k->run.executable, kind, verify, diags))
    return false;
  if (weights && kind == TSR_LOAD_START) warn_of_labels(arena, k, diags);
  if (weights && !k->run.quiet) printf("weights: '%s'\n", weights->folder);
  if (!k->options.resume) tsr_magnitudes_begin(k->run.executable, k->run.training->graph);
  if (k->options.adapter && !load_adapter(arena, k, diags)) return false;
  return !k->options.resume || go_on(arena, k, recipe, count, state, diags);
}

/* ---- where it returns to ---- */

static bool is_foreign(const tsr_checkpoint_manager *k, int64_t step) {
  for (int i = 0; i < k->foreign_count; i++)
    if (k->foreign[i] == step) return true;
  return false;
}

/* Checkpoints have no frozen parameters and no padding. */
static bool
load_again(tsr_arena *arena, tsr_checkpoint_manager *k, const tsr_manifest *m, tsr_diags *diags) {
  const tsr_manifest *weights = k->options.weights;
  const tsr_graph *g = tsr_executable_graph(k->run.executable);
  bool frozen = false, verify = k->run.config->checkpoint.verify;
  for (int p = 0; p < g->params_count; p++) frozen |= g->params[p].is_frozen;
  tsr_executable_reset(k->run.executable);
  bool ok = !frozen || !weights ||
            tsr_checkpoint_load(arena, weights, k->run.executable, TSR_LOAD_BASE, verify, diags);
  if (!tsr_executable_agree(k->run.executable, !ok)) return load(arena, k, m, diags);
  if (ok) tsr_diag_failure(diags, TSR_NOWHERE, "another process cannot read the base model");
  return false;
}

/* Each process finds the same; the first one reports what it skips. */
bool tsr_checkpoint_manager_return(
    tsr_checkpoint_manager *k, int64_t last, tsr_run_state *ret_state, const char **ret_folder,
    tsr_diags *diags) {
  if (!k || !k->saver)
    return tsr_diag_failure(diags, TSR_NOWHERE, "the run ends: no checkpoints are kept");
  tsr_arena *arena = k->arena;
  tsr_diags *skipped = k->run.process ? tsr_diags_new(arena) : diags;
  tsr_recipe_entry *recipe;
  int count;
  tsr_resume_recipe(arena, &k->run, k->options.resume, &recipe, &count);
  tsr_saver_wait(k->saver, diags);
  tsr_manifest *m = tsr_arena_alloc(arena, sizeof *m);
  for (int64_t below = last + 1;; below = m->state.step) {
    tsr_diags *errors = tsr_diags_new(arena);
    bool found = tsr_checkpoints_newest(arena, k->options.folder, below, m, skipped);
    if (!tsr_checkpoint_start_has_same(k, found ? m->state.step : -1))
      return tsr_diag_failure(
          diags, TSR_NOWHERE, "the processes see different checkpoints in '%s'", k->options.folder);
    if (!found)
      return tsr_diag_failure(
          diags, TSR_NOWHERE, "the run ends: '%s' has no checkpoint of step %lld or before",
          k->options.folder, (long long)last);
    if (is_foreign(k, m->state.step)) continue;
    if (tsr_checkpoint_start_check(k, m, recipe, count, errors) && load_again(arena, k, m, errors))
      break;
    tsr_checkpoint_pass_over(m->folder, errors, skipped);
  }
  k->taken = m->state.step;
  *ret_state = m->state;
  *ret_folder = m->folder;
  return true;
}
