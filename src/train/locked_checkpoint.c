// SPDX-License-Identifier: Apache-2.0
#include "train/locked_checkpoint.h"
#include "base/file_read.h"
#include "train/learning_rate_recipe.h"
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_run_lock *lock;
  const char *folder;
  bool is_own; /* the run's; else other runs may have kept theirs there */
  tsr_diags *diags;
} place;

/* A run that forks in the folder of the run that it forks from has its own learning rates, and that
 * one's checkpoints beside its own. */
static bool has_same_rates(const tsr_run_lock *lock, const tsr_manifest *m) {
  for (int i = 0; i < lock->recipe_count; i++) {
    const tsr_recipe_entry *e = &lock->recipe[i];
    const char *there = tsr_recipe_value(m, e->key);
    if (tsr_lr_recipe_has(e->key) && there && strcmp(there, e->value) != 0) return false;
  }
  return true;
}

static bool is_of_run(const place *p, const tsr_manifest *m) {
  char hash[TSR_HASH_TEXT];
  tsr_recipe_hash(m->recipe, m->recipe_count, hash);
  return p->is_own ? has_same_rates(p->lock, m) : !strcmp(hash, p->lock->recipe_hash);
}

/* Those that hold weights alone repeat nothing. */
static bool find_in(const place *p, int64_t before, tsr_manifest *ret) {
  while (tsr_checkpoints_newest(p->arena, p->folder, before, ret, p->diags)) {
    if (ret->has_state && is_of_run(p, ret)) return true;
    before = ret->state.step;
  }
  return false;
}

bool tsr_locked_checkpoint_find(
    tsr_arena *arena, const tsr_run_lock *lock, const char *folder, int64_t before,
    tsr_manifest *ret, tsr_diags *diags) {
  const char *own = tsr_path_join(arena, tsr_path_folder(arena, lock->path), "checkpoints");
  const place beside = {arena, lock, own, true, diags};
  const place there = {arena, lock, folder, false, diags};
  tsr_manifest other;
  bool found = find_in(&beside, before, ret);
  if (!*folder || tsr_file_is_same(folder, own) || !find_in(&there, before, &other)) return found;
  if (!found || other.state.step > ret->state.step) *ret = other;
  return true;
}

bool tsr_locked_checkpoint_find_held(
    tsr_arena *arena, const tsr_run_lock *lock, const char *folder, int64_t before,
    tsr_manifest *ret, tsr_checkpoint_hold *ret_hold, tsr_diags *diags) {
  enum { TRIES = 100 };
  *ret_hold = TSR_CHECKPOINT_HOLD_NONE;
  for (int i = 0; i < TRIES; i++) {
    if (!tsr_locked_checkpoint_find(arena, lock, folder, before, ret, diags)) return false;
    const char *path = ret->folder;
    tsr_diags *gone = tsr_diags_new(arena);
    if (tsr_checkpoint_find_held(arena, path, TSR_NOWHERE, ret, ret_hold, gone)) return true;
    if (tsr_file_exists(path)) break;
  }
  return tsr_diag_failure(
      diags, (tsr_location){.file = lock->path},
      "every checkpoint is removed before it can be read");
}
