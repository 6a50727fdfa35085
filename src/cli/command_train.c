// SPDX-License-Identifier: Apache-2.0
/* Commands that train: train and profile. */
#include "cli/run_begin.h"
#include "cli/train_run.h"

/* --locked: what the configuration leaves out of the recipe is the file's. */
static bool take_locked(app *a, tsr_config *config, tsr_run_lock *lock) {
  if (!a->options.locked) return true;
  if (!tsr_run_lock_read(a->arena, a->options.locked, lock, a->diags)) return false;
  const tsr_manifest recipe = {.recipe = lock->recipe, .recipe_count = lock->recipe_count};
  return run_begin_take_recipe(a, config, &recipe, lock->path);
}

int app_run_train(app *a) {
  setup s = {0};
  tsr_checkpoint_manager_options keep = {0};
  tsr_run_lock lock;
  tsr_locked_run locked = {.lock = &lock};
  bool ok = app_join(a, true) && train_run_check_variables(a->diags) && setup_load_config(a, &s) &&
            run_begin_find(a, s.config, &keep) && take_locked(a, s.config, &lock);
  return train_run(a, &s, &keep, a->options.locked ? &locked : NULL, ok);
}
