// SPDX-License-Identifier: Apache-2.0
#include "train/run_hashes.h"
#include "config/print.h"
#include "runtime/weight_hash.h"
#include "train/resume_recipe.h"
#include <inttypes.h>
#include <string.h>

static bool are_wanted(const tsr_trainer *t) {
  return t->o->hashes || t->o->locked || t->o->observer;
}

static uint32_t bits_of(double loss) {
  float x = (float)loss;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* ---- another run's hashes ---- */

static bool check_recipe(const tsr_trainer *t, tsr_diags *diags) {
  const tsr_run_lock *lock = t->o->locked->lock;
  if (strcmp(lock->policy, "deterministic"))
    return tsr_diag_error(
        diags, (tsr_location){.file = lock->path},
        "the run's policy is %s: no other run has its bits", lock->policy);
  return tsr_resume_recipe_check_locked(
      &t->facts, lock, t->recipe_entries, t->recipe_count, t->o->locked->data_may_differ, diags);
}

static bool check_first(const tsr_trainer *t, tsr_diags *diags) {
  const tsr_run_lock *lock = t->o->locked->lock;
  const tsr_locked_step *there = tsr_run_lock_at(lock, t->step);
  if (!there || there->weights == t->weights_hash) return true;
  return tsr_diag_failure(
      diags, (tsr_location){.file = lock->path},
      "the weights after step %" PRId64 " differ: their hash is %016" PRIx64 ", and %016" PRIx64
      " in the file",
      t->step, t->weights_hash, there->weights);
}

static bool check_step(const tsr_trainer *t, const tsr_locked_step *here, tsr_diags *diags) {
  const tsr_run_lock *lock = t->o->locked->lock;
  const tsr_locked_step *there = tsr_run_lock_at(lock, here->step);
  if (!there) return true;
  bool has_loss = there != &lock->first;
  bool loss = !has_loss || there->loss == here->loss, weights = there->weights == here->weights;
  if (loss && weights) return true;
  float theirs, ours;
  memcpy(&theirs, &there->loss, sizeof theirs);
  memcpy(&ours, &here->loss, sizeof ours);
  return tsr_diag_failure(
      diags, (tsr_location){.file = lock->path},
      "step %" PRId64 " is the first that differs: %s%s%s; the loss is %.9g and the weights' hash "
      "%016" PRIx64 ", in the file %.9g and %016" PRIx64,
      here->step, loss ? "" : "the loss", loss || weights ? "" : " and ",
      weights ? "" : "the weights", (double)ours, here->weights, (double)theirs, there->weights);
}

/* ---- the run's own run.lock ---- */

bool tsr_run_hashes_begin(tsr_trainer *t, tsr_diags *diags) {
  const tsr_trainer_options *o = t->o;
  tsr_text config = {0};
  char config_hash[TSR_HASH_TEXT];
  if (!o->lock) return true;
  tsr_config_print(o->config, &config);
  tsr_config_print_hash(config.data, config_hash);
  tsr_lock_start start = {
      .step = t->step,
      .weights = t->weights_hash,
      .mesh = o->mesh_text,
      .ranks = o->parallel->ranks,
      .processes = o->rank_map.processes ? o->rank_map.processes : 1,
      .threads = o->threads,
      .isa = tsr_executable_arch(t->train),
      .version = o->keep.version,
      .config_hash = config_hash};
  tsr_lock_start_describe(o->arena, &start);
  tsr_run_lock head = {
      .policy = o->config->numerics.policy == TSR_NUMERICS_FAST ? "fast" : "deterministic",
      .config = config.data,
      .recipe_hash = t->recipe,
      .recipe = t->recipe_entries,
      .recipe_count = t->recipe_count,
      .starts = &start,
      .starts_count = 1,
      .first = {.step = t->step, .weights = t->weights_hash}};
  bool ok = tsr_run_lock_begin(o->lock, &head, diags);
  tsr_text_free(&config);
  return ok;
}

bool tsr_run_hashes_check(tsr_trainer *t, tsr_diags *diags) {
  if (!are_wanted(t)) return true;
  bool ok = !t->o->locked || check_recipe(t, diags);
  ok = ok && tsr_executable_hash_updates(t->o->arena, t->train, diags);
  if (tsr_executable_agree(t->train, !ok)) return false;
  t->weights_hash = tsr_executable_weight_hash(t->train);
  if (t->o->locked && !check_first(t, diags)) return false;
  const tsr_step_observer *o = t->o->observer;
  return !o || o->begin(o->context, t->train, t->recipe_entries, t->recipe_count, t->step, diags);
}

bool tsr_run_hashes_step(tsr_trainer *t, tsr_diags *diags) {
  if (!are_wanted(t)) return true;
  t->weights_hash = tsr_executable_weight_hash(t->train);
  tsr_locked_step step = {.step = t->step, .loss = bits_of(t->loss), .weights = t->weights_hash};
  if (t->o->lock) tsr_run_lock_add(t->o->lock, &step, diags);
  const tsr_step_observer *o = t->o->observer;
  if (o && !o->after(o->context, t->train, &step, diags)) return false;
  return !t->o->locked || check_step(t, &step, diags);
}

void tsr_run_hashes_refresh(tsr_trainer *t) {
  if (!are_wanted(t)) return;
  tsr_executable_rehash(t->train);
  t->weights_hash = tsr_executable_weight_hash(t->train);
}

/* Lines that could not be written yet would be missing where the chain is continued. */
bool tsr_run_hashes_return(tsr_trainer *t, tsr_diags *diags) {
  tsr_run_hashes_refresh(t);
  return !t->o->lock || (tsr_run_lock_finish(t->o->lock, diags) && tsr_run_hashes_begin(t, diags));
}

bool tsr_run_hashes_finish(tsr_trainer *t, tsr_diags *diags) {
  return !t->o->lock || tsr_run_lock_finish(t->o->lock, diags);
}
