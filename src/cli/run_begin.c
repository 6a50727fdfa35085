// SPDX-License-Identifier: Apache-2.0
#include "cli/run_begin.h"
#include "cli/trained_model.h"
#include "checkpoint/folder.h"
#include "checkpoint/peft.h"
#include "train/resume_recipe.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A checkpoint of another folder is none of this one's results. */
static bool is_in(const char *checkpoint, const char *folder) {
  char there[PATH_MAX], here[PATH_MAX];
  if (!realpath(checkpoint, there) || !realpath(folder, here)) return false;
  size_t length = strlen(here);
  return !strncmp(there, here, length) && there[length] == '/';
}

static tsr_out_purpose new_results(const app *a) {
  return a->options.command == TSR_COMMAND_PROFILE ? TSR_OUT_ONCE : TSR_OUT_NEW;
}

/* A run that resumes where nothing was saved yet, or from a folder elsewhere, continues in --out if
 * that has the results of the same run. */
tsr_out_purpose
run_begin_out_purpose(const app *a, const setup *s, const tsr_checkpoint_manager_options *keep) {
  const char *out = a->options.out;
  if (a->options.overwrite) return TSR_OUT_OVERWRITES;
  bool own = keep->resume && is_in(keep->resume->folder, out);
  if (own || (keep->resumes && tsr_out_folder_is_of(a->arena, out, s->config)))
    return TSR_OUT_RESUMES;
  return keep->resumes ? TSR_OUT_ANOTHER : new_results(a);
}

static bool is_given(const tsr_config *config, const char *key) {
  return tsr_config_location(config, key).file != NULL;
}

/* NULL: no checkpoints were requested. */
static const char *checkpoint_folder(const app *a, const tsr_config *config) {
  const char *dir = config->training.checkpoint_dir;
  if (a->options.command != TSR_COMMAND_TRAIN) return NULL;
  if (is_given(config, "training_config.checkpoint_dir")) return dir;
  if (a->options.out) return tsr_arena_printf(a->arena, "%s/checkpoints", a->options.out);
  if (is_given(config, "training_config.model_save_interval")) return dir;
  return a->options.resume && !*a->options.resume ? dir : NULL;
}

/* A run that begins anew would replace checkpoints that only this process cannot read. */
static bool check_unread(app *a, const char *folder) {
  tsr_checkpoint_entry *entries;
  int count;
  if (!tsr_checkpoints_list(a->arena, folder, &entries, &count, a->diags)) return false;
  if (!count) {
    tsr_diag_note(
        a->diags, TSR_NOWHERE, "'%s' holds no checkpoint to resume from: the run begins at step 0",
        folder);
    return true;
  }
  return tsr_checkpoint_manager_none_whole(folder, a->diags);
}

/* The newest checkpoint of the run's folder, or the one that --resume names. */
static bool find_resume(app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep) {
  const char *named = a->options.fork ? a->options.fork : a->options.resume;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  bool automatic =
      config->checkpoint.resume == TSR_RESUME_AUTO && keep->folder && !a->options.overwrite;
  keep->resumes = named || automatic;
  keep->forks = a->options.fork != NULL;
  if (named && *named) {
    keep->resume = m;
    keep->named = true;
    return tsr_checkpoint_find(a->arena, named, TSR_NOWHERE, m, a->diags);
  }
  int before = tsr_diags_errors(a->diags);
  if (!keep->resumes) return true;
  bool found = tsr_checkpoints_newest(a->arena, keep->folder, INT64_MAX, m, a->diags);
  if (found) keep->resume = m;
  if (found || tsr_diags_errors(a->diags) > before) return found;
  return check_unread(a, keep->folder);
}

static tsr_out_purpose purpose_of(const app *a, const tsr_checkpoint_manager_options *keep) {
  if (a->options.overwrite) return TSR_OUT_OVERWRITES;
  bool elsewhere = keep->named && (!keep->folder || !is_in(keep->resume->folder, keep->folder));
  return keep->resumes && !elsewhere ? TSR_OUT_RESUMES : new_results(a);
}

/* Adapters to start from; those of a run that resumes are in its checkpoints. */
bool run_begin_find_adapter(
    app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep) {
  const char *path = config->lora.path;
  if (!config->lora.enabled || !*path || (keep->resume && !keep->forks)) return true;
  tsr_location location = tsr_config_location(config, "lora_config.path");
  keep->adapter = path;
  return tsr_peft_hash(a->arena, path, location, &keep->adapter_hash, a->diags);
}

/* A run with adapters reads its frozen parameters at every start. */
bool run_begin_find_weights(
    app *a, const tsr_config *config, tsr_checkpoint_manager_options *keep) {
  static const char key[] = "training_config.model_path";
  const char *path = config->training.model_path;
  tsr_manifest *m = tsr_arena_alloc(a->arena, sizeof *m);
  if (config->lora.enabled && !*path)
    tsr_diag_warning(
        a->diags, tsr_config_location(config, "lora_config"),
        "the adapters are trained on random weights: %s names no model", key);
  if (!*path || (keep->resume && !keep->forks && !config->lora.enabled)) return true;
  keep->weights = m;
  tsr_location location = tsr_config_location(config, key);
  return tsr_checkpoint_find(a->arena, path, location, m, a->diags) &&
         trained_model_check_whole(a, m, location);
}

/* Keys about checkpoints, other than their defaults, of a run that keeps none. */
static bool
check_idle_keys(app *a, const tsr_config *config, const tsr_checkpoint_manager_options *keep) {
  static const char where[] = "training_config.checkpoint_dir or --out sets where they are kept";
  const tsr_config_checkpoint *c = &config->checkpoint;
  const struct {
    const char *key;
    bool differs;
  } keys[] = {
      {"checkpoint.keep_last", c->keep_last != 3},
      {"checkpoint.keep_every", c->keep_every},
      {"checkpoint.keep_best", c->keep_best},
      {"checkpoint.resume", c->resume == TSR_RESUME_AUTO && !config->elastic.rejoin},
      {"checkpoint.tag", *c->tag},
      {"checkpoint.optimizer", !c->optimizer},
      {"checkpoint.background", !c->background},
      {"validate_policy", config->training.validate_policy == TSR_VALIDATE_RESUME}};
  int errors = tsr_diags_errors(a->diags);
  if (keep->folder || a->options.command != TSR_COMMAND_TRAIN) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tsr_location location = tsr_config_location(config, keys[i].key);
    if (!keys[i].differs || !location.file) continue;
    tsr_diag(
        a->diags, tsr_diag_normative(a->diags, TSR_WARNING), location,
        "%s has no effect: no checkpoints are kept", keys[i].key);
    tsr_diag_hint(a->diags, where);
  }
  if (config->elastic.rejoin) {
    tsr_diag_warning(
        a->diags, tsr_config_location(config, "elastic.rejoin"),
        "no checkpoints are kept, so a job that comes back begins at step 0");
    tsr_diag_hint(a->diags, where);
  }
  return tsr_diags_errors(a->diags) == errors;
}

/* What the configuration leaves out of the recipe is the checkpoint's. */
bool run_begin_take_recipe(app *a, tsr_config *config, const tsr_manifest *m, const char *file) {
  tsr_resume_recipe_fill(a->arena, config, m);
  tsr_config_fill(a->arena, config, m->recipe, m->recipe_count, file);
  return setup_override_policy(a, config);
}

/* Before the programs are made. */
bool run_begin_find(app *a, tsr_config *config, tsr_checkpoint_manager_options *keep) {
  keep->folder = checkpoint_folder(a, config);
  keep->out = a->options.out;
  keep->gradients = a->options.dump_grads;
  keep->routing = a->options.record_routing;
  keep->version = TSR_VERSION;
  keep->limit_s =
      a->options.time_limit_s ? a->options.time_limit_s : config->checkpoint.time_limit_s;
  if (!check_idle_keys(a, config, keep) || !find_resume(a, config, keep) ||
      !run_begin_find_weights(a, config, keep) || !run_begin_find_adapter(a, config, keep))
    return false;
  keep->purpose = purpose_of(a, keep);
  if (!keep->resume || keep->forks) return true; /* a fork has a recipe of its own */
  const char *file = tsr_path_join(a->arena, keep->resume->folder, TSR_MANIFEST_NAME);
  return run_begin_take_recipe(a, config, keep->resume, file);
}
